"""Parsing of the client's first message in OAUTHBEARER (RFC 7628, KIP-255)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.access.sasl import SaslFailed
from brokers.engine.access.tokens import BearerMessage, parse_bearer_message
from instances.oauth.limits import TOKEN_BYTES_MAX
from tests.testkit.oauth import message

TOKENS = st.text("abcXYZ019-_~+/.", min_size=1, max_size=40)
NAMES = st.text(st.characters(codec="ascii", exclude_characters=",=\0"), min_size=1, max_size=20)
KEYS = st.text("abcXYZ", min_size=1, max_size=8).filter(lambda key: key != "auth")
VALUES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E) | st.sampled_from(" \t\r\n"), min_size=1)


@given(TOKENS, st.just("") | NAMES, st.dictionaries(KEYS, VALUES, max_size=4))
def test_a_clients_first_message_is_read_back(token: str, identity: str, extensions: dict[str, str]) -> None:
    assert parse_bearer_message(message(token, identity, **extensions)) == BearerMessage(identity, token)


@given(st.binary(max_size=200))
def test_anything_else_is_refused_and_nothing_worse(raw: bytes) -> None:
    with pytest.raises(SaslFailed):
        parse_bearer_message(raw)


@given(TOKENS, st.integers(0, 30), st.binary(min_size=0, max_size=3))
def test_a_damaged_message_is_read_or_refused(token: str, at: int, damage: bytes) -> None:
    whole = message(token)
    try:
        parse_bearer_message(whole[:at] + damage + whole[at + 1 :])
    except SaslFailed:
        return


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,auth=Bearer abc\x01\x01",
        b"n,,\x01other=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01bad key=1\x01\x01",
        b"n,,\x01auth=Bearer abc\x01key=\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer abc\x01\x01",
        b"n,a=x=y,\x01auth=Bearer abc\x01\x01",
        b"n,b=x,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer \xc3\xa9\x01\x01",
        message("abc") + b"\n",
    ],
)
def test_these_are_none(raw: bytes) -> None:
    with pytest.raises(SaslFailed):
        parse_bearer_message(raw)


def test_the_word_bearer_is_read_in_any_case() -> None:
    assert parse_bearer_message(b"n,,\x01auth=bEARER  abc==\x01\x01").token == "abc=="


def test_a_message_is_read_up_to_its_limit() -> None:
    room = TOKEN_BYTES_MAX - len(message(""))
    assert len(parse_bearer_message(message("a" * room)).token) == room
    with pytest.raises(SaslFailed, match=str(TOKEN_BYTES_MAX)):
        parse_bearer_message(message("a" * (room + 1)))


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(parse_bearer_message(message("secret")))
