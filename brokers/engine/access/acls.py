"""What a principal may do by its instance's ACLs, answered from an index of them (KIP-11, KIP-290).

The rules are those of `contract.acl_decisions`. An instance may have a thousand, and a broker asks about each topic of
a request: so an index is made once of all rules of an instance, and of it the rights of one principal from one address,
in which a resource is three look-ups. Operations are bits, by the protocol's numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Final

from brokers.contract.acl_decisions import IMPLIED, OPEN_CLUSTER_OPERATIONS, canonical_host, is_open_without_rules
from brokers.contract.acls import (
    ANY_HOST,
    EVERYBODY,
    USER_PREFIX,
    WILDCARD,
    AclDocument,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

# Of one instance, rights that are kept: principals times addresses that rules name. Beyond, all are made anew.
RIGHTS_KEPT_MAX: Final = 200
# Instances whose index is kept.
INDEXES_KEPT_MAX: Final = 5_000

EVERYTHING: Final = sum(1 << operation for operation in AclOperation if operation is not AclOperation.ALL)
NOTHING: Final = 0
# Operations that an open instance allows everybody on its cluster while no rule is about it.
OPEN_CLUSTER: Final = sum(1 << operation for operation in OPEN_CLUSTER_OPERATIONS)
# What a rule about an operation denies, and what it allows.
_DENIED_BITS: Final = {
    operation: EVERYTHING if operation is AclOperation.ALL else 1 << operation for operation in AclOperation
}
_ALLOWED_BITS: Final = {
    operation: bits | (1 << IMPLIED[operation] if operation in IMPLIED else 0)
    for operation, bits in _DENIED_BITS.items()
}
# Denied and allowed bits.
_Bits = tuple[int, int]
_NO_BITS: Final[_Bits] = (NOTHING, NOTHING)


class Rights:
    """Unrestricted rights: those of the cluster itself, an instance's owner and its superusers."""

    __slots__ = ()

    is_unrestricted = True

    def operations(self, _resource_type: ResourceType, _name: str) -> int:
        """What may be done to a resource, as bits."""
        return EVERYTHING

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return bool(self.operations(resource_type, name) >> operation & 1)

    def allows_any(self, _operation: AclOperation, _resource_type: ResourceType) -> bool:
        """Whether there may be a resource of this kind to which it may be done (`authorizeByResourceType`)."""
        return True


UNRESTRICTED: Final = Rights()


class OpenRights(Rights):
    """Rights of every other user in an open instance that has no rule: everything but to administer the cluster."""

    __slots__ = ()

    is_unrestricted = False

    def operations(self, resource_type: ResourceType, _name: str) -> int:
        return _open_operations(resource_type)

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        return is_open_without_rules(resource_type, operation)


OPEN: Final = OpenRights()


class RuledRights(Rights):
    """Rights of one principal from one address, looked up in an index of the instance's rules."""

    __slots__ = ("__weakref__", "_everyone", "_index", "_literals", "_prefixes", "_rules")

    is_unrestricted = False

    def __init__(self, index: AclIndex, principal: str, host: str, *, everyone: bool) -> None:
        self._index = index
        self._everyone = everyone
        self._rules = index.rules_about(principal, host)
        self._literals: dict[tuple[ResourceType, str], _Bits] = {}
        own: dict[ResourcePattern, _Bits] = {}
        for pattern, entry in self._rules:
            own[pattern] = _with(own.get(pattern, _NO_BITS), entry)
        prefixed: dict[ResourceType, dict[str, _Bits]] = {}
        for pattern, bits in own.items():
            if pattern.pattern_type is PatternType.LITERAL:
                self._literals[pattern.resource_type, pattern.name] = bits
            else:
                prefixed.setdefault(pattern.resource_type, {})[pattern.name] = bits
        # By kind, for each prefix of the index: what it and the shorter ones within it say together.
        self._prefixes: dict[ResourceType, list[_Bits]] = {
            resource_type: prefixes.summed(prefixed.get(resource_type, {}))
            for resource_type, prefixes in index.prefixes.items()
        }

    def operations(self, resource_type: ResourceType, name: str) -> int:
        index, literals = self._index, self._literals
        key, anything = (resource_type, name), (resource_type, WILDCARD)
        denied, allowed = literals.get(key, _NO_BITS)
        more_denied, more_allowed = literals.get(anything, _NO_BITS)
        denied |= more_denied
        allowed |= more_allowed
        has_rules = key in index.literals or anything in index.literals
        prefixes = index.prefixes.get(resource_type)
        if prefixes is not None:
            at = prefixes.longest_of(name)
            if at >= 0:
                has_rules = True
                more_denied, more_allowed = self._prefixes[resource_type][at]
                denied |= more_denied
                allowed |= more_allowed
        if not has_rules:
            return _open_operations(resource_type) if self._everyone else NOTHING
        return allowed & ~denied

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """True if the principal may do this to some resource of the type (AclAuthorizer's rule).

        An open instance nearly always has a resource without rules, so there only a DENY on all of them counts.
        """
        granted: list[ResourcePattern] = []
        denied: set[ResourcePattern] = set()
        for pattern, entry in self._rules:
            if pattern.resource_type is resource_type and entry.operation in (operation, AclOperation.ALL):
                if entry.permission is Permission.DENY:
                    denied.add(pattern)
                else:
                    granted.append(pattern)
        if ResourcePattern(resource_type, WILDCARD, PatternType.LITERAL) in denied:
            return False
        if self._everyone and is_open_without_rules(resource_type, operation):
            return True
        return any(not _is_covered(pattern, denied) for pattern in granted)


def _open_operations(resource_type: ResourceType) -> int:
    """Operations that an open instance allows everybody on a resource without rules, as bits."""
    return OPEN_CLUSTER if resource_type is ResourceType.CLUSTER else EVERYTHING


def _with(bits: _Bits, entry: AclEntry) -> _Bits:
    denied, allowed = bits
    if entry.permission is Permission.DENY:
        return denied | _DENIED_BITS[entry.operation], allowed
    return denied, allowed | _ALLOWED_BITS[entry.operation]


def _is_covered(pattern: ResourcePattern, denied: set[ResourcePattern]) -> bool:
    """Whether all that it names is denied by one of these."""
    if not denied or (pattern.pattern_type is PatternType.LITERAL and pattern.name == WILDCARD):
        return False
    if pattern.pattern_type is PatternType.LITERAL and pattern in denied:
        return True
    return any(
        ResourcePattern(pattern.resource_type, pattern.name[:length], PatternType.PREFIXED) in denied
        for length in range(1, len(pattern.name) + 1)
    )


class _Prefixes:
    """Prefixes in order. `_within` has for each the shorter ones that it begins with, from the shortest to itself."""

    __slots__ = ("_within", "names")

    def __init__(self, names: Iterable[str]) -> None:
        self.names = sorted(names)
        self._within: list[tuple[int, ...]] = []
        open_at: list[int] = []
        for at, name in enumerate(self.names):
            while open_at and not name.startswith(self.names[open_at[-1]]):
                open_at.pop()
            open_at.append(at)
            self._within.append(tuple(open_at))

    def longest_of(self, name: str) -> int:
        """Where the longest prefix of `name` is, -1 if there is none. All others of its prefixes are within it."""
        names = self.names
        at = bisect_right(names, name) - 1
        if at < 0 or name.startswith(names[at]):
            return at
        # Whatever `name` begins with, the last one before it in order begins with as well.
        within = self._within[at]
        low, high = 0, len(within) - 1
        while low < high:
            middle = (low + high) // 2
            if name.startswith(names[within[middle]]):
                low = middle + 1
            else:
                high = middle
        return within[low - 1] if low else -1

    def summed(self, own: Mapping[str, _Bits]) -> list[_Bits]:
        """For each prefix what `own` says of it and of those within it."""
        result: list[_Bits] = []
        for name, within in zip(self.names, self._within, strict=True):
            denied, allowed = own.get(name, _NO_BITS)
            if len(within) > 1:
                more_denied, more_allowed = result[within[-2]]
                denied, allowed = denied | more_denied, allowed | more_allowed
            result.append((denied, allowed))
        return result


class AclIndex:
    """Of all rules of one instance."""

    __slots__ = ("_by_principal", "_hosts", "literals", "prefixes")

    def __init__(self, documents: Iterable[AclDocument]) -> None:
        self.literals: set[tuple[ResourceType, str]] = set()
        self._by_principal: dict[str, list[tuple[ResourcePattern, AclEntry]]] = {}
        # Named by any rule; all other addresses are alike.
        self._hosts: set[str] = set()
        prefixed: dict[ResourceType, set[str]] = {}
        for document in documents:
            pattern = document.pattern
            if pattern.pattern_type is PatternType.LITERAL:
                self.literals.add((pattern.resource_type, pattern.name))
            else:
                prefixed.setdefault(pattern.resource_type, set()).add(pattern.name)
            for entry in document.entries:
                self._by_principal.setdefault(entry.principal, []).append((pattern, entry))
                if entry.host != ANY_HOST:
                    self._hosts.add(canonical_host(entry.host))
        self.prefixes = {resource_type: _Prefixes(names) for resource_type, names in prefixed.items()}

    def rules_about(self, principal: str, host: str) -> list[tuple[ResourcePattern, AclEntry]]:
        """Those that are for this principal from this address."""
        rules = self._by_principal.get(principal, [])
        if principal != EVERYBODY:
            rules = [*rules, *self._by_principal.get(EVERYBODY, ())]
        return [rule for rule in rules if rule[1].host == ANY_HOST or canonical_host(rule[1].host) == host]

    def host_of(self, address: str) -> str:
        """What rules tell an address by: itself, or `*` if none names it."""
        host = canonical_host(address)
        return host if host in self._hosts else ANY_HOST


class _Kept:
    """What was made of the rules of one instance. Rights refer to their index, which knows nothing of them: nothing is
    left to the garbage collector when the rules are others.
    """

    __slots__ = ("documents", "index", "rights")

    def __init__(self, documents: Mapping[str, AclDocument]) -> None:
        self.documents = documents
        self.index = AclIndex(documents.values())
        self.rights: dict[tuple[str, str, bool], RuledRights] = {}


class AclIndexes:
    """The index of each instance, made again when its rules are others, with the rights that were asked for."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def rights(
        self, instance_id: str, documents: Mapping[str, AclDocument], user: str, address: str, *, everyone: bool
    ) -> RuledRights:
        """Of a user, by its name alone, from an address. `documents` is the same mapping as long as nothing of the
        instance changes; `everyone`: all may use what has no rules.
        """
        kept = self._kept.get(instance_id)
        if kept is None or kept.documents is not documents:
            if kept is None and len(self._kept) >= INDEXES_KEPT_MAX:
                self._kept.clear()
            kept = self._kept[instance_id] = _Kept(documents)
        key = user, kept.index.host_of(address), everyone
        rights = kept.rights.get(key)
        if rights is None:
            if len(kept.rights) >= RIGHTS_KEPT_MAX:
                kept.rights.clear()
            rights = RuledRights(kept.index, f"{USER_PREFIX}{user}", key[1], everyone=everyone)
            kept.rights[key] = rights
        return rights
