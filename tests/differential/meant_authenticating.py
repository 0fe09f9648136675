"""Intended differences from Apache Kafka in authentication, each with its reason."""

from __future__ import annotations

from typing import Any, Final

from tests.differential.difference import Difference
from tests.differential.play import CLOSED

FAILED: Final = {
    "error_code": 58,
    "error_message": "Authentication failed during authentication due to invalid credentials with SASL mechanism "
    "SCRAM-SHA-256",
    "token": [""],
    "lifetime": 0,
}
CHALLENGED: Final = {"error_code": 0, "error_message": "", "token": ["i", "r", "s"], "lifetime": 0}
INVALID: Final = {"error_code": 0, "error_message": "", "token": '{"status":"invalid_token"}', "lifetime": "0 minutes"}
NO_MESSAGE: Final = {
    "error_code": 58,
    "error_message": "Authentication failed during authentication due to invalid credentials with SASL mechanism "
    "OAUTHBEARER",
    "token": "",
    "lifetime": "0 minutes",
}


def _always(answer: Any) -> Any:
    return lambda _recorded: answer


AUTHENTICATING: Final = (
    Difference("sasl", "scram, * proof, 3*", "a proof of another length is a wrong one, not a fault", _always(FAILED)),
    Difference("sasl", "scram, unknown user, 2*", "the first answer tells nobody who is there", _always(CHALLENGED)),
    Difference(
        "oauth",
        "oauth, invalid: issued in the future, 2*",
        "a token from the future is none: a clock is wrong, and nobody knows whose",
        _always(INVALID),
    ),
    Difference("oauth", "oauth, torn: basic, 2*", "a message that is none is answered as such", _always(NO_MESSAGE)),
    Difference(
        "sasl",
        "metadata after the handshake, 2*",
        "a call that is not of authentication ends the connection unread",
        _always(CLOSED),
    ),
)
