"""Access rules from forms in plain words, and refusals before brokers are queried."""

from __future__ import annotations

import pytest
from django.utils.datastructures import MultiValueDict

from instances.acls.checking import address_of, require_valid
from instances.acls.forms import AccessForm, QuestionForm, RuleForm
from instances.acls.interfaces import AclRule
from instances.users.naming import name_bytes, name_fault
from tenants.errors import Invalid
from tests.testkit.fake_users import rule


def filled(kind: type, **values: str) -> AccessForm:
    form: AccessForm = kind(MultiValueDict({name: [value] for name, value in values.items()}))
    return form


def test_may_read_is_a_topic_and_a_group() -> None:
    form = filled(AccessForm, user="etl", task="read", pattern="literal", topic="orders", group="etl")
    assert form.is_valid(), form.errors
    assert form.rules() == [rule("User:etl"), rule("User:etl", resource_type="group", resource_name="etl")]


def test_may_write_needs_no_group() -> None:
    form = filled(AccessForm, user="etl", task="write", pattern="prefixed", topic="orders.")
    assert form.is_valid(), form.errors
    assert form.rules() == [rule("User:etl", "write", resource_name="orders.", pattern_type="prefixed")]


def test_reading_and_writing_every_topic_with_groups_that_begin_alike() -> None:
    form = filled(AccessForm, user="*", task="both", pattern="every", group="etl-*")
    assert form.is_valid(), form.errors
    assert form.rules() == [
        rule("User:*", "read", resource_name="*"),
        rule("User:*", "write", resource_name="*"),
        rule("User:*", "read", resource_type="group", resource_name="etl-", pattern_type="prefixed"),
    ]


def test_any_group_is_an_asterisk_of_its_own() -> None:
    form = filled(AccessForm, user="etl", task="read", pattern="literal", topic="orders", group="*")
    assert form.is_valid(), form.errors
    assert form.rules()[1] == rule("User:etl", resource_type="group", resource_name="*")


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"task": "read", "pattern": "literal", "topic": "orders"}, "group"),
        ({"task": "write", "pattern": "literal"}, "topic"),
        ({"task": "write", "pattern": "elsewhere", "topic": "a"}, "pattern"),
    ],
)
def test_a_missing_value_is_reported_beside_its_field(values: dict[str, str], field: str) -> None:
    assert field in filled(AccessForm, user="etl", **values).errors


def test_one_rule_of_kafkas_is_made_of_its_words() -> None:
    values = {"user": "etl", "permission": "deny", "operation": "alter", "resource_type": "cluster",
              "pattern": "prefixed", "host": "10.0.0.1"}  # fmt: skip
    form = RuleForm(MultiValueDict({name: [value] for name, value in values.items()}))
    assert form.is_valid(), form.errors
    made = form.rule()
    assert (made.resource_name, made.pattern_type, made.host) == ("kafka-cluster", "literal", "10.0.0.1")
    require_valid(made)


def test_a_question_that_kafka_never_asks_is_not_asked() -> None:
    values = {"user": "etl", "operation": "write", "resource_type": "group", "resource_name": "etl"}
    form = QuestionForm(MultiValueDict({name: [value] for name, value in values.items()}))
    assert "operation" in form.errors


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        (rule(principal="alice"), "/principal"),
        (rule(principal="Group:alice"), "/principal"),
        (rule(principal="User:"), "/principal"),
        (rule(principal="User:" + "\u6c34" * 29), "/principal"),
        (rule(host="10.0.0.0/8"), "/host"),
        (rule(host="fe80::1%eth0"), "/host"),
        (rule(host="db.example"), "/host"),
        (rule(resource_type="group", operation="write"), "/operation"),
        (rule(resource_type="user", operation="all"), "/operation"),
        (rule(resource_type="cluster", operation="alter"), "/resource_name"),
        (rule(resource_name="a\x00b"), "/resource_name"),
        (rule(resource_name="a" * 256), "/resource_name"),
    ],
)
def test_a_rule_that_would_decide_nothing_is_refused(wrong: AclRule, pointer: str) -> None:
    with pytest.raises(Invalid) as refusal:
        require_valid(wrong)
    assert [error.pointer for error in refusal.value.errors] == [pointer]


def test_an_address_is_written_as_brokers_write_those_of_connections() -> None:
    assert address_of("::ffff:10.0.0.1") == "10.0.0.1"
    assert address_of("2001:DB8:0:0::1") == "2001:db8::1"
    assert address_of("*") == "*"


@pytest.mark.parametrize(
    "name", ["ANONYMOUS", "*", ".", "..", "", " a", "a ", "a\nb", "a\x00", "\u6c34" * 29, "a" * 256]
)
def test_a_name_that_means_something_else_or_does_not_fit_is_no_users(name: str) -> None:
    assert name_fault(name)


@pytest.mark.parametrize("name", ["alice", "billing service", "a" * 255, "\u6c34" * 28, "o'neil", "<default>", "a/b"])
def test_a_user_may_be_called_almost_anything(name: str) -> None:
    assert name_fault(name) is None


def test_a_tilde_takes_three_bytes_as_in_zookeeper() -> None:
    assert name_bytes("a~b") == 5
