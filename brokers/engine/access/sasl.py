"""SASL PLAIN (RFC 4616) on the internal listener: one token in, a verdict out (WIRE-18, WIRE-19). The secret is
never logged.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from ipaddress import ip_address

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


def parse_kafka_plain(token: bytes) -> PlainToken:
    """As `parse_plain`, with what Apache Kafka says to its clients.

    Raises:
        SaslFailed: any other shape.
    """
    if len(token) > TOKEN_BYTES_MAX:
        raise SaslFailed("the token is too long")
    parts = token.decode("utf-8", "replace").split("\0", 4)
    if len(parts) != 3:
        raise SaslFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(parts), 4)}")
    authorization_id, username, password = parts
    if not username:
        raise SaslFailed("Authentication failed: username not specified")
    if not password:
        raise SaslFailed("Authentication failed: password not specified")
    return PlainToken(authorization_id, username, password)


def prove_plain(token: bytes, secret: str) -> str:
    """The username, if the password is `secret`; the comparison takes the same time wherever they differ.

    Raises:
        SaslFailed: wrong shape, wrong secret, or the wish to act as somebody else.
    """
    parsed = parse_plain(token)
    if not secret or not hmac.compare_digest(parsed.password.encode(), secret.encode()):
        raise SaslFailed("authentication failed")
    if parsed.authorization_id not in ("", parsed.username) and not _is_address(parsed.authorization_id):
        raise SaslFailed("authentication failed")
    return parsed.username


def passed_on_for(token: bytes) -> str | None:
    """The address of the client whose calls a broker passes on; None for anybody who speaks for itself. It counts only
    after `prove_plain`: whoever knows the secret is one of us.

    Raises:
        SaslFailed: wrong shape.
    """
    authorization_id = parse_plain(token).authorization_id
    return authorization_id if _is_address(authorization_id) else None


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
