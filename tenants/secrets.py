"""Generated secrets: 256 random bits, shown once, stored only as SHA-256.

A fast hash suffices: unlike a password, 256 random bits cannot be guessed from it.
"""

from __future__ import annotations

import hashlib
import secrets

SECRET_BYTES = 32
API_TOKEN_START = "pst_"  # noqa: S105  lets secret scanners recognise a leaked token
INVITATION_START = "psi_"


def new_secret(start: str) -> str:
    """Returns a secret with a recognisable prefix, 47 characters in all."""
    return start + secrets.token_urlsafe(SECRET_BYTES)


def hash_secret(secret: str) -> str:
    """Returns the hash that is stored and looked up: 64 hexadecimal digits."""
    return hashlib.sha256(secret.encode()).hexdigest()
