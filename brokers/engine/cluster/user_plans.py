"""Alterations of user documents. Pure; `cluster.user_writes` writes them."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from brokers.contract import instance_limits, paths
from brokers.contract.users import (
    DIGEST_BYTES,
    DIGESTS,
    DOT_NAMES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISM_NAMES,
    RESERVED_NAMES,
    SALT_BYTES_MAX,
    SECRET_ID_BYTES_MAX,
    SECRETS_PER_USER_MAX,
    USER_NAME_BYTES_MAX,
    Secret,
    UserDocument,
    Verifier,
)
from brokers.engine.cluster import errors

# Maps the stored document, or None, to the new one, where None removes it; may be called again after a lost race.
Change = Callable[[UserDocument | None], UserDocument | None]

UNCHANGED: Final = -1
EITHER, MUST_EXIST, MUST_NOT_EXIST = 0, 1, 2
EXPIRES_UNCHANGED: Final = -2
EXPIRES_NEVER: Final = -1
_CLIENT_KEY: Final = b"Client Key"
_SERVER_KEY: Final = b"Server Key"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaltedPassword:
    """A verifier as transferred in requests (KIP-554)."""

    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"SaltedPassword({MECHANISM_NAMES.get(self.mechanism, self.mechanism)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedSecret:
    """A secret to be added, with one verifier for each of its mechanisms."""

    id: str
    verifiers: tuple[SaltedPassword, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAlteration:
    """One alteration in AlterUsers, with the numbers of the message."""

    is_deleted: bool = False
    must_exist: int = EITHER
    superuser: int = UNCHANGED
    disabled: int = UNCHANGED
    expires_at_ms: int = EXPIRES_UNCHANGED
    removed_secrets: tuple[str, ...] = ()
    added_secrets: tuple[AddedSecret, ...] = ()


def check_name(name: str) -> None:
    """Checks a user name.

    Raises:
        errors.UnacceptableCredential: the name is not allowed.
    """
    if not (0 < len(name) <= USER_NAME_BYTES_MAX and len(paths.sanitise(name)) <= USER_NAME_BYTES_MAX):
        raise errors.UnacceptableCredential(
            f"A user name has 1 to {USER_NAME_BYTES_MAX} bytes, and what is not a letter, digit, '-', '_' or '.' "
            "counts as three for each byte of UTF-8; choose a shorter one."
        )
    if name in RESERVED_NAMES | DOT_NAMES or not name.isprintable():
        raise errors.UnacceptableCredential(
            f"{name!r} cannot be a user name: it is reserved, or has characters that cannot be printed."
        )


_LATEST_MS: Final = 10**13 - 1
_BLANK: Final = UserDocument(name="", created_at_ms=_LATEST_MS, expires_at_ms=_LATEST_MS)
_BLANK_VERIFIER: Final = Verifier(mechanism=1, iterations=ITERATIONS_MAX, salt=b"", stored_key=b"", server_key=b"")
_BLANK_SECRET: Final = Secret(id="", created_at_ms=_LATEST_MS, verifiers=())
# Sizes of a document, a secret and a verifier without their variable fields; timestamps have all digits.
_USER_BYTES: Final = len(_BLANK.to_json()) + len(paths.instance_user("ins-00000000", "")) + instance_limits.NODE_BYTES
_SECRET_BYTES: Final = len(replace(_BLANK, secrets=(_BLANK_SECRET,)).to_json()) - len(_BLANK.to_json()) + 1
_VERIFIER_BYTES: Final = (
    len(replace(_BLANK, secrets=(replace(_BLANK_SECRET, verifiers=(_BLANK_VERIFIER,)),)).to_json())
    - len(replace(_BLANK, secrets=(_BLANK_SECRET,)).to_json())
    + 1
)


def stored_bytes_of(node: str, document: UserDocument) -> int:
    """Returns the maximum size in ZooKeeper (`instance_limits.NODE_BYTES`) without encoding it: an instance has a
    thousand.
    """
    weight = _USER_BYTES + len(node) + instance_limits.encoded_bytes(document.name)
    for secret in document.secrets:
        weight += _SECRET_BYTES + instance_limits.encoded_bytes(secret.id)
        for verifier in secret.verifiers:
            weight += _VERIFIER_BYTES + _base64_bytes(verifier.salt)
            weight += _base64_bytes(verifier.stored_key) + _base64_bytes(verifier.server_key)
    return weight


def _base64_bytes(blob: bytes) -> int:
    return (len(blob) + 2) // 3 * 4


def verifier_of(salted: SaltedPassword) -> Verifier:
    """Returns the verifier of a salted password.

    Raises:
        errors.UnacceptableCredential: an unknown mechanism or an insecure size.
    """
    digest = DIGESTS.get(salted.mechanism)
    if digest is None:
        raise errors.UnacceptableCredential(f"SCRAM mechanism {salted.mechanism} is not known.")
    if not ITERATIONS_MIN <= salted.iterations <= ITERATIONS_MAX:
        raise errors.UnacceptableCredential(f"Iterations must be {ITERATIONS_MIN} to {ITERATIONS_MAX}.")
    if not 0 < len(salted.salt) <= SALT_BYTES_MAX:
        raise errors.UnacceptableCredential(f"A salt has 1 to {SALT_BYTES_MAX} bytes.")
    if len(salted.salted_password) != DIGEST_BYTES[salted.mechanism]:
        raise errors.UnacceptableCredential(
            f"A salted password of {MECHANISM_NAMES[salted.mechanism]} has {DIGEST_BYTES[salted.mechanism]} bytes."
        )
    client_key = hmac.digest(salted.salted_password, _CLIENT_KEY, digest)
    return Verifier(
        mechanism=salted.mechanism,
        iterations=salted.iterations,
        salt=salted.salt,
        stored_key=hashlib.new(digest, client_key).digest(),
        server_key=hmac.digest(salted.salted_password, _SERVER_KEY, digest),
    )


def altered(name: str, before: UserDocument | None, alteration: UserAlteration, now_ms: int) -> UserDocument | None:
    """Returns the user after an alteration of AlterUsers.

    Raises:
        errors.Refused: the alteration is not possible for this user.
    """
    if before is None and alteration.must_exist == MUST_EXIST:
        raise errors.ResourceNotFound("There is no such user.")
    if before is not None and alteration.must_exist == MUST_NOT_EXIST:
        raise errors.DuplicateResource("There is such a user already; choose another name.")
    if alteration.is_deleted:
        return None
    user = before or UserDocument(name=name, created_at_ms=now_ms)
    if alteration.superuser != UNCHANGED:
        user = replace(user, superuser=bool(alteration.superuser))
    if alteration.disabled != UNCHANGED:
        user = replace(user, disabled=bool(alteration.disabled))
    if alteration.expires_at_ms != EXPIRES_UNCHANGED:
        expires_at_ms = None if alteration.expires_at_ms == EXPIRES_NEVER else alteration.expires_at_ms
        user = replace(user, expires_at_ms=expires_at_ms)
    secrets = _without(user.secrets, alteration.removed_secrets)
    for added in alteration.added_secrets:
        secrets = _with_added(secrets, _secret(added, now_ms))
    return replace(user, secrets=secrets)


def _without(secrets: tuple[Secret, ...], removed: Sequence[str]) -> tuple[Secret, ...]:
    missing = set(removed) - {secret.id for secret in secrets}
    if missing:
        raise errors.ResourceNotFound(f"The user has no secret {sorted(missing)[0]!r}.")
    return tuple(secret for secret in secrets if secret.id not in removed)


def _secret(added: AddedSecret, now_ms: int) -> Secret:
    if not 0 < len(added.id.encode()) <= SECRET_ID_BYTES_MAX:
        raise errors.UnacceptableCredential(f"The id of a secret has 1 to {SECRET_ID_BYTES_MAX} bytes.")
    mechanisms = [salted.mechanism for salted in added.verifiers]
    if not mechanisms or len(set(mechanisms)) != len(mechanisms):
        raise errors.UnacceptableCredential("A secret has one verifier for each of its mechanisms, at least one.")
    return Secret(id=added.id, created_at_ms=now_ms, verifiers=tuple(map(verifier_of, added.verifiers)))


def _with_added(secrets: tuple[Secret, ...], added: Secret) -> tuple[Secret, ...]:
    if any(secret.id == added.id for secret in secrets):
        raise errors.DuplicateResource(f"The user has a secret {added.id!r} already.")
    if len(secrets) >= SECRETS_PER_USER_MAX:
        raise errors.PolicyViolation(f"The user has {SECRETS_PER_USER_MAX} secrets already; remove one first.")
    for verifier in added.verifiers:
        for other in verifiers_of(secrets, verifier.mechanism):
            # A server sends salt and iterations before it can know which of two secrets a client has.
            if (other.salt, other.iterations) != (verifier.salt, verifier.iterations):
                raise errors.UnacceptableCredential(
                    f"The user's other secret has another salt or other iterations under "
                    f"{MECHANISM_NAMES[verifier.mechanism]}, so clients could use one of them only; use the same ones, "
                    "or remove the other secret first."
                )
    return *secrets, added


def verifiers_of(secrets: Iterable[Secret], mechanism: int) -> list[Verifier]:
    """Returns the verifiers of all secrets for one SCRAM mechanism."""
    return [verifier for secret in secrets for verifier in secret.verifiers if verifier.mechanism == mechanism]


def with_scram_credentials(
    name: str,
    before: UserDocument | None,
    deleted: frozenset[int],
    upserted: tuple[Verifier, ...],
    secret_id: str,
    now_ms: int,
) -> UserDocument | None:
    """Returns the user after AlterUserScramCredentials.

    `deleted` and replaced mechanisms are removed from every secret, and the new verifiers form a secret of their own. A
    user without secrets is removed, unless it has other settings.

    Raises:
        errors.ResourceNotFound: as in Kafka, for the deletion of a credential that does not exist.
    """
    present = () if before is None else before.secrets
    for mechanism in deleted:
        if not verifiers_of(present, mechanism):
            raise errors.ResourceNotFound("Attempt to delete a user credential that does not exist")
    replaced = deleted | {verifier.mechanism for verifier in upserted}
    kept = []
    for secret in present:
        verifiers = tuple(verifier for verifier in secret.verifiers if verifier.mechanism not in replaced)
        if verifiers:
            kept.append(secret if len(verifiers) == len(secret.verifiers) else replace(secret, verifiers=verifiers))
    if upserted:
        kept.append(Secret(id=secret_id, created_at_ms=now_ms, verifiers=upserted))
    user = before or UserDocument(name=name, created_at_ms=now_ms)
    if not kept and not (user.superuser or user.disabled or user.expires_at_ms is not None):
        return None
    return replace(user, secrets=tuple(kept))
