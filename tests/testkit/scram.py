"""SCRAM from the client's side, implemented from RFC 5802, and users with passwords for tests."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Sequence

from brokers.contract.users import ITERATIONS, MECHANISM_NAMES, Secret, UserDocument, Verifier, scram_salt

DIGESTS = {1: "sha256", 2: "sha512"}


def salted_password(password: str, salt: bytes, iterations: int, mechanism: int) -> bytes:
    return hashlib.pbkdf2_hmac(DIGESTS[mechanism], password.encode(), salt, iterations)


def verifier(password: str, mechanism: int = 1, salt: bytes = b"some salt", iterations: int = ITERATIONS) -> Verifier:
    digest = DIGESTS[mechanism]
    key = salted_password(password, salt, iterations, mechanism)
    client_key = hmac.digest(key, b"Client Key", digest)
    return Verifier(
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        stored_key=hashlib.new(digest, client_key).digest(),
        server_key=hmac.digest(key, b"Server Key", digest),
    )


def user(
    name: str, *passwords: str, instance_id: str = "ins-aaaaaaaa", mechanisms: Sequence[int] = (1, 2), **fields: object
) -> UserDocument:
    """Returns a user with a secret for each password, named `secret-1` and so on."""
    secrets = tuple(
        Secret(
            id=f"secret-{number}",
            created_at_ms=number,
            verifiers=tuple(
                verifier(password, mechanism, scram_salt(instance_id, name, mechanism)) for mechanism in mechanisms
            ),
        )
        for number, password in enumerate(passwords, start=1)
    )
    return UserDocument(name=name, created_at_ms=1, secrets=secrets, **fields)  # type: ignore[arg-type]


class ScramClient:
    """One exchange: `first()`, then `final()` of the server's answer, then `is_servers()` of its last one."""

    def __init__(self, name: str, password: str, mechanism: int = 1, nonce: str = "fyko+d2lbbFgONRv9qkxdawL") -> None:
        self.name = name.replace("=", "=3D").replace(",", "=2C")
        self.password = password
        self.mechanism = mechanism
        self.nonce = nonce
        self.gs2 = "n,,"
        # True repeats the client's nonce before the server's, as librdkafka did before 2.8.
        self.says_nonce_twice = False
        self._signature = b""

    @property
    def mechanism_name(self) -> str:
        return MECHANISM_NAMES[self.mechanism]

    @property
    def _bare(self) -> str:
        return f"n={self.name},r={self.nonce}"

    def first(self) -> bytes:
        return (self.gs2 + self._bare).encode()

    def final(self, server_first: bytes, **changes: str) -> bytes:
        """Returns the client's final message. `changes` are attributes with wrong values."""
        server_attributes = dict(part.split("=", 1) for part in server_first.decode().split(","))
        digest = DIGESTS[self.mechanism]
        key = salted_password(
            self.password, b64decode(server_attributes["s"]), int(server_attributes["i"]), self.mechanism
        )
        client_key = hmac.digest(key, b"Client Key", digest)
        binding = changes.get("c", b64encode(self.gs2.encode()).decode())
        nonce = f"{self.nonce}{server_attributes['r']}" if self.says_nonce_twice else server_attributes["r"]
        without_proof = f"c={binding},r={changes.get('r', nonce)}"
        message = f"{self._bare},{server_first.decode()},{without_proof}".encode()
        signature = hmac.digest(hashlib.new(digest, client_key).digest(), message, digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(hmac.digest(key, b"Server Key", digest), message, digest)
        return f"{without_proof},p={changes.get('p', b64encode(proof).decode())}".encode()

    def is_servers(self, server_final: bytes) -> bool:
        return server_final == b"v=" + b64encode(self._signature)
