"""What proves a password to a broker that never sees it (RFC 5802, RFC 7677): salted passwords. Pure."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from brokers.contract.users import DIGESTS, ITERATIONS, scram_salt


class SaltedPassword(NamedTuple):
    """One mechanism's; a broker makes its stored and its server key of it."""

    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"SaltedPassword({DIGESTS.get(self.mechanism, self.mechanism)})"


def salted_passwords(instance_id: str, user: str, password: str) -> list[SaltedPassword]:
    """For every mechanism, with the salt that both passwords of a user have. It has ASCII alone, so it is in its normal
    form; and 256 random bits (`instances.services.users`), so that more iterations would protect nothing.
    """
    if not password.isascii():
        raise ValueError("passwords are made of ASCII characters here")
    return [_salted(mechanism, password, scram_salt(instance_id, user, mechanism)) for mechanism in sorted(DIGESTS)]


def _salted(mechanism: int, password: str, salt: bytes) -> SaltedPassword:
    derived = hashlib.pbkdf2_hmac(DIGESTS[mechanism], password.encode("ascii"), salt, ITERATIONS)
    return SaltedPassword(mechanism, ITERATIONS, salt, derived)
