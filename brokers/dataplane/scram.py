"""Salted passwords (RFC 5802, RFC 7677), by which brokers verify a password that they never see. Pure."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from brokers.contract.users import DIGESTS, ITERATIONS, scram_salt


class SaltedPassword(NamedTuple):
    """Salted password of one mechanism; a broker derives its stored and server key from it."""

    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"SaltedPassword({DIGESTS.get(self.mechanism, self.mechanism)})"


def salted_passwords(instance_id: str, user: str, password: str) -> list[SaltedPassword]:
    """Returns salted passwords for every mechanism, with the salt that both passwords of a user share.

    Passwords are ASCII, so normalisation is not needed; they have 256 random bits (`instances.services.users`), so more
    iterations would not protect them better.
    """
    if not password.isascii():
        raise ValueError("passwords are made of ASCII characters here")
    return [_salted(mechanism, password, scram_salt(instance_id, user, mechanism)) for mechanism in sorted(DIGESTS)]


def _salted(mechanism: int, password: str, salt: bytes) -> SaltedPassword:
    derived = hashlib.pbkdf2_hmac(DIGESTS[mechanism], password.encode("ascii"), salt, ITERATIONS)
    return SaltedPassword(mechanism, ITERATIONS, salt, derived)
