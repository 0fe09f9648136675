"""SASL PLAIN on the internal listener and the identities it proves (WIRE-18…20)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.access import principals
from brokers.engine.access.sasl import (
    TOKEN_BYTES_MAX,
    ForwardedClient,
    SaslFailed,
    forwarded_client,
    parse_plain,
    verify_plain,
)

SECRET = "correct horse"


def test_the_right_secret_proves_the_username() -> None:
    assert verify_plain(b"\0ins-7k2m9qxa\0correct horse", SECRET) == "ins-7k2m9qxa"
    assert verify_plain(b"penstock\0penstock\0correct horse", SECRET) == "penstock"


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\0",
        b"\0\0",
        b"\0user\0",
        b"\0\0correct horse",
        b"\0user\0wrong",
        b"\0user\0correct horse\0",
        b"user\0correct horse",
        b"other\0user\0correct horse",
        b"\0\xff\0correct horse",
        b"\0user\0" + b"a" * TOKEN_BYTES_MAX,
    ],
)
def test_anything_else_proves_nothing(token: bytes) -> None:
    with pytest.raises(SaslFailed):
        verify_plain(token, SECRET)


def test_an_empty_secret_opens_nothing() -> None:
    with pytest.raises(SaslFailed):
        verify_plain(b"\0user\0x", "")


def test_neither_the_error_nor_the_token_shows_a_password() -> None:
    assert SECRET not in repr(parse_plain(b"\0user\0correct horse"))
    with pytest.raises(SaslFailed) as refused:
        verify_plain(b"\0user\0hunter2", SECRET)
    assert "hunter2" not in str(refused.value)


@given(st.binary(max_size=200))
def test_no_token_raises_anything_but_a_refusal(token: bytes) -> None:
    try:
        verify_plain(token, SECRET)
    except SaslFailed:
        return
    assert token.endswith(b"\0" + SECRET.encode())


def test_a_tenant_port_gives_the_anonymous_user_of_its_instance() -> None:
    """CKA-9: the port determines the instance."""
    principal = principals.tenant_port_principal("ins-7k2m9qxa")
    assert (principal.wire_name, principal.instance_id, principal.internal) == ("User:ANONYMOUS", "ins-7k2m9qxa", False)


def test_an_internal_login_is_the_cluster_an_instance_or_nobody() -> None:
    cluster = principals.internal_login_principal("penstock")
    owner = principals.internal_login_principal("ins-7k2m9qxa")
    assert cluster is not None and cluster.instance_id is None and cluster.internal
    assert owner is not None and owner.instance_id == "ins-7k2m9qxa" and owner.wire_name == "User:ANONYMOUS"
    assert principals.internal_login_principal("alice") is None
    assert principals.internal_login_principal("") is None


@pytest.mark.parametrize("user", ["ANONYMOUS", "alice", "a b", "ü/%\0", "127.0.0.1"])
def test_a_broker_says_for_whom_it_passes_calls_on(user: str) -> None:
    client = ForwardedClient("10.0.0.1", user)
    token = f"{client.authorization_id}\0ins-7k2m9qxa\0{SECRET}".encode()
    assert verify_plain(token, SECRET) == "ins-7k2m9qxa"
    assert forwarded_client(token) == client


def test_a_forwarded_unauthenticated_client_is_its_address_to_older_brokers() -> None:
    assert ForwardedClient("10.0.0.1").authorization_id == "10.0.0.1"
    assert forwarded_client(b"\0ins-7k2m9qxa\0x") is None


@pytest.mark.parametrize("said", ["10.0.0.1 ", "alice", " alice", "alice 10.0.0.1"])
def test_an_authorization_id_that_names_no_client_proves_nothing(said: str) -> None:
    token = f"{said}\0ins-7k2m9qxa\0{SECRET}".encode()
    with pytest.raises(SaslFailed):
        verify_plain(token, SECRET)
