"""Password hashing with limited concurrency: each hash takes 100 MiB and CPU time, and any visitor may cause one.

Operators' passwords have slots of their own, so that a flood at the console does not lock out operators.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.contrib.auth.hashers import Argon2PasswordHasher, PBKDF2PasswordHasher

from tenants import limits
from tenants.errors import Unavailable

RETRY_AFTER_S = 2


class HashingBusy(Unavailable):
    """Raised when too many passwords are being checked by this process."""

    code = "busy"
    title = "Too many passwords are being checked at the moment"

    def __init__(self) -> None:
        super().__init__("Too many sign-ins at the moment. Try again in a few seconds.", retry_after_s=RETRY_AFTER_S)


class HashingSlots:
    """Limiter of concurrent hashes: at most `at_once` run, at most `waiting` wait for up to `wait_ms`, and further
    callers are refused immediately.
    """

    def __init__(self, *, at_once: int, waiting: int, wait_ms: int) -> None:
        self._admitted = threading.BoundedSemaphore(at_once + waiting)
        self._running = threading.BoundedSemaphore(at_once)
        self._wait_ms = wait_ms

    @contextmanager
    def acquire(self) -> Iterator[None]:
        """Acquires a slot. Raises `HashingBusy`."""
        if not self._admitted.acquire(blocking=False):
            raise HashingBusy
        try:
            if not self._running.acquire(timeout=self._wait_ms / 1000):
                raise HashingBusy
            try:
                yield
            finally:
                self._running.release()
        finally:
            self._admitted.release()


_default_slots = HashingSlots(
    at_once=limits.HASHINGS_AT_ONCE_MAX, waiting=limits.HASHINGS_WAITING_MAX, wait_ms=limits.HASHING_WAIT_MS
)
_operator_slots = HashingSlots(
    at_once=limits.OPERATORS_HASHINGS_AT_ONCE_MAX, waiting=limits.HASHINGS_WAITING_MAX, wait_ms=limits.HASHING_WAIT_MS
)
_current_slots: ContextVar[HashingSlots] = ContextVar("hashing slots", default=_default_slots)


@contextmanager
def for_operators(is_operator: bool = True) -> Iterator[None]:
    """Uses the operators' slots for hashing inside the context, or the default ones if `is_operator` is false."""
    token = _current_slots.set(_operator_slots if is_operator else _default_slots)
    try:
        yield
    finally:
        _current_slots.reset(token)


class Argon2InTurn(Argon2PasswordHasher):
    """Django's Argon2 hasher that waits for a slot."""

    def encode(self, password: str, salt: str) -> str:
        with _current_slots.get().acquire():
            return str(super().encode(password, salt))

    def verify(self, password: str, encoded: str) -> bool:
        with _current_slots.get().acquire():
            return bool(super().verify(password, encoded))


class PBKDF2InTurn(PBKDF2PasswordHasher):
    """PBKDF2 hasher with slots, for passwords that were hashed elsewhere; verifying one encodes it again."""

    def encode(self, *args: Any, **options: Any) -> str:
        with _current_slots.get().acquire():
            return str(super().encode(*args, **options))
