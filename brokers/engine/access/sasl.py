"""SASL PLAIN (RFC 4616) on the internal listener: one token in, a verdict out (WIRE-18, WIRE-19). The secret is
never logged.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from ipaddress import ip_address
from typing import NamedTuple

from brokers.contract import paths
from brokers.engine.access.principals import ANONYMOUS

MECHANISMS = ("PLAIN",)
TOKEN_BYTES_MAX = 4096


class SaslFailed(Exception):
    """Answered as SASL_AUTHENTICATION_FAILED (58); the message says nothing about which part was wrong."""

    wire_code = 58

    def __init__(self, message: str, reason: str = "") -> None:
        """`reason`: for the broker's log alone, where it says more than the client may hear."""
        super().__init__(message)
        self.reason = reason or message


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
    if parsed.authorization_id not in ("", parsed.username) and client_in(parsed.authorization_id) is None:
        raise SaslFailed("authentication failed")
    return parsed.username


class PassedOn(NamedTuple):
    """The client whose calls a broker passes on: its address, and who it proved to be there."""

    address: str
    user: str = ANONYMOUS

    @property
    def authorization_id(self) -> str:
        """As the token says it. Of who proved nothing only the address, as brokers of before users read it."""
        return self.address if self.user == ANONYMOUS else f"{self.address} {paths.sanitise(self.user)}"


def passed_on_for(token: bytes) -> PassedOn | None:
    """The client whose calls a broker passes on; None for anybody who speaks for itself. It counts only after
    `prove_plain`: whoever knows the secret is one of us.

    Raises:
        SaslFailed: wrong shape.
    """
    return client_in(parse_plain(token).authorization_id)


def client_in(authorization_id: str) -> PassedOn | None:
    address, space, user = authorization_id.partition(" ")
    try:
        ip_address(address)
    except ValueError:
        return None
    if not space:
        return PassedOn(address)
    return PassedOn(address, paths.desanitise(user)) if user else None
