"""Implementation of `instances.acls.interfaces.acl_admin_client` by DescribeAcls, CreateAcls and DeleteAcls
(KIP-290).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import groupby
from typing import Any, Final, TypeVar

from kafka.protocol.admin.acl import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

from brokers.contract.acl_decisions import Access, authorize
from brokers.contract.acls import (
    AclDocument,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from brokers.dataplane.admin_client import require_ok, send_change
from brokers.dataplane.scatter import send_to_any_broker
from instances.acls.constants import ANY, MATCH
from instances.acls.interfaces import AccessDecision, AccessQuestion, AclFilter, AclRule
from tenants.errors import OutcomeUnknown

# Version with the resource type `user`.
VERSION: Final = 3
ANY_TYPE: Final = 1
MATCH_PATTERN: Final = 2
TIMED_OUT: Final = 7

EnumT = TypeVar("EnumT", bound=IntEnum)


class KafkaAclAdminClient:
    """Implements `instances.acls.interfaces.AclAdminClient`."""

    def rules(self, instance_id: str, acl_filter: AclFilter) -> Sequence[AclRule]:
        response = send_to_any_broker(
            instance_id, lambda: DescribeAclsRequest(**_filter_fields(acl_filter), version=VERSION)
        )
        require_ok(response.error_code, response.error_message)
        return sorted(
            _rule_from_response(resource.resource_type, resource.resource_name, resource.pattern_type, entry)
            for resource in response.resources
            for entry in resource.acls
        )

    def create(self, instance_id: str, rules: Sequence[AclRule]) -> None:
        creations = [_creation_of(rule) for rule in rules]
        response, _ = send_change(instance_id, CreateAclsRequest(creations=creations, version=VERSION))
        _require_all_ok(response.results)

    def delete(self, instance_id: str, acl_filters: Sequence[AclFilter]) -> Sequence[AclRule]:
        filters = [DeleteAclsRequest.DeleteAclsFilter(**_filter_fields(acl_filter)) for acl_filter in acl_filters]
        response, may_be_executed = send_change(instance_id, DeleteAclsRequest(filters=filters, version=VERSION))
        _require_all_ok(response.filter_results)
        matching_acls = [entry for result in response.filter_results for entry in result.matching_acls]
        _require_all_ok(matching_acls)
        if may_be_executed and not matching_acls:
            raise OutcomeUnknown  # an earlier attempt may have deleted them
        return sorted(
            {_rule_from_response(acl.resource_type, acl.resource_name, acl.pattern_type, acl) for acl in matching_acls}
        )

    def decide(
        self, rules: Sequence[AclRule], question: AccessQuestion, *, is_superuser: bool, allow_everyone: bool
    ) -> AccessDecision:
        decision = authorize(
            documents_of(rules),
            Access(
                principal=question.principal,
                host=question.host,
                operation=_member_of(AclOperation, question.operation),
                resource_type=_member_of(ResourceType, question.resource_type),
                name=question.resource_name,
            ),
            is_superuser=is_superuser,
            allow_everyone_if_no_acl=allow_everyone,
        )
        rule = None
        if decision.pattern is not None and decision.entry is not None:
            rule = _rule_from_acl(decision.pattern, decision.entry)
        return AccessDecision(allowed=decision.is_allowed, reason=decision.reason.value, rule=rule)


def documents_of(rules: Iterable[AclRule]) -> list[AclDocument]:
    """Returns the rules in the form in which brokers store them."""
    return [
        AclDocument(pattern=pattern, entries=frozenset(_entry_of(rule) for rule in pattern_rules))
        for pattern, pattern_rules in groupby(sorted(rules), key=_pattern_of)
    ]


def _pattern_of(rule: AclRule) -> ResourcePattern:
    return ResourcePattern(
        _member_of(ResourceType, rule.resource_type), rule.resource_name, _member_of(PatternType, rule.pattern_type)
    )


def _entry_of(rule: AclRule) -> AclEntry:
    return AclEntry(
        rule.principal, rule.host, _member_of(AclOperation, rule.operation), _member_of(Permission, rule.permission)
    )


def _rule_from_acl(pattern: ResourcePattern, entry: AclEntry) -> AclRule:
    return AclRule(
        resource_type=_name_of(pattern.resource_type),
        resource_name=pattern.name,
        pattern_type=_name_of(pattern.pattern_type),
        principal=entry.principal,
        host=entry.host,
        operation=_name_of(entry.operation),
        permission=_name_of(entry.permission),
    )


def _filter_fields(acl_filter: AclFilter) -> dict[str, Any]:
    pattern_type = (
        MATCH_PATTERN if acl_filter.pattern_type == MATCH else _number_or_any(PatternType, acl_filter.pattern_type)
    )
    return {
        "resource_type_filter": _number_or_any(ResourceType, acl_filter.resource_type),
        "resource_name_filter": acl_filter.resource_name,
        "pattern_type_filter": pattern_type,
        "principal_filter": acl_filter.principal,
        "host_filter": acl_filter.host,
        "operation": _number_or_any(AclOperation, acl_filter.operation),
        "permission_type": _number_or_any(Permission, acl_filter.permission),
    }


def _creation_of(rule: AclRule) -> Any:
    return CreateAclsRequest.AclCreation(
        resource_type=_member_of(ResourceType, rule.resource_type),
        resource_name=rule.resource_name,
        resource_pattern_type=_member_of(PatternType, rule.pattern_type),
        principal=rule.principal,
        host=rule.host,
        operation=_member_of(AclOperation, rule.operation),
        permission_type=_member_of(Permission, rule.permission),
    )


def _rule_from_response(resource_type: int, name: str, pattern_type: int, entry: Any) -> AclRule:
    return AclRule(
        resource_type=_name_of(ResourceType(resource_type)),
        resource_name=name,
        pattern_type=_name_of(PatternType(pattern_type)),
        principal=entry.principal,
        host=entry.host,
        operation=_name_of(AclOperation(entry.operation)),
        permission=_name_of(Permission(entry.permission_type)),
    )


def _require_all_ok(results: Iterable[Any]) -> None:
    for result in results:
        if result.error_code == TIMED_OUT:
            raise OutcomeUnknown
        require_ok(result.error_code, result.error_message)


def _name_of(member: IntEnum) -> str:
    return member.name.lower()


def _member_of(enum_class: type[EnumT], name: str) -> EnumT:
    return enum_class[name.upper()]


def _number_or_any(enum_class: type[EnumT], name: str) -> int:
    return ANY_TYPE if name == ANY else int(_member_of(enum_class, name))
