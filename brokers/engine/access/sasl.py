"""SASL PLAIN (RFC 4616) on the internal listener: one token in, a verdict out (WIRE-18, WIRE-19). The secret is
never logged.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass

MECHANISMS = ("PLAIN",)
TOKEN_BYTES_MAX = 4096


class SaslFailed(Exception):
    """Answered as SASL_AUTHENTICATION_FAILED (58); the message says nothing about which part was wrong."""

    wire_code = 58


@dataclass(frozen=True, slots=True)
class PlainToken:
    authorization_id: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"PlainToken(username={self.username!r})"


def parse_plain(token: bytes) -> PlainToken:
    """`[authzid] NUL authcid NUL passwd`.

    Raises:
        SaslFailed: any other shape.
    """
    if len(token) > TOKEN_BYTES_MAX:
        raise SaslFailed("the token is too long")
    parts = token.split(b"\0")
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise SaslFailed("the token is not of the form [authzid] NUL authcid NUL passwd")
    try:
        authorization_id, username, password = (part.decode() for part in parts)
    except UnicodeDecodeError:
        raise SaslFailed("the token is not UTF-8") from None
    return PlainToken(authorization_id, username, password)


def prove_plain(token: bytes, secret: str) -> str:
    """The username, if the password is `secret`; the comparison takes the same time wherever they differ.

    Raises:
        SaslFailed: wrong shape, wrong secret, or the wish to act as somebody else.
    """
    parsed = parse_plain(token)
    if not secret or not hmac.compare_digest(parsed.password.encode(), secret.encode()):
        raise SaslFailed("authentication failed")
    if parsed.authorization_id not in ("", parsed.username):
        raise SaslFailed("authentication failed")
    return parsed.username
