"""Client side of SCRAM (RFC 5802), as Kafka uses it: without channel binding and without SASLprep."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from functools import lru_cache
from typing import Final

from brokers.contract.users import ITERATIONS_MAX, ITERATIONS_MIN

# Mechanisms with the names of their digests in `hashlib`.
SCRAM_MECHANISMS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_NO_CHANNEL_BINDING: Final = "n,,"


class ScramRefused(Exception):
    """The server refused the login, or does not prove that it knows the password."""


class ScramClient:
    """One authentication: `first_message`, then `final_message` for the server's answer, then `verify` for the next."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str = "") -> None:
        self._digest = SCRAM_MECHANISMS[mechanism]
        self._password = password
        self._nonce = nonce or secrets.token_urlsafe(24)
        self._first_bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={self._nonce}"
        self._server_signature = b""

    def first_message(self) -> bytes:
        return f"{_NO_CHANNEL_BINDING}{self._first_bare}".encode()

    def final_message(self, server_first: bytes) -> bytes:
        """Returns the proof for the server's first message. Raises `ScramRefused`."""
        text, fields = _parse_message(server_first)
        try:
            nonce, salt, iterations = fields["r"], b64decode(fields["s"], validate=True), int(fields["i"])
        except (KeyError, ValueError, Base64Error) as error:
            raise ScramRefused("the answer is not SCRAM") from error
        # Many iterations would keep the caller busy, and a few would make the password easy to guess from the proof.
        if not nonce.startswith(self._nonce) or not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ScramRefused("the answer is not SCRAM")
        salted_password = _salted_password(self._digest, self._password, salt, iterations)
        client_key = hmac.digest(salted_password, b"Client Key", self._digest)
        without_proof = f"c={b64encode(_NO_CHANNEL_BINDING.encode()).decode()},r={nonce}"
        auth_message = f"{self._first_bare},{text},{without_proof}".encode()
        signature = hmac.digest(hashlib.new(self._digest, client_key).digest(), auth_message, self._digest)
        self._server_signature = hmac.digest(
            hmac.digest(salted_password, b"Server Key", self._digest), auth_message, self._digest
        )
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Checks the server's last message. Raises `ScramRefused`."""
        _, fields = _parse_message(server_final)
        try:
            signature = b64decode(fields.get("v", ""), validate=True)
        except (ValueError, Base64Error) as error:
            raise ScramRefused("the answer is not SCRAM") from error
        if not self._server_signature or not hmac.compare_digest(signature, self._server_signature):
            raise ScramRefused("the server does not know the password")


def _parse_message(message: bytes) -> tuple[str, dict[str, str]]:
    try:
        text = message.decode()
    except UnicodeDecodeError as error:
        raise ScramRefused("the answer is not SCRAM") from error
    fields = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    if "e" in fields:
        raise ScramRefused("the login is refused")
    return text, fields


@lru_cache(maxsize=8)
def _salted_password(digest: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Returns the salted password, cached, since its computation takes milliseconds and each connection needs it."""
    return hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
