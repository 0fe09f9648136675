"""Which access rule decides: Apache Kafka's StandardAuthorizer, row by row, and against its definition at random."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.contract.acl_rules import EVERYBODY, Decision, Question, Reason, decide
from brokers.contract.acls import (
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
    question = Question(principal=principal, host=host, operation=operation, resource_type=kind, resource_name=name)
    return decide(documents, question, is_superuser=is_superuser, allow_everyone=allow_everyone)


def test_a_rule_allows_what_it_names_and_nothing_else() -> None:
    document = rules(may())
    assert ask(document).allowed
    assert not ask(document, principal=BOB).allowed
    assert not ask(document, operation=WRITE).allowed
    assert not ask(document, name="orders2").allowed
    assert not ask(document, kind=GROUP).allowed


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
    assert ask(document, name=name).allowed is allowed


@pytest.mark.parametrize("granted", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER, ALL])
def test_who_may_do_something_may_describe(granted: AclOperation) -> None:
    assert ask(rules(may(operation=granted)), operation=DESCRIBE).allowed


@pytest.mark.parametrize("denied", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER])
def test_who_may_not_do_something_may_still_describe(denied: AclOperation) -> None:
    assert ask(rules(may_not(operation=denied), may(operation=DESCRIBE)), operation=DESCRIBE).allowed


def test_who_may_change_configurations_may_see_them_and_nobody_creates_with_another_right() -> None:
    document = rules(may(operation=AclOperation.ALTER_CONFIGS))
    assert ask(document, operation=AclOperation.DESCRIBE_CONFIGS).allowed
    assert not ask(document, operation=DESCRIBE).allowed
    assert not ask(rules(may(operation=WRITE)), operation=AclOperation.CREATE).allowed


def test_what_forbids_wins_however_far_its_pattern_is() -> None:
    near, far = rules(may()), rules(may_not(EVERYBODY, ALL), name="*")
    assert ask(near).allowed
    decision = ask(near, far)
    assert (decision.allowed, decision.reason) == (False, Reason.DENIED_BY_RULE)
    assert decision.pattern == far.pattern
    assert ask(near, rules(may_not(host=THERE), name="o", pattern=PREFIXED)).allowed


def test_a_host_is_one_address() -> None:
    document = rules(may(host=THERE))
    assert not ask(document, host=HERE).allowed
    assert ask(document, host=THERE).allowed


def test_everybody_is_everybody() -> None:
    assert ask(rules(may(EVERYBODY)), principal="User:ANONYMOUS").allowed


@pytest.mark.parametrize("allow_everyone", [True, False])
def test_without_a_rule_about_the_resource_the_setting_decides(allow_everyone: bool) -> None:
    decision = ask(rules(may(), name="other"), allow_everyone=allow_everyone)
    assert decision.allowed is allow_everyone
    assert decision.entry is None
    expected = Reason.NO_RULES_ALLOWED if allow_everyone else Reason.NO_RULES_DENIED
    assert decision.reason is expected


def test_a_rule_for_somebody_else_closes_the_resource_to_all_others() -> None:
    decision = ask(rules(may(BOB)), allow_everyone=True)
    assert (decision.allowed, decision.reason) == (False, Reason.NOT_ALLOWED)


def test_a_super_user_is_asked_nothing() -> None:
    decision = ask(rules(may_not(operation=ALL)), is_superuser=True)
    assert (decision.allowed, decision.reason) == (True, Reason.SUPERUSER)


def test_the_rule_that_is_named_is_the_nearest_that_allows() -> None:
    every, longer = rules(may(), name="*"), rules(may(), name="orde", pattern=PREFIXED)
    shorter, exact = rules(may(), name="o", pattern=PREFIXED), rules(may())
    assert ask(every, shorter, longer, exact).pattern == exact.pattern
    assert ask(every, shorter, longer).pattern == longer.pattern
    assert ask(every).pattern == every.pattern


def by_definition(documents: Iterable[AclDocument], question: Question, *, allow_everyone: bool) -> bool:
    """AclAuthorizer.authorizeAction, as it reads."""
    entries = [
        entry
        for document in documents
        if document.pattern.resource_type == question.resource_type
        and (
            question.resource_name.startswith(document.pattern.name)
            if document.pattern.pattern_type == PREFIXED
            else document.pattern.name in ("*", question.resource_name)
        )
        for entry in document.entries
    ]
    if not entries:
        return allow_everyone
    allowing = {question.operation, ALL}
    if question.operation == DESCRIBE:
        allowing |= {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER}
    if question.operation == AclOperation.DESCRIBE_CONFIGS:
        allowing.add(AclOperation.ALTER_CONFIGS)

    def is_there(permission: Permission, operations: set[AclOperation]) -> bool:
        return any(
            entry.permission == permission
            and entry.operation in operations
            and entry.principal in (question.principal, EVERYBODY)
            and entry.host in (question.host, "*")
            for entry in entries
        )

    return not is_there(DENY, {question.operation, ALL}) and is_there(ALLOW, allowing)


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
QUESTIONS = st.builds(
    Question,
    principal=st.sampled_from([ALICE, BOB]),
    host=st.sampled_from([HERE, THERE]),
    operation=st.sampled_from([operation for operation in AclOperation if operation is not ALL]),
    resource_type=st.sampled_from([TOPIC, GROUP]),
    resource_name=st.sampled_from(["a", "ab", "abc", "b"]),
)


@given(st.lists(DOCUMENTS, max_size=6), QUESTIONS, st.booleans())
def test_a_decision_is_what_the_definition_says_and_names_a_rule_that_is_there(
    documents: list[AclDocument], question: Question, allow_everyone: bool
) -> None:
    decision = decide(documents, question, is_superuser=False, allow_everyone=allow_everyone)
    assert decision.allowed is by_definition(documents, question, allow_everyone=allow_everyone)
    if decision.entry is not None:
        assert any(
            document.pattern == decision.pattern and decision.entry in document.entries for document in documents
        )
        assert decision.entry.permission == (ALLOW if decision.allowed else DENY)
