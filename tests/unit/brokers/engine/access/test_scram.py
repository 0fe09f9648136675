"""SCRAM on the server side (RFC 5802, RFC 7677)."""

from __future__ import annotations

import hmac
from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.contract.users import ITERATIONS, SECRETS_PER_USER_MAX, Secret, UserDocument
from brokers.engine.access import scram
from brokers.engine.access.sasl import SaslFailed
from tests.testkit.scram import ScramClient, user, verifier

NONCE = "3rfcNHYJY1ZVvWVs7j"
FEW = 4_096


def exchange(client: ScramClient, document: UserDocument | None, nonce: str = NONCE) -> scram.Exchange:
    first = scram.parse_client_first(client.first())
    challenge = scram.challenge_of(document, client.mechanism, b"made up")
    return scram.Exchange(client.mechanism, first, challenge, nonce)


def test_the_exchange_of_rfc_7677_is_answered_as_it_says() -> None:
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    known = Secret(id="s", created_at_ms=1, verifiers=(verifier("pencil", 1, salt, 4096),))
    document = UserDocument(name="user", created_at_ms=1, secrets=(known,))
    first = scram.parse_client_first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    server = scram.Exchange(1, first, scram.challenge_of(document, 1, b""), "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")

    nonce = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert server.server_first == nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    proven = server.prove(b"c=biws," + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    assert proven.answer == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert proven.candidate.secret is known


@pytest.mark.parametrize("mechanism", [1, 2])
@pytest.mark.parametrize("password", ["old", "new"])
def test_either_of_two_live_secrets_proves_the_user(mechanism: int, password: str) -> None:
    document = user("alice", "old", "new")
    client = ScramClient("alice", password, mechanism)
    server = exchange(client, document)

    proven = server.prove(client.final(server.server_first))

    assert client.is_servers(proven.answer)
    assert proven.candidate.secret.id == ("secret-1" if password == "old" else "secret-2")


def test_a_wrong_password_proves_nobody() -> None:
    client = ScramClient("alice", "wrong")
    server = exchange(client, user("alice", "right", "other"))
    with pytest.raises(SaslFailed):
        server.prove(client.final(server.server_first))


def test_a_user_that_does_not_exist_is_asked_like_one_that_does() -> None:
    client = ScramClient("nobody", "any")
    server = exchange(client, None)
    shown = exchange(ScramClient("alice", "any"), user("alice", "right"))
    assert server.server_first.endswith(f",i={ITERATIONS}".encode())
    assert shown.server_first.endswith(f",i={ITERATIONS}".encode())
    with pytest.raises(SaslFailed):
        server.prove(client.final(server.server_first))


@pytest.mark.parametrize("passwords", [(), ("one",), ("one", "two")])
def test_the_number_of_compared_proofs_is_the_same_for_every_user(
    passwords: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[bytes] = []
    digest = hmac.compare_digest

    def counted(first: bytes, second: bytes) -> bool:
        compared.append(second)
        return digest(first, second)

    client = ScramClient("alice", "wrong")
    server = exchange(client, user("alice", *passwords) if passwords else None)
    final = client.final(server.server_first)
    monkeypatch.setattr(scram.hmac, "compare_digest", counted)
    with pytest.raises(SaslFailed):
        server.prove(final)
    assert len(compared) == 1 + SECRETS_PER_USER_MAX, "the nonce, and the keys"


def test_a_user_without_a_secret_under_the_mechanism_looks_like_nobody() -> None:
    challenge = scram.challenge_of(user("alice", "right", mechanisms=(2,)), 1, b"made up")
    assert challenge == scram.Challenge(b"made up", ITERATIONS, ())


@pytest.mark.parametrize(
    "changes",
    [
        {"r": "another"},
        {"c": "eSws"},  # y,,
        {"p": ""},
        {"p": "AAAA"},
        {"p": "not base64"},
        {"c": "torn"},
    ],
)
def test_a_final_message_that_says_something_else_proves_nobody(changes: dict[str, str]) -> None:
    client = ScramClient("alice", "right")
    server = exchange(client, user("alice", "right"))
    with pytest.raises(SaslFailed):
        server.prove(client.final(server.server_first, **changes))


def test_kafkas_own_binding_is_accepted_whatever_the_first_message_said() -> None:
    client = ScramClient("alice", "right")
    client.gs2 = "n,a=alice,"
    server = exchange(client, user("alice", "right"))
    assert server.prove(client.final(server.server_first, c="biws")).candidate.secret.id == "secret-1"


@pytest.mark.parametrize(
    "token",
    [
        b"", b"n,,", b"n,,n=,r=x", b"n,,r=x,n=alice", b"p=tls-unique,,n=a,r=x", b"y,,n=a,r=x", b"n,,n=a,r=",
        b"n,,n=a=b,r=x", b"n,,n=a,r=x,1=y", b"n,,n=a,r=x y", b"\xff\xfe", b"n,,n=a\0,r=x", b"n,,n=a,r=" + b"x" * 5_000,
    ],
)  # fmt: skip
def test_an_invalid_first_message_is_refused(token: bytes) -> None:
    with pytest.raises(SaslFailed):
        scram.parse_client_first(token)


def test_extensions_are_read_over() -> None:
    assert scram.parse_client_first(b"n,,n=alice,r=x,tokenauth=true").username == "alice"


def test_nobody_acts_as_somebody_else() -> None:
    with pytest.raises(scram.OtherIdentity):
        scram.parse_client_first(b"n,a=bob,n=alice,r=x")
    assert scram.parse_client_first(b"n,a=alice,n=alice,r=x").username == "alice"


_NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40)


@given(name=_NAMES, mechanism=st.sampled_from([1, 2]), is_right=st.booleans())
def test_only_a_client_with_the_password_is_proven(name: str, mechanism: int, is_right: bool) -> None:
    document = user(name, "right", mechanisms=(mechanism,))
    client = ScramClient(name, "right" if is_right else "wrong", mechanism)
    server = exchange(client, document)
    final = client.final(server.server_first)
    if is_right:
        assert client.is_servers(server.prove(final).answer)
    else:
        with pytest.raises(SaslFailed):
            server.prove(final)


@given(token=st.binary(max_size=200))
def test_no_bytes_break_it(token: bytes) -> None:
    client = ScramClient("alice", "right")
    server = exchange(client, user("alice", "right", mechanisms=(1,)))
    with pytest.raises(SaslFailed):
        server.prove(token)
    try:
        scram.parse_client_first(token)
    except SaslFailed:
        return


@pytest.mark.parametrize("mechanism", [1, 2])
def test_a_client_may_say_its_own_nonce_once_more_and_nothing_else_behind_the_servers(mechanism: int) -> None:
    """librdkafka before 2.8 repeats its nonce after the server's, and Kafka accepts that."""
    client = ScramClient("alice", "secret", mechanism)
    client.says_nonce_twice = True
    server = exchange(client, user("alice", "secret"))
    assert client.is_servers(server.prove(client.final(server.server_first)).answer)
    nonce = client.nonce + NONCE
    for wrong in (nonce + "x", nonce[:-1], NONCE, "x", client.nonce):
        with pytest.raises(SaslFailed):
            server.prove(client.final(server.server_first, r=wrong))
