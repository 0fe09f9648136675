"""PLAIN against stored verifiers, and the cache of passwords that were verified."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokers.contract.users import UserDocument
from brokers.engine.access import passwords, sasl
from brokers.engine.access.passwords import ProvenPasswords, comparisons_of, find_matching_secret
from tests.testkit.scram import user

HERE = "ins-aaaaaaaa"


def proves(document: UserDocument | None, password: str) -> str | None:
    secret = find_matching_secret(password, () if document is None else comparisons_of(document), b"salt")
    return None if secret is None else secret.id


def test_either_of_two_secrets_is_found_under_any_mechanism() -> None:
    for mechanisms in ((1, 2), (1,), (2,)):
        document = user("alice", "old", "new", mechanisms=mechanisms)
        assert [proves(document, password) for password in ("old", "new", "none")] == ["secret-1", "secret-2", None]
    assert proves(None, "old") is None


def test_two_secrets_with_one_salt_cost_one_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = []
    hash_once = passwords._stored_key
    monkeypatch.setattr(passwords, "_stored_key", lambda *given: hashed.append(given) or hash_once(*given))

    proves(user("alice", "old", "new"), "wrong")
    proves(None, "wrong")

    assert len(hashed) == 2


def test_a_proven_password_is_known_as_long_as_its_secret_lives() -> None:
    proven = ProvenPasswords(b"key")
    document = user("alice", "old", "new")
    old, new = document.secrets
    assert proven.find(HERE, document, "old") is None
    proven.record(HERE, document, old, "old")
    proven.record(HERE, document, new, "new")

    assert (proven.find(HERE, document, "old"), proven.find(HERE, document, "new")) == (old, new)
    assert proven.find(HERE, document, "older") is None
    assert proven.find("ins-bbbbbbbb", document, "old") is None
    rotated = replace(document, secrets=(new,))
    assert proven.find(HERE, rotated, "old") is None
    assert proven.find(HERE, rotated, "new") is new


def test_the_user_who_signed_in_longest_ago_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "PROVEN_MAX", 2)
    proven = ProvenPasswords(b"key")
    users = [user(name, "pw", mechanisms=(1,)) for name in ("a", "b", "c")]
    for document in users:
        proven.record(HERE, document, document.secrets[0], "pw")
    assert [proven.find(HERE, document, "pw") is not None for document in users] == [False, True, True]


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice", "expected 3 tokens, got 2"),
        (b"\0a\0b\0c\0d\0e", "expected 3 tokens, got 4"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"x" * 5_000, "too long"),
    ],
)
def test_a_token_that_is_none_is_refused_in_kafkas_words(token: bytes, message: str) -> None:
    with pytest.raises(sasl.SaslFailed, match=message):
        sasl.parse_kafka_plain(token)
