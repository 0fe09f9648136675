"""Messages of OAUTHBEARER (RFC 7628, KIP-255), parsed as Apache Kafka's OAuthBearerClientInitialResponse does. Pure.

Extensions are parsed and ignored, as by Kafka's own handler.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from brokers.engine.access.sasl import SaslFailed
from instances.oauth.limits import TOKEN_BYTES_MAX

# Sent instead of an error; the client replies with `CONFIRMATION` and then gets the error.
INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
CONFIRMATION: Final = b"\x01"
_AUTH: Final = "auth"
_BEARER: Final = "bearer"
_SASLNAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIRS: Final = r"(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*"
_MESSAGE: Final = re.compile(rf"n,(?:a=(?P<identity>{_SASLNAME}))?,\x01(?P<pairs>{_PAIRS})\x01")
_CREDENTIALS: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")


@dataclass(frozen=True, slots=True)
class BearerMessage:
    """First message of a client. `identity` is the user that it requests to act as, "" for the one in the token."""

    identity: str
    token: str = field(repr=False)


def parse(message: bytes) -> BearerMessage:
    """Parses the first message of a client.

    Raises:
        SaslFailed: the message is malformed.
    """
    if len(message) > TOKEN_BYTES_MAX:
        raise SaslFailed(f"the message has more than {TOKEN_BYTES_MAX} bytes")
    match = _MESSAGE.fullmatch(message.decode("utf-8", "replace"))
    if match is None:
        raise SaslFailed("the message is not a valid OAUTHBEARER message")
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01")[:-1])
    credentials = _CREDENTIALS.fullmatch(pairs.get(_AUTH, ""))
    if credentials is None or credentials["scheme"].lower() != _BEARER:
        raise SaslFailed("the message has no bearer token")
    # Kafka compares the identity as it is written, without resolving its escapes.
    return BearerMessage(match["identity"] or "", credentials["token"])
