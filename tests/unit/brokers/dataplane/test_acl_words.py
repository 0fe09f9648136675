"""Equality of access rules in REST's words and in Kafka's numbers."""

from __future__ import annotations

from brokers.contract import acls as contract
from brokers.dataplane.acls import KafkaAclAdminClient, _creation_of, _filter_fields, documents_of
from instances.acls import constants, limits
from instances.acls.interfaces import AccessQuestion, AclFilter
from tests.testkit.fake_users import rule


def names(kind: type) -> set[str]:
    return {member.name.lower() for member in kind}  # type: ignore[attr-defined]


def test_every_number_has_its_word() -> None:
    assert names(contract.ResourceType) == set(constants.RESOURCE_TYPES)
    assert names(contract.PatternType) == set(constants.PATTERN_TYPES)
    assert names(contract.AclOperation) == set(constants.OPERATIONS)
    assert names(contract.Permission) == set(constants.PERMISSIONS)


def test_the_control_plane_says_the_numbers_that_brokers_keep_to() -> None:
    assert limits.ACL_RULES_PER_INSTANCE_MAX == contract.ENTRIES_MAX
    assert limits.ACL_NAME_BYTES_MAX == contract.NAME_BYTES_MAX


def test_a_rule_is_sent_in_numbers() -> None:
    sent = _creation_of(rule("User:al", "write", resource_name="a", pattern_type="prefixed", permission="deny"))
    assert (sent.resource_type, sent.resource_pattern_type, sent.operation, sent.permission_type) == (2, 4, 4, 2)
    assert (sent.principal, sent.host, sent.resource_name) == ("User:al", "*", "a")


def test_a_filter_names_what_matters_and_leaves_the_rest_open() -> None:
    assert _filter_fields(AclFilter()) == {
        "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
        "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip
    matching = _filter_fields(AclFilter(resource_type="group", resource_name="etl", pattern_type="match"))
    assert (matching["resource_type_filter"], matching["pattern_type_filter"]) == (3, 2)


def test_rules_of_one_pattern_are_one_document() -> None:
    made = documents_of([rule("User:a"), rule("User:b"), rule("User:a", resource_name="other")])
    assert sorted(len(document.entries) for document in made) == [1, 2]


def test_a_decision_names_its_rule_in_words() -> None:
    forbidding = rule("User:*", "all", permission="deny", resource_name="ord", pattern_type="prefixed")
    question = AccessQuestion(
        principal="User:alice", host="*", operation="read", resource_type="topic", resource_name="orders"
    )
    decision = KafkaAclAdminClient().decide([rule(), forbidding], question, is_superuser=False, allow_everyone=True)
    assert (decision.allowed, decision.reason, decision.rule) == (False, "denied_by_rule", forbidding)
