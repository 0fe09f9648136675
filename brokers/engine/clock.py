"""The one source of time. Decisions take times as parameters, so that tests control them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Source of wall time and of monotonic time."""

    def now_ms(self) -> int:
        """Returns wall time in milliseconds since 1970, as in records and documents."""

    def monotonic_ms(self) -> int:
        """Returns a time in milliseconds that never runs backwards, for rates, delays and deadlines."""


class SystemClock:
    """The system's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class LoopClock:
    """A clock with the timers of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self.monotonic_ms = clock.monotonic_ms

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1000, callback)
