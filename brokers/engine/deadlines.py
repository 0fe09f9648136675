"""Deadlines of all waits, with a single timer of the event loop.

Thousands of requests come and go each second, and nearly none of them reaches its deadline.
"""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, Protocol

from brokers.engine.clock import Clock

# Resolution of deadlines, which are never early.
TICK_MS: Final = 20
# Number of deadlines that expire in one turn of the loop; the others of a tick expire in the next turns.
EXPIRED_PER_TURN_MAX: Final = 500
# The heap of ticks is rebuilt without its unused ticks when it has grown to twice its size, and at least to this size.
SWEEP_SIZE_MIN: Final = 1_024


class Expirable(Protocol):
    """An object with a deadline."""

    def expire(self) -> None:
        """Called when the deadline has passed. Other objects of the same tick expire after the end of this call."""


class Deadlines:
    """Deadlines of objects, whose `expire` is called when their time is over, unless they were dropped before."""

    __slots__ = ("_clock", "_expirables_by_tick", "_loop", "_next_tick", "_sweep_size", "_ticks", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        # In the order of arrival: a set would have a different order in every process.
        self._expirables_by_tick: dict[int, dict[Expirable, None]] = {}
        # A heap of all used ticks, with some unused or repeated ones.
        self._ticks: list[int] = []
        self._sweep_size = SWEEP_SIZE_MIN
        self._next_tick = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, expirable: Expirable, delay_ms: int) -> int:
        """Adds a deadline. Returns the tick that `drop` needs."""
        now_ms = self._clock.monotonic_ms()
        tick = (now_ms + delay_ms) // TICK_MS + 1
        expirables = self._expirables_by_tick.get(tick)
        if expirables is not None:
            expirables[expirable] = None
            return tick
        self._expirables_by_tick[tick] = {expirable: None}
        self._push(tick)
        if self._timer is None or tick < self._next_tick:
            self._set_timer(tick, now_ms)
        return tick

    def drop(self, expirable: Expirable, tick: int) -> None:
        """Removes a deadline, if it has not passed."""
        expirables = self._expirables_by_tick.get(tick)
        if expirables is not None:
            expirables.pop(expirable, None)
            if not expirables:
                # Most deadlines are half a minute away and never pass, so an empty tick is removed at once.
                del self._expirables_by_tick[tick]

    def _push(self, tick: int) -> None:
        if len(self._ticks) >= self._sweep_size:
            self._ticks = list(self._expirables_by_tick)
            heapify(self._ticks)
            self._sweep_size = max(SWEEP_SIZE_MIN, 2 * len(self._ticks))
        else:
            heappush(self._ticks, tick)

    def _set_timer(self, tick: int, now_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_tick = tick
        self._timer = self._loop.call_later(max(0, tick * TICK_MS - now_ms) / 1000, self._expire_passed)

    def _expire_passed(self) -> None:
        self._timer = None
        expirables_by_tick = self._expirables_by_tick
        now_ms = self._clock.monotonic_ms()
        remaining = EXPIRED_PER_TURN_MAX
        try:
            # An expiring object may add deadlines, and clean up the heap.
            while remaining and self._ticks and self._ticks[0] * TICK_MS <= now_ms:
                tick = self._ticks[0]
                expirables = expirables_by_tick.get(tick)
                if not expirables:
                    heappop(self._ticks)
                    continue
                # Copied in one step: to find its first key, a dict skips all deleted ones each time.
                for expirable in list(islice(expirables, remaining)):
                    if expirable in expirables:  # an object that expired may have dropped others
                        self.drop(expirable, tick)
                        remaining -= 1
                        expirable.expire()
        finally:
            # An expiring object may have added a deadline, and set the timer.
            next_tick = self._first_tick()
            if next_tick >= 0 and (self._timer is None or next_tick < self._next_tick):
                self._set_timer(next_tick, now_ms)

    def _first_tick(self) -> int:
        """Returns the first used tick, -1 if there is none."""
        ticks = self._ticks
        while ticks and ticks[0] not in self._expirables_by_tick:
            heappop(ticks)
        return ticks[0] if ticks else -1
