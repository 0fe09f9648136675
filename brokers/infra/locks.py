"""Named locks that admit one worker at a time, for example per instance: PostgreSQL advisory locks, released when a
worker dies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

LOCK_SPACE = "penstock.reconcile"


class Busy(Exception):
    """Raised when another worker holds the lock."""


@contextmanager
def exclusive_lock(name: str) -> Iterator[None]:
    """Holds the lock `name` for the duration of the block. Raises `Busy` if it is held elsewhere."""
    number = int.from_bytes(hashlib.sha256(f"{LOCK_SPACE}\n{name}".encode()).digest()[:8], "big", signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [number])
        if not cursor.fetchone()[0]:
            raise Busy(name)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [number])
