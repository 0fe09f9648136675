"""What waits at most so long, all of it under one timer of the loop: requests come and go by the thousand a second, and
nearly none of them reaches its deadline.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from brokers.engine.clock import Clock

# A deadline is kept to within so much, never early.
TICK_MS: Final = 20


class Expirable(Protocol):
    def expire(self) -> None:
        """The deadline passed."""


class Deadlines:
    """`expire` of what was added is called once its time is over, unless it was dropped before."""

    __slots__ = ("_by_tick", "_clock", "_loop", "_next_tick", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        # In the order in which they came: a set would have another one in every process.
        self._by_tick: dict[int, dict[Expirable, None]] = {}
        self._next_tick = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, waiting: Expirable, delay_ms: int) -> int:
        """Answers with the tick that `drop` wants to know."""
        now_ms = self._clock.monotonic_ms()
        tick = (now_ms + delay_ms) // TICK_MS + 1
        together = self._by_tick.get(tick)
        if together is not None:
            together[waiting] = None
            return tick
        self._by_tick[tick] = {waiting: None}
        if self._timer is None or tick < self._next_tick:
            self._wake_at(tick, now_ms)
        return tick

    def drop(self, waiting: Expirable, tick: int) -> None:
        """Harmless when it is over."""
        together = self._by_tick.get(tick)
        if together is not None:
            together.pop(waiting, None)
            if not together:
                # Most deadlines are half a minute away and never come: what is left is what waits.
                del self._by_tick[tick]

    def _wake_at(self, tick: int, now_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_tick = tick
        self._timer = self._loop.call_later(max(0, tick * TICK_MS - now_ms) / 1000, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        by_tick = self._by_tick
        now_ms = self._clock.monotonic_ms()
        try:
            for tick in sorted(by_tick):
                if tick * TICK_MS > now_ms:
                    break
                while together := by_tick.get(tick):  # what expires may drop others of its tick
                    first = next(iter(together))
                    self.drop(first, tick)
                    first.expire()
        finally:
            # What expires may have added something, and set the timer.
            if by_tick:
                next_tick = min(by_tick)
                if self._timer is None or next_tick < self._next_tick:
                    self._wake_at(next_tick, now_ms)
