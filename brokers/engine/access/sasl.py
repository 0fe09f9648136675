"""SASL PLAIN (RFC 4616): parsing of its token, and its check on the internal listener (WIRE-18, WIRE-19).

The secret is never logged.
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
    """Authentication failed (SASL_AUTHENTICATION_FAILED, 58). The message does not disclose which part was wrong."""

    wire_code = 58

    def __init__(self, message: str, reason: str = "") -> None:
        """Sets the message for the client and, if it has more detail, the `reason` for the broker's log."""
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
    """Parses a token of the form `[authzid] NUL authcid NUL passwd`.

    Raises:
        SaslFailed: the token has another form.
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
    """Parses a token like `parse_plain`, with the error messages of Apache Kafka.

    Raises:
        SaslFailed: the token has another form.
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


def verify_plain(token: bytes, secret: str) -> str:
    """Returns the user name if the password is `secret`, compared in constant time.

    Raises:
        SaslFailed: the token is malformed, the secret is wrong, or the client requests another identity.
    """
    parsed = parse_plain(token)
    if not secret or not hmac.compare_digest(parsed.password.encode(), secret.encode()):
        raise SaslFailed("authentication failed")
    if parsed.authorization_id not in ("", parsed.username) and parse_forwarded_client(parsed.authorization_id) is None:
        raise SaslFailed("authentication failed")
    return parsed.username


class ForwardedClient(NamedTuple):
    """A client whose requests a broker forwards: its address and its authenticated user."""

    address: str
    user: str = ANONYMOUS

    @property
    def authorization_id(self) -> str:
        """Authorization id in the token: the address and, unless it is anonymous, the user.

        Brokers of releases without users accept only the form without a user.
        """
        return self.address if self.user == ANONYMOUS else f"{self.address} {paths.sanitise(self.user)}"


def forwarded_client(token: bytes) -> ForwardedClient | None:
    """Returns the client whose requests the peer forwards, None if the peer acts for itself.

    The result may only be trusted after `verify_plain`: a peer that has the secret is a process of the cluster.

    Raises:
        SaslFailed: the token is malformed.
    """
    return parse_forwarded_client(parse_plain(token).authorization_id)


def parse_forwarded_client(authorization_id: str) -> ForwardedClient | None:
    """Returns the forwarded client that an authorization id names, None if it names none."""
    address, space, user = authorization_id.partition(" ")
    try:
        ip_address(address)
    except ValueError:
        return None
    if not space:
        return ForwardedClient(address)
    return ForwardedClient(address, paths.desanitise(user)) if user else None
