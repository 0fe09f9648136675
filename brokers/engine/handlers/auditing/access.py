"""Audit descriptions of changes to users, access rules and client quotas. Password verifiers are never included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any, Final

from brokers.contract import paths
from brokers.contract.acls import AclEntry, AclOperation, PatternType, Permission, ResourcePattern, ResourceType
from brokers.contract.audit import AuditItem
from brokers.contract.users import MECHANISM_NAMES, UserDocument
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.handlers.auditing.changes import (
    DESCRIBED_ITEMS_MAX,
    AuditedRequest,
    Change,
    ItemResult,
    difference,
    error_of,
)
from brokers.engine.handlers.auditing.topics_and_groups import pair_with_results
from brokers.engine.handlers.auth.acls import rule_of
from brokers.engine.handlers.configs.client_quotas import stored_entity
from brokers.engine.handlers.topics.topics import ResourceError
from brokers.engine.protocol.messages.acls import AclCreation, DeleteAclsFilter, DeleteAclsMatchingAcl
from brokers.engine.protocol.messages.quotas import QuotaAlteration

USER: Final = "user"
ACL: Final = "acl"
QUOTA: Final = "quota"
# Stands for the default entity in the name of a quota.
_DEFAULT_NAME: Final = "<default>"

# -- users ------------------------------------------------------------------------------------------------------------


def describe_user_alteration(audited: AuditedRequest) -> Change | None:
    """Describes an AlterUserScramCredentials."""
    request = audited.request
    upserted: dict[str, list[int]] = {}
    for upsertion in islice(request.upsertions, DESCRIBED_ITEMS_MAX):
        upserted.setdefault(upsertion.name, []).append(upsertion.mechanism)
    if audited.response is None:
        alterations = chain(request.deletions, request.upsertions)
        names = dict.fromkeys(alteration.name for alteration in islice(alterations, DESCRIBED_ITEMS_MAX))
        item_errors: Iterable[tuple[str, int]] = [(name, error_of(None)) for name in names]
    else:
        item_errors = ((result.user, result.error_code) for result in audited.response.results)
    results = (
        ItemResult(error, name, partial(_user_altered, audited, name, upserted.get(name, ()), error))
        for name, error in item_errors
    )
    total = (
        len(request.deletions) + len(request.upsertions) if audited.response is None else len(audited.response.results)
    )
    return Change("user.credentials_changed", USER, total, results)


def _user_altered(audited: AuditedRequest, name: str, upserted: Iterable[int], error: int) -> AuditItem:
    before, after = (
        _user(audited.image, audited, name),
        _user(audited.context.services.metadata.current.image, audited, name),
    )
    changed = [MECHANISM_NAMES.get(mechanism, str(mechanism)) for mechanism in upserted]
    action = "user.credentials_changed"
    if not error and before is None:
        action = "user.created"
    elif not error and after is None and not changed:
        action = "user.deleted"
    values: dict[str, Any] = {} if after is None else {"mechanisms": _mechanisms(after)}
    if changed:
        values["set"] = changed
    return AuditItem(
        action=action,
        kind=USER,
        name=name,
        before=None if before is None else {"mechanisms": _mechanisms(before)},
        after=values or None,
    )


def _user(image: ClusterImage, audited: AuditedRequest, name: str) -> UserDocument | None:
    return image.users.of_instance(audited.context.view.instance_id or "").get(paths.sanitise(name))


def _mechanisms(user: UserDocument) -> list[str]:
    numbers = {verifier.mechanism for secret in user.secrets for verifier in secret.verifiers}
    return [MECHANISM_NAMES[number] for number in sorted(numbers) if number in MECHANISM_NAMES]


# -- access rules -----------------------------------------------------------------------------------------------------


def describe_acl_creation(audited: AuditedRequest) -> Change | None:
    """Describes a CreateAcls, without entries that existed before."""
    creations = audited.request.creations
    pairs = pair_with_results(creations, None if audited.response is None else audited.response.results)
    results = (
        ItemResult(error_of(result), creation.resource_name, partial(_acl_created, audited, creation))
        for creation, result in pairs
    )
    return Change("acl.created", ACL, len(creations), results)


def _acl_created(audited: AuditedRequest, creation: AclCreation) -> AuditItem | None:
    try:
        pattern, entry = rule_of(creation)
    except ValueError:  # no such rule can have been created
        return None
    present = audited.image.acls.of_instance(audited.context.view.instance_id or "").get(pattern.node_name)
    if present is not None and entry in present.entries:
        return None
    return AuditItem(action="acl.created", kind=ACL, name=_resource(pattern), after=_rule(pattern, entry))


def describe_acl_deletion(audited: AuditedRequest) -> Change | None:
    """Describes a DeleteAcls."""
    if audited.response is None:
        filters = audited.request.filters
        unknown_results = (
            ItemResult(error_of(None), acl_filter.resource_name_filter or "", partial(_filter_asked, acl_filter))
            for acl_filter in filters
        )
        return Change("acl.deleted", ACL, len(filters), unknown_results)
    results = audited.response.filter_results
    total = sum(len(result.matching_acls) or 1 for result in results)
    return Change("acl.deleted", ACL, total, _acl_results(results))


def _acl_results(results: Iterable[Any]) -> Iterator[ItemResult]:
    for result in results:
        if result.error_code or not result.matching_acls:
            yield ItemResult(result.error_code, "", lambda: None)
        for acl in result.matching_acls:
            yield ItemResult(acl.error_code, acl.resource_name, partial(_acl_deleted, acl))


def _acl_deleted(acl: DeleteAclsMatchingAcl) -> AuditItem:
    pattern = ResourcePattern(ResourceType(acl.resource_type), acl.resource_name, PatternType(acl.pattern_type))
    entry = AclEntry(acl.principal, acl.host, AclOperation(acl.operation), Permission(acl.permission_type))
    return AuditItem(action="acl.deleted", kind=ACL, name=_resource(pattern), before=_rule(pattern, entry))


def _filter_asked(acl_filter: DeleteAclsFilter) -> AuditItem:
    """Describes a filter whose matching rules are unknown, because the request ended without a response."""
    name = acl_filter.resource_name_filter
    before = {"resource_name": name, "principal": acl_filter.principal_filter, "host": acl_filter.host_filter}
    return AuditItem(action="acl.deleted", kind=ACL, name=name or "", before=before)


def _resource(pattern: ResourcePattern) -> str:
    return f"{_word(pattern.resource_type)}/{pattern.name}"


def _rule(pattern: ResourcePattern, entry: AclEntry) -> dict[str, Any]:
    """Describes a rule in the terms of the control plane's audit rows."""
    return {
        "resource_type": _word(pattern.resource_type),
        "resource_name": pattern.name,
        "pattern_type": _word(pattern.pattern_type),
        "principal": entry.principal,
        "host": entry.host,
        "operation": _word(entry.operation),
        "permission": _word(entry.permission),
    }


def _word(value: ResourceType | PatternType | AclOperation | Permission) -> str:
    return value.name.lower()


# -- client quotas ----------------------------------------------------------------------------------------------------


def describe_quota_alteration(audited: AuditedRequest) -> Change | None:
    """Describes an AlterClientQuotas; None if it only validates."""
    request = audited.request
    if request.validate_only:
        return None
    pairs = pair_with_results(request.entries, None if audited.response is None else audited.response.entries)
    results = (
        ItemResult(error_of(result), _entity_name(entry), partial(_quota_altered, audited, entry))
        for entry, result in pairs
    )
    return Change("quota.set", QUOTA, len(request.entries), results)


def _quota_altered(audited: AuditedRequest, entry: QuotaAlteration) -> AuditItem | None:
    try:
        entity = stored_entity(entry.entity)
    except ResourceError:  # no such quota can have been set
        return None
    limits = audited.image.quotas.limits(audited.context.view.instance_id or "", entity)
    after: dict[str, Any] = dict(limits)
    for operation in entry.ops:
        if operation.remove:
            after.pop(operation.key, None)
        else:
            after[operation.key] = operation.value
    was, is_now = difference(limits, after)
    if not was and not is_now:
        return None
    return AuditItem(
        action="quota.set" if after else "quota.removed",
        kind=QUOTA,
        name=_entity_name(entry),
        before=was or None,
        after=is_now if after else None,
    )


def _entity_name(entry: QuotaAlteration) -> str:
    """Returns the name of a quota as the control plane writes it, for example `users/alice/clients/<default>`."""
    named = {part.entity_type: part.entity_name for part in entry.entity}
    parts = []
    for kind, shown in (("user", "users"), ("client-id", "clients"), ("ip", "ips")):
        if kind in named:
            name = named[kind]
            parts += [shown, _DEFAULT_NAME if name is None else name]
    return "/".join(parts)
