"""Who may do what by the ACLs of an instance, and which rule says so: Apache Kafka's AclAuthorizer, for one instance.
Pure.

Looks at one rule after the other, for whoever asks about a single access. Brokers ask an index of the same rules
(`engine.access.acls`).
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

# Addresses of rules that are known in the form in which they are compared.
HOSTS_KEPT_MAX: Final = 8_192
# How nearly all addresses are written; `ipaddress` takes ten times as long.
_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_PLAIN_V4: Final = re.compile(rf"{_OCTET}\.{_OCTET}\.{_OCTET}\.{_OCTET}")
# Who is allowed one of these is allowed the others; of what is denied only that itself is (KIP-11, KIP-227).
_ALSO_DESCRIBES: Final = (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
IMPLIED: Final[Mapping[AclOperation, AclOperation]] = {
    **dict.fromkeys(_ALSO_DESCRIBES, AclOperation.DESCRIBE),
    AclOperation.ALTER_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
}


# Operations on the cluster of an open instance (`allow_everyone_if_no_acl`) that everybody may do while the cluster has
# no rule: stock clients need them to create a topic, to write idempotently and to list groups and configuration. The
# others administer the instance (users, rules, quotas, configuration of brokers), and need a rule in every instance.
OPEN_CLUSTER_OPERATIONS: Final = frozenset(
    {
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    }
)


class Reason(Enum):
    """Why an access is allowed or not."""

    SUPERUSER = "superuser"
    ALLOWED_BY_RULE = "allowed_by_rule"
    DENIED_BY_RULE = "denied_by_rule"
    # The resource has rules, and none of them allows this.
    NOT_ALLOWED = "not_allowed"
    # The resource has no rule: the instance's `allow_everyone_if_no_acl` decides, except for administering the cluster.
    NO_RULES_ALLOWED = "no_rules_allowed"
    NO_RULES_DENIED = "no_rules_denied"
    # The instance is open, but administering the cluster takes a rule all the same.
    CLUSTER_NEEDS_RULE = "cluster_needs_rule"


@dataclass(frozen=True, slots=True)
class Access:
    """What is asked: may `principal` (as `User:alice`), coming from the address `host`, do this to a resource?"""

    principal: str
    host: str
    operation: AclOperation
    resource_type: ResourceType
    name: str


@dataclass(frozen=True, slots=True)
class Decision:
    """`pattern` and `entry` are the rule that decided, where one did."""

    is_allowed: bool
    reason: Reason
    pattern: ResourcePattern | None = None
    entry: AclEntry | None = None


def authorize(
    documents: Iterable[AclDocument], access: Access, *, is_superuser: bool, allow_everyone_if_no_acl: bool
) -> Decision:
    """Decision of an instance's rules about one access.

    DENY takes precedence over ALLOW. The first rule in order is named where several decide alike.
    """
    if is_superuser:
        return Decision(True, Reason.SUPERUSER)
    about = [document for document in documents if concerns(document.pattern, access.resource_type, access.name)]
    if not about:
        return _without_rules(access, is_open=allow_everyone_if_no_acl)
    host = canonical_host(access.host)
    rules = sorted(
        (document.pattern, entry)
        for document in about
        for entry in document.entries
        if speaks_of(entry, access.principal, host)
    )
    for pattern, entry in rules:
        if entry.permission is Permission.DENY and entry.operation in (AclOperation.ALL, access.operation):
            return Decision(False, Reason.DENIED_BY_RULE, pattern, entry)
    for pattern, entry in rules:
        if entry.permission is Permission.ALLOW and _allows(entry.operation, access.operation):
            return Decision(True, Reason.ALLOWED_BY_RULE, pattern, entry)
    return Decision(False, Reason.NOT_ALLOWED)


def is_open_without_rules(resource_type: ResourceType, operation: AclOperation) -> bool:
    """True if an open instance lets everybody do this to a resource that has no rule."""
    return resource_type is not ResourceType.CLUSTER or operation in OPEN_CLUSTER_OPERATIONS


def _without_rules(access: Access, *, is_open: bool) -> Decision:
    if not is_open:
        return Decision(False, Reason.NO_RULES_DENIED)
    if not is_open_without_rules(access.resource_type, access.operation):
        return Decision(False, Reason.CLUSTER_NEEDS_RULE)
    return Decision(True, Reason.NO_RULES_ALLOWED)


def concerns(pattern: ResourcePattern, resource_type: ResourceType, name: str) -> bool:
    """Whether a resource is one of those that the pattern names."""
    if pattern.resource_type is not resource_type:
        return False
    if pattern.pattern_type is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, WILDCARD)


def speaks_of(entry: AclEntry, principal: str, canonical: str) -> bool:
    """Whether a rule is about this principal from this address (`canonical_host`)."""
    if entry.principal not in (principal, EVERYBODY):
        return False
    return entry.host == ANY_HOST or canonical_host(entry.host) == canonical


def canonical_host(host: str) -> str:
    """An address as it is compared. What is no address stays as it is, and is nobody's."""
    return host if _PLAIN_V4.fullmatch(host) else _canonical(host)


@lru_cache(maxsize=HOSTS_KEPT_MAX)
def _canonical(host: str) -> str:
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def _allows(granted: AclOperation, asked: AclOperation) -> bool:
    return granted in (AclOperation.ALL, asked) or IMPLIED.get(granted) is asked
