"""Deadlines of everything that waits, all under one timer of the loop: requests come and go by the thousand a second,
and nearly none of them reaches its deadline.
"""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

from brokers.engine.clock import Clock

# A deadline is kept to within this time, never early.
TICK_MS: Final = 20
# Deadlines that pass in one round of the loop; the others of a tick pass in the next rounds.
EXPIRED_PER_TURN_MAX: Final = 500
# Ticks that are over early are swept out of the heap when there may be as many as of others, and at least this many.
SWEPT_MIN: Final = 1_024


class Expirable(Protocol):
    def expire(self) -> None:
        """The deadline passed. Others of the same tick wait for the end of this call."""


class Deadlines:
    """Calls `expire` of what was added once its time is over, unless it was dropped before."""

    __slots__ = ("_by_tick", "_clock", "_loop", "_next_tick", "_sweep_at", "_ticks", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        # In the order in which they came: a set would have another one in every process.
        self._by_tick: dict[int, dict[Expirable, None]] = {}
        # A heap of all ticks in use, of some that are over, and of some twice.
        self._ticks: list[int] = []
        self._sweep_at = SWEPT_MIN
        self._next_tick = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, waiting: Expirable, delay_ms: int) -> int:
        """Returns the tick that `drop` needs."""
        now_ms = self._clock.monotonic_ms()
        tick = (now_ms + delay_ms) // TICK_MS + 1
        together = self._by_tick.get(tick)
        if together is not None:
            together[waiting] = None
            return tick
        self._by_tick[tick] = {waiting: None}
        self._push(tick)
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

    def _push(self, tick: int) -> None:
        if len(self._ticks) >= self._sweep_at:
            self._ticks = list(self._by_tick)
            heapify(self._ticks)
            self._sweep_at = max(SWEPT_MIN, 2 * len(self._ticks))
        else:
            heappush(self._ticks, tick)

    def _wake_at(self, tick: int, now_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_tick = tick
        self._timer = self._loop.call_later(max(0, tick * TICK_MS - now_ms) / 1000, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        by_tick = self._by_tick
        now_ms = self._clock.monotonic_ms()
        left = EXPIRED_PER_TURN_MAX
        try:
            # What expires may add others, and sweep the heap.
            while left and self._ticks and self._ticks[0] * TICK_MS <= now_ms:
                tick = self._ticks[0]
                together = by_tick.get(tick)
                if not together:
                    heappop(self._ticks)
                    continue
                first = next(iter(together))
                self.drop(first, tick)
                left -= 1
                first.expire()
        finally:
            # What expires may have added something, and set the timer.
            next_tick = self._first_tick()
            if next_tick >= 0 and (self._timer is None or next_tick < self._next_tick):
                self._wake_at(next_tick, now_ms)

    def _first_tick(self) -> int:
        """The first tick in use, -1 if nothing waits."""
        ticks = self._ticks
        while ticks and ticks[0] not in self._by_tick:
            heappop(ticks)
        return ticks[0] if ticks else -1
