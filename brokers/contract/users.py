"""Users of an instance as stored in ZooKeeper, with SCRAM verifiers and never with passwords (RFC 5802)."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

# Users of an instance; `instance_limits.USERS_BYTES_MAX` limits the weight of their documents.
USERS_MAX: Final = 1_000
# Secrets of one user: an old and a new one while its clients change over.
SECRETS_PER_USER_MAX: Final = 2
# Length of a name as encoded in ZooKeeper (`paths.sanitise`).
USER_NAME_BYTES_MAX: Final = 255
# Numbers of the mechanisms in AlterUserScramCredentials.
SCRAM_SHA_256: Final = 1
SCRAM_SHA_512: Final = 2
MECHANISM_NAMES: Final[Mapping[int, str]] = {SCRAM_SHA_256: "SCRAM-SHA-256", SCRAM_SHA_512: "SCRAM-SHA-512"}
# Names of the digests in `hashlib`, and their sizes in bytes.
DIGESTS: Final[Mapping[int, str]] = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
DIGEST_BYTES: Final[Mapping[int, int]] = {SCRAM_SHA_256: 32, SCRAM_SHA_512: 64}
# Kafka's limits (KIP-554).
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
# Iterations of a secret that the control plane makes, which are also reported for users that do not exist.
ITERATIONS: Final = 4_096
SALT_BYTES: Final = 20
SALT_BYTES_MAX: Final = 64
SECRET_ID_BYTES_MAX: Final = 64
# Names with a meaning of their own in principals.
RESERVED_NAMES: Final = frozenset({"ANONYMOUS", "*"})
# Names that cannot be in URLs of the REST API and the console, because clients resolve them as folders.
DOT_NAMES: Final = frozenset({".", ".."})


def scram_salt(instance_id: str, name: str, mechanism: int) -> bytes:
    """Returns the salt of every secret that the control plane makes for a user, existing or not.

    A server sends one salt before it knows which of two secrets a client has, so both must have the same salt. It is
    unique per user, as RFC 5802 requires, because no two users share an instance and a name. It is computed in the same
    way for users that do not exist: any other function would disclose which names exist.
    """
    salt_input = f"penstock scram salt/{instance_id}/{MECHANISM_NAMES[mechanism]}/{name}"
    return hashlib.sha256(salt_input.encode()).digest()[:SALT_BYTES]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """Verifier of a password for one mechanism, from which the password cannot be derived."""

    mechanism: int
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"Verifier({MECHANISM_NAMES.get(self.mechanism, self.mechanism)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """One password of a user, as verifiers for one or several mechanisms. `id` is shown to the owner."""

    id: str
    created_at_ms: int
    verifiers: tuple[Verifier, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserDocument:
    """Document at `/ckafka/instances/<id>/users/<name>`.

    A superuser may do everything in its instance, regardless of its ACLs. `expires_at_ms` is wall time, None for never.
    """

    name: str
    created_at_ms: int
    superuser: bool = False
    disabled: bool = False
    expires_at_ms: int | None = None
    secrets: tuple[Secret, ...] = ()

    def is_usable(self, now_ms: int) -> bool:
        """True if the user may sign in and stay signed in."""
        return not self.disabled and (self.expires_at_ms is None or now_ms < self.expires_at_ms)

    def to_json(self) -> bytes:
        body = {
            "version": 1,
            "name": self.name,
            "created_at_ms": self.created_at_ms,
            "superuser": self.superuser,
            "disabled": self.disabled,
            "expires_at_ms": self.expires_at_ms,
            "secrets": [
                {
                    "id": secret.id,
                    "created_at_ms": secret.created_at_ms,
                    "verifiers": [_verifier_to_json(verifier) for verifier in secret.verifiers],
                }
                for secret in self.secrets
            ],
        }
        return json.dumps(body, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_json(cls, raw: bytes) -> UserDocument:
        body = json.loads(raw)
        return cls(
            name=body["name"],
            created_at_ms=body["created_at_ms"],
            superuser=bool(body.get("superuser", False)),
            # Without a default: a user whose state is unknown must not be let in.
            disabled=bool(body["disabled"]),
            expires_at_ms=body["expires_at_ms"],
            secrets=tuple(
                Secret(
                    id=secret["id"],
                    created_at_ms=secret["created_at_ms"],
                    verifiers=tuple(map(_verifier_from_json, secret["verifiers"])),
                )
                for secret in body.get("secrets", ())
            ),
        )


def _verifier_to_json(verifier: Verifier) -> dict[str, Any]:
    return {
        "mechanism": verifier.mechanism,
        "iterations": verifier.iterations,
        "salt": b64encode(verifier.salt).decode(),
        "stored_key": b64encode(verifier.stored_key).decode(),
        "server_key": b64encode(verifier.server_key).decode(),
    }


def _verifier_from_json(body: Mapping[str, Any]) -> Verifier:
    return Verifier(
        mechanism=body["mechanism"],
        iterations=body["iterations"],
        salt=b64decode(body["salt"], validate=True),
        stored_key=b64decode(body["stored_key"], validate=True),
        server_key=b64decode(body["server_key"], validate=True),
    )
