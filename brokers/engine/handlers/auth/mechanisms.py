"""PLAIN, SCRAM and OAUTHBEARER for the users of an instance: each takes a client's tokens and returns the server's, and
at last the proof of a user.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from secrets import token_urlsafe
from typing import Final, NamedTuple, Protocol

from brokers.contract.users import MECHANISM_NAMES, Secret, scram_salt
from brokers.engine.access import sasl, scram, tokens
from brokers.engine.access.authorizer import Address
from brokers.engine.access.sasl import SaslFailed
from brokers.engine.access.tokens import TokenRefused, VerifiedToken
from brokers.engine.handlers.authentication import NOBODY_YET, Authentication
from brokers.engine.handlers.logins import OAUTHBEARER, PLAIN

PLAIN_FAILURE: Final = "Authentication failed: Invalid username or password"
OTHER_IDENTITY: Final = "Authentication failed: Client requested an authorization id that is different from username"


class Proof(NamedTuple):
    """Name of an authenticated user, and the secret or token that the client proved to have."""

    username: str
    by: Secret | VerifiedToken


class Outcome(NamedTuple):
    """The server's token for a client's token. `proven` is None if the client has to send another one; `is_refusal` is
    true if the server's token says that the client's is invalid.
    """

    token: bytes
    proven: Proof | None
    is_refusal: bool = False


class RefusalConfirmed(SaslFailed):
    """Failure that was reported by an earlier `Outcome`, and that the client has confirmed."""


# A coroutine function for proofs that take time.
SlowProof = Callable[[], Awaitable[Outcome]]


class Mechanism(Protocol):
    """One authentication exchange. `username` is the name that the client claims, at first ""; `number` is that of
    `logins.Login`; `failure` is the message of a failed authentication.
    """

    number: int
    failure: str
    username: str

    def process_token(self, token: bytes) -> Outcome | SlowProof:
        """Processes the client's next token. Returns the outcome, or a function that takes time to determine it.

        Raises:
            SaslFailed: the authentication has failed; a `SlowProof` raises it too.
            AttemptRefused, QueueFull: the token was not checked.
        """


class _Exchange:
    """State that the exchanges of all mechanisms have."""

    def __init__(self, authentication: Authentication, instance_id: str, address: Address) -> None:
        self._authentication = authentication
        self._instance_id = instance_id
        self._address = address
        self.username = ""


class PlainMechanism(_Exchange):
    """PLAIN (RFC 4616). A password proven before is accepted at once; any other is checked in a thread."""

    number = PLAIN
    failure = PLAIN_FAILURE

    def process_token(self, token: bytes) -> Outcome | SlowProof:
        parsed = sasl.parse_kafka_plain(token)
        self.username = name = parsed.username
        known = self._authentication.find_proven(self._instance_id, name, parsed.password, self._address)
        if known is not None:
            return self._proven(parsed, known)
        return partial(self._prove, parsed)

    async def _prove(self, parsed: sasl.PlainToken) -> Outcome:
        secret = await self._authentication.prove_password(
            self._instance_id, parsed.username, parsed.password, self._address
        )
        return self._proven(parsed, secret)

    def _proven(self, parsed: sasl.PlainToken, secret: Secret | None) -> Outcome:
        if secret is None:
            raise SaslFailed(PLAIN_FAILURE)
        if parsed.authorization_id not in ("", parsed.username):
            raise SaslFailed(OTHER_IDENTITY)
        return Outcome(b"", Proof(parsed.username, secret))


class ScramMechanism(_Exchange):
    """SCRAM (RFC 5802). The client does the hashing; the rest takes microseconds."""

    def __init__(self, number: int, authentication: Authentication, instance_id: str, address: Address) -> None:
        super().__init__(authentication, instance_id, address)
        self.number = number
        self.failure = (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{MECHANISM_NAMES[number]}"
        )
        self._exchange: scram.Exchange | None = None

    def process_token(self, token: bytes) -> Outcome:
        try:
            return self._begin(token) if self._exchange is None else self._finish(self._exchange, token)
        except scram.OtherIdentity:
            raise SaslFailed(OTHER_IDENTITY) from None
        except SaslFailed:
            raise SaslFailed(self.failure) from None

    def _begin(self, token: bytes) -> Outcome:
        authentication, instance_id = self._authentication, self._instance_id
        first = scram.parse_client_first(token)
        self.username = first.username
        authentication.check_attempt(instance_id, first.username, self._address)
        challenge = scram.challenge_of(
            authentication.usable_user(instance_id, first.username),
            self.number,
            scram_salt(instance_id, first.username, self.number),
        )
        self._exchange = scram.Exchange(self.number, first, challenge, token_urlsafe(scram.NONCE_BYTES))
        return Outcome(self._exchange.server_first, None)

    def _finish(self, exchange: scram.Exchange, token: bytes) -> Outcome:
        authentication, instance_id, name = self._authentication, self._instance_id, self.username
        authentication.check_attempt(instance_id, name, self._address)
        authentication.begin_attempt(instance_id, name, self._address)
        proven = exchange.prove(token)
        authentication.record_success(instance_id, name, self._address, was_counted=True)
        return Outcome(proven.answer, Proof(name, proven.candidate.secret))


class OAuthBearerMechanism(_Exchange):
    """OAUTHBEARER (RFC 7628): the response to an invalid token has its error code after the client's confirmation."""

    number = OAUTHBEARER
    failure = "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"

    def __init__(self, authentication: Authentication, instance_id: str, address: Address) -> None:
        super().__init__(authentication, instance_id, address)
        self._tokens = authentication.tokens
        self._refusal = ""

    def process_token(self, token: bytes) -> Outcome | SlowProof:
        refusal, self._refusal = self._refusal, ""
        if refusal and token == tokens.REFUSAL_CONFIRMATION:
            raise RefusalConfirmed(tokens.INVALID_TOKEN_REPLY.decode(), refusal)
        self._authentication.check_attempt(self._instance_id, NOBODY_YET, self._address)
        try:
            message = tokens.parse_bearer_message(token)
        except SaslFailed as error:
            self._authentication.begin_attempt(self._instance_id, NOBODY_YET, self._address)
            raise SaslFailed(self.failure, str(error)) from None
        known = self._tokens.find_proven(self._instance_id, message.token, self._address)
        if known is not None:
            return self._proven(message, known)
        return partial(self._prove, message)

    async def _prove(self, message: tokens.BearerMessage) -> Outcome:
        try:
            verified = await self._tokens.prove(self._instance_id, message.token, self._address)
        except TokenRefused as refused:
            self._refusal = f"invalid token: {refused}"
            return Outcome(tokens.INVALID_TOKEN_REPLY, None, is_refusal=True)
        return self._proven(message, verified)

    def _proven(self, message: tokens.BearerMessage, verified: VerifiedToken) -> Outcome:
        self.username = verified.name
        if message.identity not in ("", verified.name):
            raise SaslFailed(
                f"Authentication failed: Client requested an authorization id ({message.identity}) that is different "
                f"from the token's principal name ({verified.name})"
            )
        return Outcome(b"", Proof(verified.name, verified))


Make = Callable[[Authentication, str, Address], Mechanism]
MECHANISMS: Final[Mapping[str, Make]] = {
    "PLAIN": PlainMechanism,
    **{name: partial(ScramMechanism, number) for number, name in MECHANISM_NAMES.items()},
}
WITH_TOKENS: Final[Mapping[str, Make]] = {**MECHANISMS, "OAUTHBEARER": OAuthBearerMechanism}


def offered(authentication: Authentication, instance_id: str) -> Mapping[str, Make]:
    """Returns the mechanisms that an instance offers at present."""
    return MECHANISMS if authentication.tokens.configuration(instance_id) is None else WITH_TOKENS
