"""The share of the event loop that an instance has, as a handler sees it; `network.fair_turns` decides it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from brokers.engine.scheduling.inline_wakeup import InlineWakeup


class QueuedWork(Protocol):
    """Work that waits for the turn of its instance, until it `is_over`."""

    @property
    def is_over(self) -> bool: ...
    def cancel(self) -> None: ...


class LoopShare(Protocol):
    """The share that one instance has of the loop; `network.fair_turns.InstanceTurns` fits."""

    def in_turn(self, call_soon: Callable[[Callable[[], object]], object], work: Callable[[], object]) -> QueuedWork:
        """Has `work` called in a later round of the loop, as soon as the instance's turn comes."""

    def now_or_in_turn(self, work: Callable[[], object]) -> QueuedWork:
        """Calls `work` at once while the instance need not queue, otherwise when its turn comes."""

    def turn_to_resume(self, loop: asyncio.AbstractEventLoop) -> InlineWakeup | None:
        """Returns what a task awaits before its next step, which then runs as the turn of the instance; None while it
        need not queue.
        """

    def used(self, began_s: float, now_s: float) -> None:
        """The loop worked for the instance between these two, by `perf_counter`."""
