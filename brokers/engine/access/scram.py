"""Server side of SCRAM (RFC 5802, RFC 7677), as far as Apache Kafka's clients use it. Pure; nonces are passed in.

Channel binding is not supported (`n,,`), extensions are parsed and ignored. A user that does not exist gets a salt that
is computed like those of existing users, so that the first answer does not disclose which users exist.

A secret that a Kafka client has set (AlterUserScramCredentials) has the client's salt and iterations, which differ from
those of a user that does not exist: such a user is disclosed. Apache Kafka discloses every user: it refuses an unknown
one in the first answer.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from brokers.contract.users import (
    DIGEST_BYTES,
    DIGESTS,
    ITERATIONS,
    SECRETS_PER_USER_MAX,
    Secret,
    UserDocument,
    Verifier,
)
from brokers.engine.access.sasl import TOKEN_BYTES_MAX, SaslFailed

# Random bytes of a server's nonce.
NONCE_BYTES: Final = 24
_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_VALUE: Final = r"[^,\0]+"
_NAME: Final = r"(?:[^,=\0]|=2C|=3D)+"
_EXTENSIONS: Final = rf"(?:,[A-Za-z]+={_VALUE})*"
_BASE64: Final = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?"
_FIRST: Final = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{_NAME}))?,)(?P<bare>(?:m={_VALUE},)?n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE})"
    rf"{_EXTENSIONS})"
)
_FINAL: Final = re.compile(
    rf"(?P<without_proof>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_NO_BINDING: Final = "n,,"


class OtherIdentity(SaslFailed):
    """The client requests another identity than that of its user."""


class Candidate(NamedTuple):
    """A secret that the client's proof may be for."""

    secret: Secret
    verifier: Verifier


@dataclass(frozen=True, slots=True)
class Challenge:
    """Salt and iterations of the server's first message, and the secrets that have them; none for an unknown user."""

    salt: bytes
    iterations: int
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """Parts of the client's first message; `bare` is the message without its GS2 header, which the proof covers."""

    gs2_header: str
    bare: str
    username: str
    nonce: str


class ProvenCandidate(NamedTuple):
    """The secret that the client proved, and the server's final message, whose signature the client verifies."""

    candidate: Candidate
    answer: bytes


def challenge_of(user: UserDocument | None, mechanism: int, salt_without_user: bytes) -> Challenge:
    """Returns the challenge for a user.

    It has `salt_without_user` if `user` is None or has no secret for the mechanism.
    """
    candidates = () if user is None else _candidates(user.secrets, mechanism)
    if not candidates:
        return Challenge(salt_without_user, ITERATIONS, ())
    newest = candidates[-1].verifier
    matching = tuple(
        candidate
        for candidate in candidates
        if (candidate.verifier.salt, candidate.verifier.iterations) == (newest.salt, newest.iterations)
    )  # fmt: skip
    return Challenge(newest.salt, newest.iterations, matching)


def _candidates(secrets: Sequence[Secret], mechanism: int) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(secret, verifier)
        for secret in secrets
        for verifier in secret.verifiers
        if verifier.mechanism == mechanism
    )


def parse_client_first(token: bytes) -> ClientFirst:
    """Parses the client's first message.

    Raises:
        SaslFailed: the message is malformed.
        OtherIdentity: the client requests another identity than that of its user.
    """
    match = _FIRST.fullmatch(_decode_text(token))
    if match is None:
        raise SaslFailed("the first message is not a valid SCRAM message")
    username = _unescape_name(match["name"])
    if _unescape_name(match["authzid"] or "") not in ("", username):
        raise OtherIdentity("the client requests another identity")
    return ClientFirst(gs2_header=match["gs2"], bare=match["bare"], username=username, nonce=match["nonce"])


class Exchange:
    """State of one authentication after the client's first message."""

    __slots__ = ("_challenge", "_first", "_mechanism", "_nonce", "server_first")

    def __init__(self, mechanism: int, first: ClientFirst, challenge: Challenge, nonce: str) -> None:
        """Makes the server's first message. `nonce` must be printable, without commas, and unpredictable."""
        self._mechanism = mechanism
        self._first = first
        self._challenge = challenge
        self._nonce = first.nonce + nonce
        salt = b64encode(challenge.salt).decode()
        self.server_first = f"r={self._nonce},s={salt},i={challenge.iterations}".encode()

    def prove(self, token: bytes) -> ProvenCandidate:
        """Verifies the client's final message and returns the secret that it proves.

        Raises:
            SaslFailed: the message is malformed or proves no secret.
        """
        match = _FINAL.fullmatch(_decode_text(token))
        if match is None:
            raise SaslFailed("the final message is not a valid SCRAM message")
        # librdkafka before 2.8 repeats its own nonce in front. That is accepted as in Kafka: the proof covers it.
        ending = match["nonce"][-len(self._nonce) :]
        if not hmac.compare_digest(ending.encode(), self._nonce.encode()):
            raise SaslFailed("the nonce does not match")
        # Kafka's own client always sends `n,,` here, whatever its first message had.
        if _decode_base64(match["binding"]).decode("utf-8", "replace") not in (_NO_BINDING, self._first.gs2_header):
            raise SaslFailed("the channel binding differs from the first message")
        proof = _decode_base64(match["proof"])
        message = ",".join((self._first.bare, self.server_first.decode(), match["without_proof"])).encode()
        proven = self._find_proven_candidate(proof, message)
        if proven is None:
            raise SaslFailed("invalid credentials")
        digest = DIGESTS[self._mechanism]
        signature = hmac.digest(proven.verifier.server_key, message, digest)
        return ProvenCandidate(proven, b"v=" + b64encode(signature))

    def _find_proven_candidate(self, proof: bytes, message: bytes) -> Candidate | None:
        """Returns the candidate that matches the proof.

        The number of computations does not depend on the number of candidates, so that the time does not disclose it.
        """
        digest, size = DIGESTS[self._mechanism], DIGEST_BYTES[self._mechanism]
        proven = None
        candidates = self._challenge.candidates
        for candidate in (*candidates, *(None,) * (SECRETS_PER_USER_MAX - len(candidates))):
            stored_key = bytes(size) if candidate is None else candidate.verifier.stored_key
            signature = hmac.digest(stored_key, message, digest)
            client_key = bytes(a ^ b for a, b in zip(proof.ljust(size, b"\0"), signature, strict=False))
            computed = hashlib.new(digest, client_key).digest()
            if hmac.compare_digest(computed, stored_key) and candidate is not None and len(proof) == size:
                proven = candidate
        return proven


def _decode_text(token: bytes) -> str:
    if len(token) > TOKEN_BYTES_MAX:
        raise SaslFailed("the token is too long")
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise SaslFailed("the token is not UTF-8") from None


def _unescape_name(escaped: str) -> str:
    return escaped.replace("=2C", ",").replace("=3D", "=")


def _decode_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error:
        raise SaslFailed("the base64 is malformed") from None
