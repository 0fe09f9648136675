"""Rights of principals by their instance's ACLs, decided with an index of the rules (KIP-11, KIP-290).

The decisions are those of `brokers.contract.acl_decisions`. An instance may have a thousand rules, and each topic of a
request is checked. Therefore all rules of an instance are indexed once, and from the index the rights of one principal
from one address are computed, in which a resource takes three look-ups. Sets of operations are bit masks, with the
protocol's number of an operation as its bit.
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

# Cached rights of one instance, one for each principal and address; all are dropped when there are more.
CACHED_RIGHTS_MAX: Final = 200
# Cached indexes, one for each instance; all are dropped when there are more.
CACHED_INDEXES_MAX: Final = 5_000

ALL_OPERATIONS: Final = sum(1 << operation for operation in AclOperation if operation is not AclOperation.ALL)
NO_OPERATIONS: Final = 0
# Operations that an open instance allows all users on its cluster while no rule applies to the cluster.
OPEN_CLUSTER: Final = sum(1 << operation for operation in OPEN_CLUSTER_OPERATIONS)
# Bits that a DENY of an operation denies; an ALLOW also allows the operation that it implies.
_DENIED_BITS: Final = {
    operation: ALL_OPERATIONS if operation is AclOperation.ALL else 1 << operation for operation in AclOperation
}
_ALLOWED_BITS: Final = {
    operation: bits | (1 << IMPLIED[operation] if operation in IMPLIED else 0)
    for operation, bits in _DENIED_BITS.items()
}
# Denied and allowed bits.
_Bits = tuple[int, int]
_NO_BITS: Final[_Bits] = (NO_OPERATIONS, NO_OPERATIONS)


class Rights:
    """Unrestricted rights: those of the cluster itself, an instance's owner and its superusers."""

    __slots__ = ()

    is_unrestricted = True

    def operations(self, _resource_type: ResourceType, _name: str) -> int:
        """Returns the operations that are allowed on a resource, as bits."""
        return ALL_OPERATIONS

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return bool(self.operations(resource_type, name) >> operation & 1)

    def allows_any(self, _operation: AclOperation, _resource_type: ResourceType) -> bool:
        """True if the operation may be allowed on some resource of this type (Kafka's `authorizeByResourceType`)."""
        return True


UNRESTRICTED: Final = Rights()


class OpenRights(Rights):
    """Rights of ordinary users in an open instance without rules: everything but the administration of the cluster."""

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
        bits_by_pattern: dict[ResourcePattern, _Bits] = {}
        for pattern, entry in self._rules:
            bits_by_pattern[pattern] = _with_rule(bits_by_pattern.get(pattern, _NO_BITS), entry)
        prefixed: dict[ResourceType, dict[str, _Bits]] = {}
        for pattern, bits in bits_by_pattern.items():
            if pattern.pattern_type is PatternType.LITERAL:
                self._literals[pattern.resource_type, pattern.name] = bits
            else:
                prefixed.setdefault(pattern.resource_type, {})[pattern.name] = bits
        # By resource type, for each prefix of the index: the bits of the prefix and of all shorter ones within it.
        self._prefixes: dict[ResourceType, list[_Bits]] = {
            resource_type: prefixes.summed(prefixed.get(resource_type, {}))
            for resource_type, prefixes in index.prefixes.items()
        }

    def operations(self, resource_type: ResourceType, name: str) -> int:
        index, literals = self._index, self._literals
        key, wildcard = (resource_type, name), (resource_type, WILDCARD)
        denied, allowed = literals.get(key, _NO_BITS)
        more_denied, more_allowed = literals.get(wildcard, _NO_BITS)
        denied |= more_denied
        allowed |= more_allowed
        has_rules = key in index.literals or wildcard in index.literals
        prefixes = index.prefixes.get(resource_type)
        if prefixes is not None:
            at = prefixes.longest_of(name)
            if at >= 0:
                has_rules = True
                more_denied, more_allowed = self._prefixes[resource_type][at]
                denied |= more_denied
                allowed |= more_allowed
        if not has_rules:
            return _open_operations(resource_type) if self._everyone else NO_OPERATIONS
        return allowed & ~denied

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """True if the operation is allowed on some resource of the type, by the rule of Kafka's AclAuthorizer.

        An open instance nearly always has a resource without rules, so only a DENY on all resources denies it there.
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
    """Returns the operations that an open instance allows all users on a resource without rules, as bits."""
    return OPEN_CLUSTER if resource_type is ResourceType.CLUSTER else ALL_OPERATIONS


def _with_rule(bits: _Bits, entry: AclEntry) -> _Bits:
    denied, allowed = bits
    if entry.permission is Permission.DENY:
        return denied | _DENIED_BITS[entry.operation], allowed
    return denied, allowed | _ALLOWED_BITS[entry.operation]


def _is_covered(pattern: ResourcePattern, denied: set[ResourcePattern]) -> bool:
    """True if one of the denied patterns covers all resources of the pattern."""
    if not denied or (pattern.pattern_type is PatternType.LITERAL and pattern.name == WILDCARD):
        return False
    if pattern.pattern_type is PatternType.LITERAL and pattern in denied:
        return True
    return any(
        ResourcePattern(pattern.resource_type, pattern.name[:length], PatternType.PREFIXED) in denied
        for length in range(1, len(pattern.name) + 1)
    )


class _Prefixes:
    """Sorted prefixes of one resource type.

    `_ancestors` has for each prefix the indexes of the prefixes that it begins with, from the shortest to itself.
    """

    __slots__ = ("_ancestors", "names")

    def __init__(self, names: Iterable[str]) -> None:
        self.names = sorted(names)
        self._ancestors: list[tuple[int, ...]] = []
        stack: list[int] = []
        for at, name in enumerate(self.names):
            while stack and not name.startswith(self.names[stack[-1]]):
                stack.pop()
            stack.append(at)
            self._ancestors.append(tuple(stack))

    def longest_of(self, name: str) -> int:
        """Returns the index of the longest prefix of `name`, -1 if there is none. Its other prefixes are within it."""
        names = self.names
        at = bisect_right(names, name) - 1
        if at < 0 or name.startswith(names[at]):
            return at
        # All prefixes of `name` are also prefixes of the last prefix that sorts before it.
        ancestors = self._ancestors[at]
        low, high = 0, len(ancestors) - 1
        while low < high:
            middle = (low + high) // 2
            if name.startswith(names[ancestors[middle]]):
                low = middle + 1
            else:
                high = middle
        return ancestors[low - 1] if low else -1

    def summed(self, bits_by_prefix: Mapping[str, _Bits]) -> list[_Bits]:
        """Returns for each prefix the bits in `bits_by_prefix` of this prefix and of those within it."""
        result: list[_Bits] = []
        for name, ancestors in zip(self.names, self._ancestors, strict=True):
            denied, allowed = bits_by_prefix.get(name, _NO_BITS)
            if len(ancestors) > 1:
                more_denied, more_allowed = result[ancestors[-2]]
                denied, allowed = denied | more_denied, allowed | more_allowed
            result.append((denied, allowed))
        return result


class AclIndex:
    """Index of all rules of one instance."""

    __slots__ = ("_by_principal", "_hosts", "literals", "prefixes")

    def __init__(self, documents: Iterable[AclDocument]) -> None:
        self.literals: set[tuple[ResourceType, str]] = set()
        self._by_principal: dict[str, list[tuple[ResourcePattern, AclEntry]]] = {}
        # Addresses that a rule names; all other addresses have equal rights.
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
        """Returns the rules that apply to a principal from an address."""
        rules = self._by_principal.get(principal, [])
        if principal != EVERYBODY:
            rules = [*rules, *self._by_principal.get(EVERYBODY, ())]
        return [rule for rule in rules if rule[1].host == ANY_HOST or canonical_host(rule[1].host) == host]

    def host_of(self, address: str) -> str:
        """Returns the address in canonical form if a rule names it, else `*`."""
        host = canonical_host(address)
        return host if host in self._hosts else ANY_HOST


class _CachedIndex:
    """Cached index and rights of one instance's rules.

    Rights refer to their index but not the other way round, so that no reference cycle is left to the garbage collector
    when the rules change.
    """

    __slots__ = ("documents", "index", "rights")

    def __init__(self, documents: Mapping[str, AclDocument]) -> None:
        self.documents = documents
        self.index = AclIndex(documents.values())
        self.rights: dict[tuple[str, str, bool], RuledRights] = {}


class AclIndexes:
    """Cache of the indexes of all instances and of the rights computed from them; renewed when the rules change."""

    __slots__ = ("_cached",)

    def __init__(self) -> None:
        self._cached: dict[str, _CachedIndex] = {}

    def rights(
        self, instance_id: str, documents: Mapping[str, AclDocument], user: str, address: str, *, everyone: bool
    ) -> RuledRights:
        """Returns the rights of a user from an address.

        `documents` are the instance's rules; a change of them is recognised by another mapping object. With `everyone`
        all users may use resources without rules.
        """
        cached = self._cached.get(instance_id)
        if cached is None or cached.documents is not documents:
            if cached is None and len(self._cached) >= CACHED_INDEXES_MAX:
                self._cached.clear()
            cached = self._cached[instance_id] = _CachedIndex(documents)
        key = user, cached.index.host_of(address), everyone
        rights = cached.rights.get(key)
        if rights is None:
            if len(cached.rights) >= CACHED_RIGHTS_MAX:
                cached.rights.clear()
            rights = RuledRights(cached.index, f"{USER_PREFIX}{user}", key[1], everyone=everyone)
            cached.rights[key] = rights
        return rights
