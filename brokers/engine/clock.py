"""Clocks of the broker, and detection of pauses of the process. Decisions take times as parameters.

`StallDetector` detects that this process was paused: stopped, swapped out, or on a paused machine (REP-25, CTL-4).
During the pause its ZooKeeper session may have expired and other brokers may have become leaders. Requests found in the
sockets afterwards must not be acknowledged before the broker has read the cluster again. Each acknowledgement therefore
checks for a pause first, which costs one subtraction.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

# Interval of `StallDetector.check`.
STALL_CHECK_INTERVAL_S: Final = 0.2


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


class StallDetector:
    """Pause detector. It uses the wall clock: a jump forward looks like a pause, which costs only a moment."""

    __slots__ = ("_on_pause", "checked_ms", "pause_ms_max")

    def __init__(self, now_ms: int, pause_ms_max: int) -> None:
        self.checked_ms = now_ms
        self.pause_ms_max = pause_ms_max
        self._on_pause: list[Callable[[int], object]] = []

    def subscribe(self, on_pause: Callable[[int], object]) -> None:
        """Calls `on_pause(ms)` at the first check after a pause, before anything else is done."""
        self._on_pause.append(on_pause)

    def check(self, now_ms: int) -> None:
        """Checks for a pause: every STALL_CHECK_INTERVAL_S, and wherever `now_ms - checked_ms > pause_ms_max`."""
        paused_ms = now_ms - self.checked_ms
        self.checked_ms = now_ms
        if paused_ms > self.pause_ms_max:
            for on_pause in self._on_pause:
                on_pause(paused_ms)
