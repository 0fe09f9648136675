"""Access decisions from ACLs, on the examples of Apache Kafka's documentation (security.html, KIP-11, KIP-290)."""

from __future__ import annotations

import pytest

from brokers.contract import paths
from brokers.contract.acl_decisions import (
    OPEN_CLUSTER_OPERATIONS,
    Access,
    Decision,
    DecisionReason,
    authorize,
    canonical_host,
)
from brokers.contract.acls import (
    CLUSTER_NAME,
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
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


def rules(name: str, *entries: tuple[str, str, AclOperation, Permission], kind: PatternType = LITERAL) -> AclDocument:
    pattern = ResourcePattern(TOPIC, name, kind)
    return AclDocument(pattern=pattern, entries=frozenset(AclEntry(*entry) for entry in entries))


def decide(
    documents: list[AclDocument],
    user: str,
    operation: AclOperation,
    name: str = "Test-topic",
    *,
    host: str = "198.51.100.0",
    **more: bool,
) -> Decision:
    settings = {"is_superuser": False, "allow_everyone_if_no_acl": False, **more}
    return authorize(documents, Access(f"User:{user}", host, operation, TOPIC, name), **settings)


def test_bob_and_alice_may_read_and_write_from_two_addresses() -> None:
    """kafka-acls --add --allow-principal User:Bob --allow-principal User:Alice --allow-host … --operation Read …"""
    documents = [
        rules(
            "Test-topic",
            *(
                (f"User:{user}", host, operation, ALLOW)
                for user in ("Bob", "Alice")
                for host in ("198.51.100.0", "198.51.100.1")
                for operation in (READ, WRITE)
            ),
        )
    ]
    assert decide(documents, "Bob", READ).is_allowed
    assert decide(documents, "Alice", WRITE, host="198.51.100.1").is_allowed
    assert decide(documents, "Alice", WRITE, host="198.51.100.2") == Decision(False, DecisionReason.NOT_ALLOWED)
    assert not decide(documents, "Carol", READ).is_allowed
    assert not decide(documents, "Bob", AclOperation.ALTER).is_allowed


def test_all_but_bad_bob_may_read() -> None:
    """kafka-acls --add --allow-principal User:'*' --allow-host '*' --deny-principal User:BadBob --deny-host …"""
    denied = ("User:BadBob", "198.51.100.3", READ, DENY)
    documents = [rules("Test-topic", ("User:*", "*", READ, ALLOW), denied)]

    assert decide(documents, "anybody", READ).is_allowed
    assert decide(documents, "BadBob", READ).is_allowed
    refused = decide(documents, "BadBob", READ, host="198.51.100.3")
    assert refused == Decision(False, DecisionReason.DENIED_BY_RULE, documents[0].pattern, AclEntry(*denied))


def test_jane_may_produce_to_every_topic_of_a_prefix() -> None:
    """kafka-acls --add --allow-principal User:Jane --producer --topic Test- --resource-pattern-type prefixed"""
    documents = [rules("Test-", ("User:Jane", "*", WRITE, ALLOW), kind=PREFIXED)]

    allowed = decide(documents, "Jane", WRITE, "Test-topic")

    assert allowed.is_allowed and allowed.pattern == documents[0].pattern
    assert decide(documents, "Jane", WRITE, "Test-").is_allowed
    assert not decide(documents, "Jane", WRITE, "Test").is_allowed


def test_the_wildcard_is_of_literal_patterns_alone() -> None:
    assert decide([rules("*", ("User:a", "*", READ, ALLOW))], "a", READ).is_allowed
    assert not decide([rules("*", ("User:a", "*", READ, ALLOW), kind=PREFIXED)], "a", READ).is_allowed


@pytest.mark.parametrize("granted", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALL, DESCRIBE])
def test_a_user_with_any_right_to_a_resource_may_describe_it(granted: AclOperation) -> None:
    assert decide([rules("Test-topic", ("User:a", "*", granted, ALLOW))], "a", DESCRIBE).is_allowed


def test_a_right_to_alter_configurations_implies_describing_them_and_nothing_else() -> None:
    documents = [rules("Test-topic", ("User:a", "*", AclOperation.ALTER_CONFIGS, ALLOW))]

    assert decide(documents, "a", AclOperation.DESCRIBE_CONFIGS).is_allowed
    assert not decide(documents, "a", DESCRIBE).is_allowed


def test_a_denial_implies_nothing_and_is_before_every_permission() -> None:
    denied = rules("Test-topic", ("User:a", "*", READ, DENY), ("User:a", "*", AclOperation.ALL, ALLOW))
    assert not decide([denied], "a", READ).is_allowed
    assert decide([denied], "a", DESCRIBE).is_allowed
    everywhere = rules("*", ("User:*", "*", AclOperation.ALL, DENY))
    assert not decide([denied, everywhere], "a", DESCRIBE).is_allowed


def test_the_instance_decides_about_a_resource_without_rules() -> None:
    other = [rules("other", ("User:b", "*", READ, ALLOW))]
    assert decide(other, "a", READ, allow_everyone_if_no_acl=True) == Decision(True, DecisionReason.NO_RULES_ALLOWED)
    assert decide(other, "a", READ) == Decision(False, DecisionReason.NO_RULES_DENIED)
    # With an ACL about the resource itself, only that ACL counts.
    assert not decide(other, "a", READ, "other", allow_everyone_if_no_acl=True).is_allowed


@pytest.mark.parametrize("operation", [operation for operation in AclOperation if operation is not AclOperation.ALL])
def test_administering_the_cluster_is_never_open_without_a_rule(operation: AclOperation) -> None:
    access = Access("User:a", "10.0.0.1", operation, ResourceType.CLUSTER, CLUSTER_NAME)
    others = [rules("other", ("User:a", "*", AclOperation.ALL, ALLOW))]
    for documents in ([], others):
        decision = authorize(documents, access, is_superuser=False, allow_everyone_if_no_acl=True)
        if operation in OPEN_CLUSTER_OPERATIONS:
            assert decision == Decision(True, DecisionReason.NO_RULES_ALLOWED)
        else:
            assert decision == Decision(False, DecisionReason.CLUSTER_NEEDS_RULE)
        closed = authorize(documents, access, is_superuser=False, allow_everyone_if_no_acl=False)
        assert closed == Decision(False, DecisionReason.NO_RULES_DENIED)
    pattern = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME, LITERAL)
    granted = AclDocument(pattern=pattern, entries=frozenset({AclEntry("User:a", "*", operation, ALLOW)}))
    assert authorize([granted], access, is_superuser=False, allow_everyone_if_no_acl=True).is_allowed


def test_a_superuser_is_asked_nothing() -> None:
    documents = [rules("*", ("User:*", "*", AclOperation.ALL, DENY))]
    assert decide(documents, "root", WRITE, is_superuser=True) == Decision(True, DecisionReason.SUPERUSER)


@pytest.mark.parametrize(
    ("host", "canonical"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.0.0.01", "10.0.0.01"),
        ("example.org", "example.org"),
    ],
)
def test_an_address_is_compared_in_one_spelling(host: str, canonical: str) -> None:
    assert canonical_host(host) == canonical


def test_a_document_that_cannot_be_read_closes_what_it_is_about() -> None:
    pattern = ResourcePattern(TOPIC, "a/b", PREFIXED)
    closed = AclDocument.closed(pattern.node_name)

    assert closed.pattern == pattern
    open_to_all = rules("*", ("User:*", "*", AclOperation.ALL, ALLOW))
    assert not decide([closed, open_to_all], "a", READ, "a/bc", allow_everyone_if_no_acl=True).is_allowed
    assert decide([closed, open_to_all], "a", READ, "a", allow_everyone_if_no_acl=True).is_allowed


@pytest.mark.parametrize(
    "name", ["", "2", "2:3", "6:3:token", "2:9:x", "x:3:y", f"2:3:{paths.sanitise('a')}/b", "2:3:a%41"]
)
def test_a_node_that_no_broker_names_so_is_about_nothing(name: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        AclDocument.closed(name)
