"""What proves a password to a broker that never sees it (RFC 5802, RFC 7677): salted passwords. Pure but for
the salt.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Final, NamedTuple

from brokers.contract.users import SCRAM_SHA_256, SCRAM_SHA_512
from instances.users.limits import SCRAM_ITERATIONS

SALT_BYTES: Final = 24
DIGESTS: Final[Mapping[int, str]] = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}


class SaltedPassword(NamedTuple):
    """One mechanism's; a broker makes its stored and its server key of it."""

    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"SaltedPassword({DIGESTS.get(self.mechanism, self.mechanism)})"


def salted_passwords(password: str, *, iterations: int = SCRAM_ITERATIONS) -> list[SaltedPassword]:
    """For every mechanism, each with a salt of its own. The password has ASCII alone, so it is in its normal form."""
    if not password.isascii():
        raise ValueError("passwords are made of ASCII characters here")
    return [_salted(mechanism, password, secrets.token_bytes(SALT_BYTES), iterations) for mechanism in sorted(DIGESTS)]


def _salted(mechanism: int, password: str, salt: bytes, iterations: int) -> SaltedPassword:
    derived = hashlib.pbkdf2_hmac(DIGESTS[mechanism], password.encode("ascii"), salt, iterations)
    return SaltedPassword(mechanism, iterations, salt, derived)
