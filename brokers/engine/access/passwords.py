"""PLAIN passwords compared with stored verifiers (RFC 4616, RFC 5802), and a cache of proven passwords. Pure.

Hashing a password takes milliseconds, so a broker remembers proven passwords by a keyed hash, and a client that
reconnects costs almost nothing. The key and the cache exist only in the memory of the process.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from brokers.contract.users import DIGESTS, ITERATIONS, SCRAM_SHA_256, Secret, UserDocument, Verifier

# Users with a remembered password on one broker; beyond, the one that signed in longest ago is dropped.
PROVEN_MAX: Final = 20_000


class HashParameters(NamedTuple):
    """Parameters of a hash, which is computed once for all secrets that share them."""

    mechanism: int
    salt: bytes
    iterations: int


class Comparison(NamedTuple):
    """A secret, and the one of its verifiers that a password is compared with."""

    secret: Secret
    verifier: Verifier


def comparisons_of(user: UserDocument) -> tuple[Comparison, ...]:
    """Returns a comparison for each secret of a user, with the verifier that is cheapest to check."""
    return tuple(
        Comparison(secret, min(secret.verifiers, key=lambda verifier: verifier.mechanism))
        for secret in user.secrets
        if secret.verifiers
    )


def find_matching_secret(password: str, comparisons: Sequence[Comparison], fake_salt: bytes) -> Secret | None:
    """Returns the secret that a password proves, None if there is none.

    It takes milliseconds, so it must not run on the event loop. Without comparisons it takes as long as with one, so
    that its duration does not disclose if a user exists.
    """
    by_parameters: dict[HashParameters, list[Comparison]] = {}
    for comparison in comparisons:
        verifier = comparison.verifier
        by_parameters.setdefault(HashParameters(verifier.mechanism, verifier.salt, verifier.iterations), []).append(
            comparison
        )
    if not by_parameters:
        by_parameters[HashParameters(SCRAM_SHA_256, fake_salt, ITERATIONS)] = []
    matched = None
    for parameters, group in by_parameters.items():
        stored_key = _stored_key(password, parameters)
        for comparison in group:
            if hmac.compare_digest(stored_key, comparison.verifier.stored_key):
                matched = comparison.secret
    return matched


def _stored_key(password: str, parameters: HashParameters) -> bytes:
    digest = DIGESTS[parameters.mechanism]
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), parameters.salt, parameters.iterations)
    return hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest()


class ProvenPasswords:
    """Cache of proven passwords by instance and user, as keyed hashes with the secret that each one proves."""

    __slots__ = ("_digests_by_user", "_key")

    def __init__(self, key: bytes) -> None:
        """Makes an empty cache with a random `key`, which no other process knows."""
        self._key = key
        self._digests_by_user: OrderedDict[tuple[str, str], dict[Secret, bytes]] = OrderedDict()

    def find(self, instance_id: str, user: UserDocument, password: str) -> Secret | None:
        """Returns the user's secret that this password was proven for, None if it is not remembered."""
        proven = self._digests_by_user.get((instance_id, user.name))
        if proven is None:
            return None
        digest = self._digest(password)
        matched = None
        for secret in user.secrets:
            known_digest = proven.get(secret)
            if known_digest is not None and hmac.compare_digest(known_digest, digest):
                matched = secret
        return matched

    def record(self, instance_id: str, user: UserDocument, secret: Secret, password: str) -> None:
        """Caches a proven password, and drops those of secrets that the user does not have."""
        key = instance_id, user.name
        valid_digests = {
            known: digest for known, digest in self._digests_by_user.get(key, {}).items() if known in user.secrets
        }
        self._digests_by_user[key] = {**valid_digests, secret: self._digest(password)}
        self._digests_by_user.move_to_end(key)
        if len(self._digests_by_user) > PROVEN_MAX:
            self._digests_by_user.popitem(last=False)

    def forget(self, instance_id: str, name: str) -> None:
        self._digests_by_user.pop((instance_id, name), None)

    def __len__(self) -> int:
        return len(self._digests_by_user)

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode(), "sha256")
