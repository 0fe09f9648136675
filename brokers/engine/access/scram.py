"""SCRAM as a server speaks it (RFC 5802, RFC 7677), in what Apache Kafka's clients say: no channel binding (`n,,`),
extensions that are read and ignored. Pure; nonces are handed in.

A user that does not exist gets a salt by the function of those that do, so that nobody learns from the first answer who
is there.
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

# As random as a server's nonce is.
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
    """The client wishes to act as somebody else."""


class Candidate(NamedTuple):
    """One secret that may be meant."""

    secret: Secret
    verifier: Verifier


@dataclass(frozen=True, slots=True)
class Challenge:
    """Salt and iterations as the first answer names them, and which secrets they belong to; none: no such user."""

    salt: bytes
    iterations: int
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class ClientFirst:
    gs2_header: str
    bare: str
    username: str
    nonce: str


class Proven(NamedTuple):
    candidate: Candidate
    # The server's own proof, which the client checks.
    answer: bytes


def challenge_of(user: UserDocument | None, mechanism: int, salt_without_user: bytes) -> Challenge:
    """Returns the challenge for a user; None, or one without a secret under this mechanism, has `salt_without_user`."""
    found = () if user is None else _candidates(user.secrets, mechanism)
    if not found:
        return Challenge(salt_without_user, ITERATIONS, ())
    newest = found[-1].verifier
    same = tuple(
        each
        for each in found
        if (each.verifier.salt, each.verifier.iterations) == (newest.salt, newest.iterations)
    )  # fmt: skip
    return Challenge(newest.salt, newest.iterations, same)


def _candidates(secrets: Sequence[Secret], mechanism: int) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(secret, verifier)
        for secret in secrets
        for verifier in secret.verifiers
        if verifier.mechanism == mechanism
    )


def parse_client_first(token: bytes) -> ClientFirst:
    """
    Raises:
        SaslFailed: it is no such message.
        OtherIdentity: it asks for another identity than its user's.
    """
    match = _FIRST.fullmatch(_text(token))
    if match is None:
        raise SaslFailed("the first message is none of SCRAM")
    username = _name(match["name"])
    if _name(match["authzid"] or "") not in ("", username):
        raise OtherIdentity("another identity is asked for")
    return ClientFirst(gs2_header=match["gs2"], bare=match["bare"], username=username, nonce=match["nonce"])


class Exchange:
    """One authentication, from the client's first message on."""

    __slots__ = ("_challenge", "_first", "_mechanism", "_nonce", "server_first")

    def __init__(self, mechanism: int, first: ClientFirst, challenge: Challenge, nonce: str) -> None:
        """`nonce`: printable, without commas, and not to be guessed."""
        self._mechanism = mechanism
        self._first = first
        self._challenge = challenge
        self._nonce = first.nonce + nonce
        salt = b64encode(challenge.salt).decode()
        self.server_first = f"r={self._nonce},s={salt},i={challenge.iterations}".encode()

    def prove(self, token: bytes) -> Proven:
        """What the client's final message proves.

        Raises:
            SaslFailed: nothing.
        """
        match = _FINAL.fullmatch(_text(token))
        if match is None:
            raise SaslFailed("the final message is none of SCRAM")
        # librdkafka before 2.8 says its own nonce once more in front. As in Kafka that may pass: the proof covers it.
        ending = match["nonce"][-len(self._nonce) :]
        if not hmac.compare_digest(ending.encode(), self._nonce.encode()):
            raise SaslFailed("the nonce is another one")
        # Kafka's own client says `n,,` whatever it said before.
        if _decoded(match["binding"]).decode("utf-8", "replace") not in (_NO_BINDING, self._first.gs2_header):
            raise SaslFailed("channel binding is not offered")
        proof = _decoded(match["proof"])
        message = ",".join((self._first.bare, self.server_first.decode(), match["without_proof"])).encode()
        proven = self._proven_by(proof, message)
        if proven is None:
            raise SaslFailed("invalid credentials")
        digest = DIGESTS[self._mechanism]
        signature = hmac.digest(proven.verifier.server_key, message, digest)
        return Proven(proven, b"v=" + b64encode(signature))

    def _proven_by(self, proof: bytes, message: bytes) -> Candidate | None:
        """Returns the candidate that has the proof; as many are tried whether there are none, one or two."""
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


def _text(token: bytes) -> str:
    if len(token) > TOKEN_BYTES_MAX:
        raise SaslFailed("the token is too long")
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise SaslFailed("the token is not UTF-8") from None


def _name(escaped: str) -> str:
    return escaped.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error:
        raise SaslFailed("base64 is torn") from None
