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
    """Too many passwords are being checked by this process."""

    code = "busy"
    title = "Too many passwords are being checked at the moment"

    def __init__(self) -> None:
        super().__init__("Too many sign-ins at the moment. Try again in a few seconds.", retry_after_s=RETRY_AFTER_S)


class Turns:
    """Limiter with `at_once` holders and `waiting` waiters for at most `wait_ms`; further callers are refused
    immediately.
    """

    def __init__(self, *, at_once: int, waiting: int, wait_ms: int) -> None:
        self._places = threading.BoundedSemaphore(at_once + waiting)
        self._turns = threading.BoundedSemaphore(at_once)
        self._wait_ms = wait_ms

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Acquires a slot. Raises `HashingBusy`."""
        if not self._places.acquire(blocking=False):
            raise HashingBusy
        try:
            if not self._turns.acquire(timeout=self._wait_ms / 1000):
                raise HashingBusy
            try:
                yield
            finally:
                self._turns.release()
        finally:
            self._places.release()


_everybody = Turns(
    at_once=limits.HASHINGS_AT_ONCE_MAX, waiting=limits.HASHINGS_WAITING_MAX, wait_ms=limits.HASHING_WAIT_MS
)
_operators = Turns(
    at_once=limits.OPERATORS_HASHINGS_AT_ONCE_MAX, waiting=limits.HASHINGS_WAITING_MAX, wait_ms=limits.HASHING_WAIT_MS
)
_slots: ContextVar[Turns] = ContextVar("hashing turns", default=_everybody)


@contextmanager
def for_operators(is_operator: bool = True) -> Iterator[None]:
    """Uses the operators' slots for hashing inside the context, or everybody's if `is_operator` is false."""
    token = _slots.set(_operators if is_operator else _everybody)
    try:
        yield
    finally:
        _slots.reset(token)


class Argon2InTurn(Argon2PasswordHasher):
    """Django's Argon2 hasher that waits for a slot."""

    def encode(self, password: str, salt: str) -> str:
        with _slots.get().turn():
            return str(super().encode(password, salt))

    def verify(self, password: str, encoded: str) -> bool:
        with _slots.get().turn():
            return bool(super().verify(password, encoded))


class PBKDF2InTurn(PBKDF2PasswordHasher):
    """PBKDF2 hasher with slots, for passwords that were hashed elsewhere; verifying one encodes it again."""

    def encode(self, *args: Any, **options: Any) -> str:
        with _slots.get().turn():
            return str(super().encode(*args, **options))
