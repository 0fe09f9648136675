"""The index of an instance's ACLs decides as a linear scan of the rules does, at a bounded cost."""

from __future__ import annotations

import gc
from itertools import product
from time import process_time
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.contract.acl_decisions import Access, authorize
from brokers.contract.acls import (
    CLUSTER_NAME,
    ENTRIES_MAX,
    AclDocument,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from brokers.engine.access.acls import CACHED_RIGHTS_MAX, OPEN, UNRESTRICTED, AclIndex, AclIndexes, RuledRights

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
OPERATIONS = [operation for operation in AclOperation if operation is not AclOperation.ALL]
USERS, HOSTS = ("a", "b"), ("10.0.0.1", "::1")
# Deeply nested names, with names that sort between a prefix and the names that begin with it.
NAMES = ("a", "aa", "aaa", "aab", "ab", "aba", "b", "a.b", "ā", "b*", "zz")

entries = st.builds(
    AclEntry,
    st.sampled_from(["User:a", "User:b", "User:*", "Group:a"]),
    st.sampled_from(["*", "10.0.0.1", "0:0:0:0:0:0:0:1", "nowhere"]),
    st.sampled_from(list(AclOperation)),
    st.sampled_from(list(Permission)),
)
patterns = st.builds(
    ResourcePattern,
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from([*NAMES, "*"]),
    st.sampled_from(list(PatternType)),
)
documents = st.dictionaries(patterns, st.frozensets(entries, min_size=1, max_size=4), max_size=12).map(
    lambda by_pattern: [AclDocument(pattern=pattern, entries=every) for pattern, every in by_pattern.items()]
)


def naive(given: list[AclDocument], user: str, host: str, operation: AclOperation, name: str, everyone: bool) -> bool:
    """Decide by a linear scan, written from Kafka's documentation alone."""
    about = [
        entry
        for document in given
        if document.pattern.resource_type is TOPIC
        and (
            name.startswith(document.pattern.name)
            if document.pattern.pattern_type is PatternType.PREFIXED
            else document.pattern.name in (name, "*")
        )
        for entry in document.entries
    ]
    if not about:
        return everyone
    ours = [
        entry
        for entry in about
        if entry.principal in (f"User:{user}", "User:*")
        and (entry.host in ("*", host) or (host, entry.host) == ("::1", "0:0:0:0:0:0:0:1"))
    ]
    denied = {entry.operation.name for entry in ours if entry.permission is Permission.DENY}
    allowed = {entry.operation.name for entry in ours if entry.permission is Permission.ALLOW}
    implied = {
        "DESCRIBE": {"READ", "WRITE", "DELETE", "ALTER"},
        "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"},
    }.get(operation.name, set())
    wanted = {operation.name, "ALL"}
    return not denied & wanted and bool(allowed & (wanted | implied))


@given(documents, st.booleans())
def test_index_rules_and_documentation_agree(given: list[AclDocument], everyone: bool) -> None:
    index = AclIndex(given)
    for user, host in product(USERS, HOSTS):
        rights = RuledRights(index, f"User:{user}", index.host_of(host), everyone=everyone)
        for operation, name in product(OPERATIONS, NAMES):
            access = Access(f"User:{user}", host, operation, TOPIC, name)
            decision = authorize(given, access, is_superuser=False, allow_everyone_if_no_acl=everyone)
            expected = naive(given, user, host, operation, name, everyone)
            assert (rights.allows(operation, TOPIC, name), decision.is_allowed) == (expected, expected), access


@given(documents, st.booleans())
def test_a_user_with_a_right_to_some_resource_is_never_denied_a_right_to_any(
    given: list[AclDocument], everyone: bool
) -> None:
    """The answer of `allows_any` may be yes although every possible name is denied one by one, as in AclAuthorizer;
    it is never no while a name is allowed.
    """
    rights = RuledRights(AclIndex(given), "User:a", HOSTS[0], everyone=everyone)
    names = {*NAMES, *(document.pattern.name for document in given), "nothing-is-about-this"} - {"*"}
    if any(rights.allows(AclOperation.WRITE, TOPIC, name) for name in names):
        assert rights.allows_any(AclOperation.WRITE, TOPIC)


@given(documents, st.booleans(), st.booleans())
def test_index_and_rules_agree_about_the_cluster(given: list[AclDocument], everyone: bool, has_rule: bool) -> None:
    """The rules are about topics and groups, in half of the cases with one about the cluster."""
    if has_rule:
        pattern = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)
        describe = AclEntry("User:a", "*", AclOperation.DESCRIBE, Permission.ALLOW)
        given = [*given, AclDocument(pattern=pattern, entries=frozenset({describe}))]
    for user, operation in product(USERS, OPERATIONS):
        rights = RuledRights(AclIndex(given), f"User:{user}", "*", everyone=everyone)
        access = Access(f"User:{user}", HOSTS[0], operation, ResourceType.CLUSTER, CLUSTER_NAME)
        decision = authorize(given, access, is_superuser=False, allow_everyone_if_no_acl=everyone)
        assert rights.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME) is decision.is_allowed, access
        assert rights.allows_any(operation, ResourceType.CLUSTER) or not decision.is_allowed, access
        if not given and everyone:
            assert OPEN.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME) is decision.is_allowed
            assert OPEN.allows(operation, TOPIC, "a") and OPEN.allows_any(operation, TOPIC)


def entry(permission: Permission, principal: str = "User:a", operation: AclOperation = AclOperation.WRITE) -> AclEntry:
    return AclEntry(principal, "*", operation, permission)


def rule(name: str, *of: AclEntry, prefixed: bool = False) -> AclDocument:
    kind = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return AclDocument(pattern=ResourcePattern(TOPIC, name, kind), entries=frozenset(of))


ALLOW, DENY = entry(Permission.ALLOW), entry(Permission.DENY)


@pytest.mark.parametrize(
    ("given", "everyone", "may"),
    [
        ([], True, True),
        ([], False, False),
        ([rule("x", ALLOW)], False, True),
        ([rule("x", entry(Permission.ALLOW, "User:b"))], False, False),
        ([rule("x", entry(Permission.ALLOW, operation=AclOperation.READ))], False, False),
        ([rule("x", entry(Permission.ALLOW, "User:*", AclOperation.ALL))], False, True),
        ([rule("x", ALLOW, DENY)], False, False),
        ([rule("x", DENY)], True, True),
        ([rule("*", DENY), rule("x", ALLOW)], True, False),
        ([rule("*", ALLOW), rule("x", DENY, prefixed=True)], False, True),
        ([rule("xy", ALLOW), rule("x", DENY, prefixed=True)], False, False),
        ([rule("xy", ALLOW, prefixed=True), rule("x", DENY, prefixed=True)], False, False),
        ([rule("x", ALLOW, prefixed=True), rule("xy", DENY, prefixed=True)], False, True),
    ],
)
def test_the_right_to_write_to_some_topic_follows_acl_authorizer(
    given: list[AclDocument], everyone: bool, may: bool
) -> None:
    """The cases are those of AclAuthorizerTest for authorizeByResourceType (KIP-679)."""
    rights = RuledRights(AclIndex(given), "User:a", "10.0.0.1", everyone=everyone)
    assert rights.allows_any(AclOperation.WRITE, TOPIC) is may


def test_an_unrestricted_user_may_do_everything() -> None:
    assert all(UNRESTRICTED.allows(operation, TOPIC, "x") for operation in OPERATIONS)
    assert UNRESTRICTED.allows_any(AclOperation.WRITE, TOPIC)


def test_rights_are_made_again_only_when_the_rules_are_others() -> None:
    indexes = AclIndexes()
    rules = {"n": rule("x", ALLOW, AclEntry("User:a", "10.0.0.3", AclOperation.READ, Permission.ALLOW))}

    def rights(user: str = "a", address: str = "10.0.0.1", **other: dict[str, AclDocument]) -> RuledRights:
        return indexes.rights("ins-aaaaaaaa", other.get("rules", rules), user, address, everyone=True)

    assert rights() is rights()
    # Addresses that no rule names share one object.
    assert rights(address="10.0.0.2") is rights() is not rights(address="10.0.0.3")
    before = rights()
    assert rights(rules=dict(rules)) is not before
    for number in range(2 * CACHED_RIGHTS_MAX):
        rights(f"user-{number}")
    assert len(indexes._cached["ins-aaaaaaaa"].rights) <= CACHED_RIGHTS_MAX


def test_rules_of_before_are_not_left_to_the_garbage_collector() -> None:
    indexes = AclIndexes()
    rules = {"n": rule("x", ALLOW)}
    gone = ref(indexes.rights("ins-aaaaaaaa", rules, "a", "10.0.0.1", everyone=True))
    assert gone() is not None
    gc.disable()
    try:
        indexes.rights("ins-aaaaaaaa", dict(rules), "b", "10.0.0.1", everyone=True)
        assert gone() is None
    finally:
        gc.enable()


def nested() -> list[AclDocument]:
    """Return ENTRIES_MAX entries for as many users, under prefixes of one name nested as deeply as names allow."""
    return [
        AclDocument(
            pattern=ResourcePattern(TOPIC, "a" * (1 + number % 249), PatternType.PREFIXED),
            entries=frozenset(
                {AclEntry(f"User:{number}", f"10.0.{number % 250}.1", AclOperation.READ, Permission.ALLOW)}
            ),
        )
        for number in range(ENTRIES_MAX)
    ]


def spread() -> list[AclDocument]:
    """Return 500 disjoint prefixes, all with the same two entries."""
    return [
        rule(f"topic-{number:04}-", ALLOW, entry(Permission.DENY, "User:*"), prefixed=True) for number in range(500)
    ]


@pytest.mark.parametrize("make", [nested, spread])
def test_the_worst_rules_there_can_be_cost_microseconds(make: object) -> None:
    given = make()  # type: ignore[operator]
    began_s = process_time()
    index = AclIndex(given)
    rights = RuledRights(index, "User:1", "10.0.1.1", everyone=True)
    made_s = process_time() - began_s

    names = [f"{'a' * (number % 249)}b{number}" for number in range(5_000)] + [f"topic-{n:04}-x" for n in range(5_000)]
    began_s = process_time()
    for name in names:
        rights.allows(AclOperation.READ, TOPIC, name)
    each_us = (process_time() - began_s) / len(names) * 1e6

    print(f"made in {made_s * 1e3:.1f} ms, asked in {each_us:.1f} us")
    assert made_s < 0.1
    assert each_us < 50
