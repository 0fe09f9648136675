"""Users of an instance, as brokers keep them in ZooKeeper: with SCRAM verifiers, never with passwords (RFC 5802)."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

# Of an instance; what all their documents weigh follows from it.
USERS_MAX: Final = 1_000
# Of one user: an old and a new one while its clients change over.
SECRETS_PER_USER_MAX: Final = 2
# As it stands in ZooKeeper (`paths.sanitise`).
USER_NAME_BYTES_MAX: Final = 255
# Mechanisms as AlterUserScramCredentials numbers them.
SCRAM_SHA_256: Final = 1
SCRAM_SHA_512: Final = 2
MECHANISM_NAMES: Final[Mapping[int, str]] = {SCRAM_SHA_256: "SCRAM-SHA-256", SCRAM_SHA_512: "SCRAM-SHA-512"}
# As `hashlib` knows them, and how many bytes each makes.
DIGESTS: Final[Mapping[int, str]] = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
DIGEST_BYTES: Final[Mapping[int, int]] = {SCRAM_SHA_256: 32, SCRAM_SHA_512: 64}
# As Kafka has them (KIP-554).
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
# Of a secret that the control plane makes, and what a user that does not exist seems to have.
ITERATIONS: Final = 4_096
SALT_BYTES: Final = 20
SALT_BYTES_MAX: Final = 64
SECRET_ID_BYTES_MAX: Final = 64
# They mean something where principals are named.
RESERVED_NAMES: Final = frozenset({"ANONYMOUS", "*"})
# Addresses of the REST API and of the console cannot name these: a client takes them for folders.
DOT_NAMES: Final = frozenset({".", ".."})


def scram_salt(instance_id: str, name: str, mechanism: int) -> bytes:
    """Returns the salt of every secret that the control plane makes for a user, and of a user that does not exist.

    A server names one salt before it knows which of two secrets a client has, so both must have the same one (RFC 5802
    asks for one that nobody else has, and no two users share an instance and a name). A user that does not exist has
    the same function: any other one, with a key or without, would tell which names exist.
    """
    named = f"penstock scram salt/{instance_id}/{MECHANISM_NAMES[mechanism]}/{name}"
    return hashlib.sha256(named.encode()).digest()[:SALT_BYTES]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """What proves a password under one mechanism without knowing it."""

    mechanism: int
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"Verifier({MECHANISM_NAMES.get(self.mechanism, self.mechanism)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """One password, under one mechanism or several. `id` is shown to the owner, the password is not kept."""

    id: str
    created_at_ms: int
    verifiers: tuple[Verifier, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserDocument:
    """`/ckafka/instances/<id>/users/<name>`. A superuser may do everything in its instance, whatever its ACLs say.
    `expires_at_ms` is wall time, None = never.
    """

    name: str
    created_at_ms: int
    superuser: bool = False
    disabled: bool = False
    expires_at_ms: int | None = None
    secrets: tuple[Secret, ...] = ()

    def is_usable(self, now_ms: int) -> bool:
        """Whether it may sign in, and stay."""
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
            # Who cannot tell whether a user is disabled must not let it in.
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
