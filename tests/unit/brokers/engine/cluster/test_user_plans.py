"""Alterations of user documents."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokers.contract import paths
from brokers.contract.instance_limits import NODE_BYTES
from brokers.contract.users import RESERVED_NAMES, Secret, UserDocument
from brokers.engine.cluster import errors, in_flight_users, user_plans
from brokers.engine.cluster.in_flight_users import InFlightUsers
from brokers.engine.cluster.user_plans import AddedSecret, SaltedPassword, UserAlteration, altered
from tests.testkit.scram import salted_password, user, verifier

HERE = "ins-aaaaaaaa"
NOW_MS = 5_000


def secret(id: str, password: str = "pw", salt: bytes = b"salt", mechanisms: tuple[int, ...] = (1, 2)) -> AddedSecret:
    return AddedSecret(
        id=id,
        verifiers=tuple(
            SaltedPassword(
                mechanism=mechanism,
                iterations=4_096,
                salt=salt,
                salted_password=salted_password(password, salt, 4_096, mechanism),
            )
            for mechanism in mechanisms
        ),
    )


def alter(before: UserDocument | None, **fields: object) -> UserDocument | None:
    return altered("alice", before, UserAlteration(**fields), NOW_MS)  # type: ignore[arg-type]


def test_a_user_is_created_changed_and_removed() -> None:
    made = alter(None, superuser=1, expires_at_ms=9_000, added_secrets=(secret("a"),))
    assert made is not None
    assert (made.superuser, made.disabled, made.expires_at_ms, made.created_at_ms) == (True, False, 9_000, NOW_MS)
    assert made.secrets[0].verifiers == (verifier("pw", 1, b"salt"), verifier("pw", 2, b"salt"))

    changed = alter(made, superuser=0, disabled=1, expires_at_ms=-1)
    assert changed == replace(made, superuser=False, disabled=True, expires_at_ms=None)
    assert alter(made) == made
    assert alter(made, is_deleted=True) is None


def test_a_secret_is_rotated_through_two_live_ones() -> None:
    first = alter(None, added_secrets=(secret("a"),))
    both = alter(first, added_secrets=(secret("b", "other"),))
    assert both is not None
    assert [kept.id for kept in both.secrets] == ["a", "b"]
    with pytest.raises(errors.PolicyViolation, match="2 secrets already"):
        alter(both, added_secrets=(secret("c"),))
    rotated = alter(both, removed_secrets=("a",), added_secrets=(secret("c"),))
    assert rotated is not None
    assert [kept.id for kept in rotated.secrets] == ["b", "c"]


@pytest.mark.parametrize(
    ("before", "fields", "error"),
    [
        (None, {"must_exist": 1}, errors.ResourceNotFound),
        ("alice", {"must_exist": 2}, errors.DuplicateResource),
        ("alice", {"removed_secrets": ("none",)}, errors.ResourceNotFound),
        ("alice", {"added_secrets": (secret("secret-1"),)}, errors.DuplicateResource),
        ("alice", {"added_secrets": (secret("b", salt=b"another"),)}, errors.UnacceptableCredential),
        (None, {"added_secrets": (secret(""),)}, errors.UnacceptableCredential),
        (None, {"added_secrets": (secret("x" * 65),)}, errors.UnacceptableCredential),
        (None, {"added_secrets": (secret("b", mechanisms=()),)}, errors.UnacceptableCredential),
        (None, {"added_secrets": (secret("b", mechanisms=(1, 1)),)}, errors.UnacceptableCredential),
        (None, {"added_secrets": (secret("b", salt=b""),)}, errors.UnacceptableCredential),
        (None, {"added_secrets": (secret("b", salt=b"x" * 65),)}, errors.UnacceptableCredential),
    ],
)
def test_an_impossible_alteration_is_refused(
    before: str | None, fields: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        alter(before and user(before, "pw"), **fields)


@pytest.mark.parametrize(
    "changes", [{"mechanism": 3}, {"iterations": 4_095}, {"iterations": 16_385}, {"salted_password": b"short"}]
)
def test_an_insecure_verifier_is_refused(changes: dict[str, object]) -> None:
    (given,) = secret("a", mechanisms=(1,)).verifiers
    with pytest.raises(errors.UnacceptableCredential):
        user_plans.verifier_of(replace(given, **changes))


@pytest.mark.parametrize("name", ["", "x" * 256, "ä" * 43, "a\tb", *RESERVED_NAMES])
def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(errors.UnacceptableCredential):
        user_plans.check_name(name)
    user_plans.check_name("x" * 255)
    user_plans.check_name("ä" * 42)


def scram(before: UserDocument | None, deleted: set[int] = frozenset(), *upserted: int) -> UserDocument | None:  # type: ignore[assignment]
    verifiers = tuple(verifier("new", mechanism, b"theirs") for mechanism in upserted)
    return user_plans.with_scram_credentials("alice", before, frozenset(deleted), verifiers, "scram-1", NOW_MS)


def test_an_upsert_leaves_one_secret_of_its_mechanism() -> None:
    after = scram(user("alice", "old", "new"), set(), 1)
    assert after is not None
    assert [(kept.id, [verifier.mechanism for verifier in kept.verifiers]) for kept in after.secrets] == [
        ("secret-1", [2]),
        ("secret-2", [2]),
        ("scram-1", [1]),
    ]
    both = scram(after, set(), 1, 2)
    assert both is not None
    assert [kept.id for kept in both.secrets] == ["scram-1"]


def test_a_user_without_credentials_is_removed_unless_it_has_other_settings() -> None:
    plain = user("alice", "old")
    assert scram(plain, {1, 2}) is None
    assert scram(plain, {1}) is not None
    for kept in (replace(plain, superuser=True), replace(plain, disabled=True), replace(plain, expires_at_ms=1)):
        assert scram(kept, {1, 2}) == replace(kept, secrets=())
    with pytest.raises(errors.ResourceNotFound):
        scram(user("alice", "old", mechanisms=(1,)), {2})
    with pytest.raises(errors.ResourceNotFound):
        scram(None, {1})


def test_the_number_of_users_is_limited_and_includes_those_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight_users, "USERS_MAX", 2)
    now_ms = [0]
    flight = InFlightUsers(lambda: now_ms[0])
    shown = {"alice": user("alice", "pw")}
    bob = user("bob", "pw")
    flight.check(shown, HERE, "bob", None, bob)
    flight.record(HERE, "bob", bob)

    with pytest.raises(errors.PolicyViolation, match="2 users"):
        flight.check(shown, HERE, "carol", None, user("carol", "pw"))
    flight.check(shown, HERE, "bob", bob, replace(bob, disabled=True))
    flight.check(shown, "ins-bbbbbbbb", "carol", None, user("carol", "pw"))
    flight.record(HERE, "alice", None)
    flight.check(shown, HERE, "carol", None, user("carol", "pw"))
    # Another writer removed what was written here, so it must not count for ever.
    now_ms[0] += in_flight_users.IN_FLIGHT_MS_MAX + 1
    flight.check(shown, HERE, "dora", None, user("dora", "pw"))


def test_the_size_of_all_users_of_an_instance_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    alice = user("alice", "pw")
    weight = user_plans.stored_bytes_of("alice", alice)
    monkeypatch.setattr(in_flight_users, "USERS_BYTES_MAX", 2 * weight)
    flight = InFlightUsers(lambda: 0)
    bob = replace(alice, name="bobby")
    flight.check({"alice": alice}, HERE, "bobby", None, bob)
    with pytest.raises(errors.PolicyViolation, match="weigh"):
        flight.check({"alice": alice, "bobby": bob}, HERE, "carol", None, replace(alice, name="carol"))
    # Making it smaller is always possible.
    flight.check({"alice": alice, "bobby": bob}, HERE, "bobby", bob, replace(bob, secrets=()))


@pytest.mark.parametrize("name", ["alice", "ä name", 'a"b'])
@pytest.mark.parametrize("passwords", [(), ("a",), ("a", "b")])
def test_the_size_of_a_user_includes_document_path_and_node(name: str, passwords: tuple[str, ...]) -> None:
    document = replace(user(name, *passwords), created_at_ms=1_700_000_000_000)
    node = paths.sanitise(name)
    stored = len(document.to_json()) + len(paths.instance_user(HERE, node)) + NODE_BYTES
    assert stored <= user_plans.stored_bytes_of(node, document) <= stored + 20 * (2 + len(passwords))


def test_the_largest_possible_user_is_within_the_limit() -> None:
    """Three secrets result when Kafka's call replaces one mechanism of two secrets."""
    name = "ä" * 42
    heavy = tuple(
        Secret(
            id="x" * 64,
            created_at_ms=1 << 42,
            verifiers=tuple(verifier("pw", mechanism, b"s" * 64, 16_384) for mechanism in (1, 2)),
        )
        for _ in range(2)
    )
    document = UserDocument(name=name, created_at_ms=1 << 42, expires_at_ms=1 << 42, secrets=heavy)
    assert user_plans.stored_bytes_of("%C3%A4" * 42, document) < in_flight_users.USER_BYTES_MAX
