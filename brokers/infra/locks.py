"""One worker at a time on one instance: a PostgreSQL advisory lock, given back by itself when a worker dies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

LOCK_SPACE = "penstock.reconcile"


class Busy(Exception):
    """Another worker holds the lock."""


@contextmanager
def only_one(name: str) -> Iterator[None]:
    """Hold the lock called `name` for the length of the block. Raises `Busy` when somebody else does."""
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
