"""Authorization by the ACLs of an instance, with the rule that decides, like Apache Kafka's AclAuthorizer. Pure.

The rules are examined one after the other, which suffices for a single access. Brokers use an index of the same rules
(`brokers.engine.access.acls`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

from brokers.contract.acls import (
    ANY_HOST,
    EVERYBODY,
    WILDCARD,
    AclDocument,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

# Number of cached canonical forms of addresses.
HOSTS_KEPT_MAX: Final = 8_192
# The usual notation of IPv4, recognised without `ipaddress`, which takes ten times as long.
_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_PLAIN_V4: Final = re.compile(rf"{_OCTET}\.{_OCTET}\.{_OCTET}\.{_OCTET}")
# Operations that an ALLOW of another operation implies; a DENY implies nothing (KIP-11, KIP-227).
_ALSO_DESCRIBES: Final = (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
IMPLIED: Final[Mapping[AclOperation, AclOperation]] = {
    **dict.fromkeys(_ALSO_DESCRIBES, AclOperation.DESCRIBE),
    AclOperation.ALTER_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
}


# Operations on the cluster that an open instance (`allow_everyone_if_no_acl`) allows all users while no rule applies to
# the cluster: stock clients need them to create a topic, to write idempotently and to list groups and configuration.
# The other operations administer the instance (users, rules, quotas, configuration of brokers) and always need a rule.
OPEN_CLUSTER_OPERATIONS: Final = frozenset(
    {
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    }
)


class DecisionReason(Enum):
    """Reason of a decision."""

    SUPERUSER = "superuser"
    ALLOWED_BY_RULE = "allowed_by_rule"
    DENIED_BY_RULE = "denied_by_rule"
    # The resource has rules, and none of them allows the operation.
    NOT_ALLOWED = "not_allowed"
    # The resource has no rule, so `allow_everyone_if_no_acl` decides, except about the administration of the cluster.
    NO_RULES_ALLOWED = "no_rules_allowed"
    NO_RULES_DENIED = "no_rules_denied"
    # The instance is open, but the administration of the cluster needs a rule.
    CLUSTER_NEEDS_RULE = "cluster_needs_rule"


@dataclass(frozen=True, slots=True)
class Access:
    """An access to be decided: an operation of `principal` (as `User:alice`) from the address `host` on a resource."""

    principal: str
    host: str
    operation: AclOperation
    resource_type: ResourceType
    name: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision about an access; `pattern` and `entry` are the deciding rule, None without one."""

    is_allowed: bool
    reason: DecisionReason
    pattern: ResourcePattern | None = None
    entry: AclEntry | None = None


def authorize(
    documents: Iterable[AclDocument], access: Access, *, is_superuser: bool, allow_everyone_if_no_acl: bool
) -> Decision:
    """Decides one access by the rules of an instance.

    DENY takes precedence over ALLOW. If several rules decide alike, the first one in order is returned.
    """
    if is_superuser:
        return Decision(True, DecisionReason.SUPERUSER)
    applicable = [
        document for document in documents if applies_to_resource(document.pattern, access.resource_type, access.name)
    ]
    if not applicable:
        return _decide_without_rules(access, is_open=allow_everyone_if_no_acl)
    host = canonical_host(access.host)
    rules = sorted(
        (document.pattern, entry)
        for document in applicable
        for entry in document.entries
        if applies_to_principal(entry, access.principal, host)
    )
    for pattern, entry in rules:
        if entry.permission is Permission.DENY and entry.operation in (AclOperation.ALL, access.operation):
            return Decision(False, DecisionReason.DENIED_BY_RULE, pattern, entry)
    for pattern, entry in rules:
        if entry.permission is Permission.ALLOW and _allows(entry.operation, access.operation):
            return Decision(True, DecisionReason.ALLOWED_BY_RULE, pattern, entry)
    return Decision(False, DecisionReason.NOT_ALLOWED)


def is_open_without_rules(resource_type: ResourceType, operation: AclOperation) -> bool:
    """True if an open instance allows all users the operation on a resource that has no rule."""
    return resource_type is not ResourceType.CLUSTER or operation in OPEN_CLUSTER_OPERATIONS


def _decide_without_rules(access: Access, *, is_open: bool) -> Decision:
    if not is_open:
        return Decision(False, DecisionReason.NO_RULES_DENIED)
    if not is_open_without_rules(access.resource_type, access.operation):
        return Decision(False, DecisionReason.CLUSTER_NEEDS_RULE)
    return Decision(True, DecisionReason.NO_RULES_ALLOWED)


def applies_to_resource(pattern: ResourcePattern, resource_type: ResourceType, name: str) -> bool:
    """True if a pattern applies to a resource."""
    if pattern.resource_type is not resource_type:
        return False
    if pattern.pattern_type is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, WILDCARD)


def applies_to_principal(entry: AclEntry, principal: str, canonical: str) -> bool:
    """True if a rule applies to a principal from an address, which is in canonical form (`canonical_host`)."""
    if entry.principal not in (principal, EVERYBODY):
        return False
    return entry.host == ANY_HOST or canonical_host(entry.host) == canonical


def canonical_host(host: str) -> str:
    """Returns the canonical form of an address, for comparison. A string that is no address is returned unchanged."""
    return host if _PLAIN_V4.fullmatch(host) else _parse_canonical_host(host)


@lru_cache(maxsize=HOSTS_KEPT_MAX)
def _parse_canonical_host(host: str) -> str:
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def _allows(granted: AclOperation, requested: AclOperation) -> bool:
    return granted in (AclOperation.ALL, requested) or IMPLIED.get(granted) is requested
