"""Precedence of ACLs: a table of Apache Kafka's StandardAuthorizer cases, and random cases against its definition."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.contract.acl_decisions import Access, Decision, DecisionReason, authorize
from brokers.contract.acls import (
    EVERYBODY,
    AclDocument,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
ALICE, BOB = "User:alice", "User:bob"
HERE, THERE = "10.0.0.1", "10.0.0.2"


def rules(*entries: AclEntry, name: str = "orders", pattern: PatternType = LITERAL) -> AclDocument:
    return AclDocument(pattern=ResourcePattern(TOPIC, name, pattern), entries=frozenset(entries))


def may(principal: str = ALICE, operation: AclOperation = READ, host: str = "*") -> AclEntry:
    return AclEntry(principal, host, operation, ALLOW)


def may_not(principal: str = ALICE, operation: AclOperation = READ, host: str = "*") -> AclEntry:
    return AclEntry(principal, host, operation, DENY)


def ask(
    *documents: AclDocument,
    principal: str = ALICE,
    operation: AclOperation = READ,
    name: str = "orders",
    kind: ResourceType = TOPIC,
    host: str = HERE,
    is_superuser: bool = False,
    allow_everyone: bool = False,
) -> Decision:
    access = Access(principal, host, operation, kind, name)
    return authorize(documents, access, is_superuser=is_superuser, allow_everyone_if_no_acl=allow_everyone)


def test_a_rule_allows_what_it_names_and_nothing_else() -> None:
    document = rules(may())
    assert ask(document).is_allowed
    assert not ask(document, principal=BOB).is_allowed
    assert not ask(document, operation=WRITE).is_allowed
    assert not ask(document, name="orders2").is_allowed
    assert not ask(document, kind=GROUP).is_allowed


@pytest.mark.parametrize(
    ("document", "name", "allowed"),
    [
        (rules(may(), name="ord", pattern=PREFIXED), "orders", True),
        (rules(may(), name="orders", pattern=PREFIXED), "orders", True),
        (rules(may(), name="orders.", pattern=PREFIXED), "orders", False),
        (rules(may(), name="*"), "anything", True),
        (rules(may(), name="*", pattern=PREFIXED), "orders", False),  # a prefix that is an asterisk
        (rules(may(), name="ord"), "orders", False),
    ],
)
def test_a_pattern_is_a_name_a_beginning_or_every_name(document: AclDocument, name: str, allowed: bool) -> None:
    assert ask(document, name=name).is_allowed is allowed


@pytest.mark.parametrize("granted", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER, ALL])
def test_a_granted_operation_implies_describe(granted: AclOperation) -> None:
    assert ask(rules(may(operation=granted)), operation=DESCRIBE).is_allowed


@pytest.mark.parametrize("denied", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER])
def test_a_denied_operation_does_not_deny_describe(denied: AclOperation) -> None:
    assert ask(rules(may_not(operation=denied), may(operation=DESCRIBE)), operation=DESCRIBE).is_allowed


def test_a_right_to_alter_configurations_implies_describing_them_and_no_right_implies_create() -> None:
    document = rules(may(operation=AclOperation.ALTER_CONFIGS))
    assert ask(document, operation=AclOperation.DESCRIBE_CONFIGS).is_allowed
    assert not ask(document, operation=DESCRIBE).is_allowed
    assert not ask(rules(may(operation=WRITE)), operation=AclOperation.CREATE).is_allowed


def test_a_denial_wins_over_an_allowance_of_any_pattern() -> None:
    near, far = rules(may()), rules(may_not(EVERYBODY, ALL), name="*")
    assert ask(near).is_allowed
    decision = ask(near, far)
    assert (decision.is_allowed, decision.reason) == (False, DecisionReason.DENIED_BY_RULE)
    assert decision.pattern == far.pattern
    assert ask(near, rules(may_not(host=THERE), name="o", pattern=PREFIXED)).is_allowed


def test_a_host_is_one_address() -> None:
    document = rules(may(host=THERE))
    assert not ask(document, host=HERE).is_allowed
    assert ask(document, host=THERE).is_allowed


def test_everybody_is_everybody() -> None:
    assert ask(rules(may(EVERYBODY)), principal="User:ANONYMOUS").is_allowed


@pytest.mark.parametrize("allow_everyone", [True, False])
def test_without_a_rule_about_the_resource_the_setting_decides(allow_everyone: bool) -> None:
    decision = ask(rules(may(), name="other"), allow_everyone=allow_everyone)
    assert decision.is_allowed is allow_everyone
    assert decision.entry is None
    expected = DecisionReason.NO_RULES_ALLOWED if allow_everyone else DecisionReason.NO_RULES_DENIED
    assert decision.reason is expected


def test_a_rule_for_somebody_else_closes_the_resource_to_all_others() -> None:
    decision = ask(rules(may(BOB)), allow_everyone=True)
    assert (decision.is_allowed, decision.reason) == (False, DecisionReason.NOT_ALLOWED)


def test_a_super_user_is_asked_nothing() -> None:
    decision = ask(rules(may_not(operation=ALL)), is_superuser=True)
    assert (decision.is_allowed, decision.reason) == (True, DecisionReason.SUPERUSER)


def by_definition(documents: Iterable[AclDocument], access: Access, *, allow_everyone: bool) -> bool:
    """Decide as AclAuthorizer.authorizeAction does, transcribed step by step."""
    entries = [
        entry
        for document in documents
        if document.pattern.resource_type == access.resource_type
        and (
            access.name.startswith(document.pattern.name)
            if document.pattern.pattern_type == PREFIXED
            else document.pattern.name in ("*", access.name)
        )
        for entry in document.entries
    ]
    if not entries:
        return allow_everyone
    allowing = {access.operation, ALL}
    if access.operation == DESCRIBE:
        allowing |= {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER}
    if access.operation == AclOperation.DESCRIBE_CONFIGS:
        allowing.add(AclOperation.ALTER_CONFIGS)

    def is_there(permission: Permission, operations: set[AclOperation]) -> bool:
        return any(
            entry.permission == permission
            and entry.operation in operations
            and entry.principal in (access.principal, EVERYBODY)
            and entry.host in (access.host, "*")
            for entry in entries
        )

    return not is_there(DENY, {access.operation, ALL}) and is_there(ALLOW, allowing)


ENTRIES = st.builds(
    AclEntry, st.sampled_from([ALICE, BOB, EVERYBODY]), st.sampled_from([HERE, THERE, "*"]),
    st.sampled_from(AclOperation), st.sampled_from(Permission),
)  # fmt: skip
NAMES = st.sampled_from(["a", "ab", "abc", "b", "*"])
DOCUMENTS = st.builds(
    AclDocument,
    pattern=st.builds(ResourcePattern, st.sampled_from([TOPIC, GROUP]), NAMES, st.sampled_from(PatternType)),
    entries=st.frozensets(ENTRIES, min_size=1, max_size=4),
)
ACCESSES = st.builds(
    Access,
    st.sampled_from([ALICE, BOB]),
    st.sampled_from([HERE, THERE]),
    st.sampled_from([operation for operation in AclOperation if operation is not ALL]),
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(["a", "ab", "abc", "b"]),
)


@given(st.lists(DOCUMENTS, max_size=6), ACCESSES, st.booleans())
def test_a_decision_is_what_the_definition_says_and_names_a_rule_that_is_there(
    documents: list[AclDocument], access: Access, allow_everyone: bool
) -> None:
    decision = authorize(documents, access, is_superuser=False, allow_everyone_if_no_acl=allow_everyone)
    assert decision.is_allowed is by_definition(documents, access, allow_everyone=allow_everyone)
    if decision.entry is not None:
        assert any(
            document.pattern == decision.pattern and decision.entry in document.entries for document in documents
        )
        assert decision.entry.permission == (ALLOW if decision.is_allowed else DENY)
