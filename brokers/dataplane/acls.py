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
from brokers.dataplane.admin_client import change, require_ok
from brokers.dataplane.scatter import ask_any
from instances.acls.constants import ANY, MATCH
from instances.acls.interfaces import AccessDecision, AccessQuestion, AclFilter, AclRule
from tenants.errors import OutcomeUnknown

# Version with the resource type `user`.
VERSION: Final = 3
ANY_NUMBER: Final = 1
MATCH_NUMBER: Final = 2
TIMED_OUT: Final = 7

Kind = TypeVar("Kind", bound=IntEnum)


class KafkaAclAdminClient:
    """Implements `instances.acls.interfaces.AclAdminClient`."""

    def rules(self, instance_id: str, wanted: AclFilter) -> Sequence[AclRule]:
        answer = ask_any(instance_id, lambda: DescribeAclsRequest(**_filter(wanted), version=VERSION))
        require_ok(answer.error_code, answer.error_message)
        return sorted(
            _rule(resource.resource_type, resource.resource_name, resource.pattern_type, entry)
            for resource in answer.resources
            for entry in resource.acls
        )

    def create(self, instance_id: str, rules: Sequence[AclRule]) -> None:
        creations = [_creation(rule) for rule in rules]
        answer, _ = change(instance_id, CreateAclsRequest(creations=creations, version=VERSION))
        _require_all(answer.results)

    def delete(self, instance_id: str, wanted: Sequence[AclFilter]) -> Sequence[AclRule]:
        filters = [DeleteAclsRequest.DeleteAclsFilter(**_filter(acl_filter)) for acl_filter in wanted]
        answer, may_be_done = change(instance_id, DeleteAclsRequest(filters=filters, version=VERSION))
        _require_all(answer.filter_results)
        matching = [entry for result in answer.filter_results for entry in result.matching_acls]
        _require_all(matching)
        if may_be_done and not matching:
            raise OutcomeUnknown  # an earlier attempt may have deleted them
        return sorted({_rule(acl.resource_type, acl.resource_name, acl.pattern_type, acl) for acl in matching})

    def decide(
        self, rules: Sequence[AclRule], question: AccessQuestion, *, is_superuser: bool, allow_everyone: bool
    ) -> AccessDecision:
        decision = authorize(
            documents_of(rules),
            Access(
                principal=question.principal,
                host=question.host,
                operation=_number(AclOperation, question.operation),
                resource_type=_number(ResourceType, question.resource_type),
                name=question.resource_name,
            ),
            is_superuser=is_superuser,
            allow_everyone_if_no_acl=allow_everyone,
        )
        rule = None
        if decision.pattern is not None and decision.entry is not None:
            rule = _rule_of(decision.pattern, decision.entry)
        return AccessDecision(allowed=decision.is_allowed, reason=decision.reason.value, rule=rule)


def documents_of(rules: Iterable[AclRule]) -> list[AclDocument]:
    """Returns the rules in the form in which brokers store them."""
    return [
        AclDocument(pattern=pattern, entries=frozenset(_entry_of(rule) for rule in own))
        for pattern, own in groupby(sorted(rules), key=_pattern_of)
    ]


def _pattern_of(rule: AclRule) -> ResourcePattern:
    return ResourcePattern(
        _number(ResourceType, rule.resource_type), rule.resource_name, _number(PatternType, rule.pattern_type)
    )


def _entry_of(rule: AclRule) -> AclEntry:
    return AclEntry(
        rule.principal, rule.host, _number(AclOperation, rule.operation), _number(Permission, rule.permission)
    )


def _rule_of(pattern: ResourcePattern, entry: AclEntry) -> AclRule:
    return AclRule(
        resource_type=_word(pattern.resource_type),
        resource_name=pattern.name,
        pattern_type=_word(pattern.pattern_type),
        principal=entry.principal,
        host=entry.host,
        operation=_word(entry.operation),
        permission=_word(entry.permission),
    )


def _filter(wanted: AclFilter) -> dict[str, Any]:
    pattern_type = MATCH_NUMBER if wanted.pattern_type == MATCH else _number_or_any(PatternType, wanted.pattern_type)
    return {
        "resource_type_filter": _number_or_any(ResourceType, wanted.resource_type),
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": _number_or_any(AclOperation, wanted.operation),
        "permission_type": _number_or_any(Permission, wanted.permission),
    }


def _creation(rule: AclRule) -> Any:
    return CreateAclsRequest.AclCreation(
        resource_type=_number(ResourceType, rule.resource_type),
        resource_name=rule.resource_name,
        resource_pattern_type=_number(PatternType, rule.pattern_type),
        principal=rule.principal,
        host=rule.host,
        operation=_number(AclOperation, rule.operation),
        permission_type=_number(Permission, rule.permission),
    )


def _rule(resource_type: int, name: str, pattern_type: int, entry: Any) -> AclRule:
    return AclRule(
        resource_type=_word(ResourceType(resource_type)),
        resource_name=name,
        pattern_type=_word(PatternType(pattern_type)),
        principal=entry.principal,
        host=entry.host,
        operation=_word(AclOperation(entry.operation)),
        permission=_word(Permission(entry.permission_type)),
    )


def _require_all(results: Iterable[Any]) -> None:
    for result in results:
        if result.error_code == TIMED_OUT:
            raise OutcomeUnknown
        require_ok(result.error_code, result.error_message)


def _word(value: IntEnum) -> str:
    return value.name.lower()


def _number(kind: type[Kind], word: str) -> Kind:
    return kind[word.upper()]


def _number_or_any(kind: type[Kind], word: str) -> int:
    return ANY_NUMBER if word == ANY else int(_number(kind, word))
