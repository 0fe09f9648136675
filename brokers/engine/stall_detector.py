"""Notices that this process stood still: stopped, swapped out, or its machine paused (REP-25, CTL-4).

Meanwhile its ZooKeeper session may have ended and others may lead what it led. What it finds in its sockets when it
wakes up must not be acknowledged before it knows better; so whoever acknowledges looks here first, at the cost of a
subtraction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# `check` is called this often.
CHECK_INTERVAL_S: Final = 0.2


class StallDetector:
    """Times are of the wall clock: one that jumps forward looks like a pause, which costs a moment and nothing else."""

    __slots__ = ("_on_pause", "checked_ms", "pause_ms_max")

    def __init__(self, now_ms: int, pause_ms_max: int) -> None:
        self.checked_ms = now_ms
        self.pause_ms_max = pause_ms_max
        self._on_pause: list[Callable[[int], object]] = []

    def subscribe(self, on_pause: Callable[[int], object]) -> None:
        """`on_pause(ms)` is called at the first look after a pause, before anything else is done."""
        self._on_pause.append(on_pause)

    def check(self, now_ms: int) -> None:
        """Call every CHECK_INTERVAL_S, and wherever `now_ms - checked_ms > pause_ms_max` is found."""
        paused_ms = now_ms - self.checked_ms
        self.checked_ms = now_ms
        if paused_ms > self.pause_ms_max:
            for on_pause in self._on_pause:
                on_pause(paused_ms)
