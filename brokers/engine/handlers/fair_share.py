"""An instance's share of the event loop, as handlers see it; `network.fair_turns` implements it."""

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
    """The share of one instance in the event loop; implemented by `network.fair_turns.InstanceTurns`."""

    def in_turn(self, call_soon: Callable[[Callable[[], object]], object], work: Callable[[], object]) -> QueuedWork:
        """Schedules `work` for a later iteration of the event loop, in the instance's turn."""

    def now_or_in_turn(self, work: Callable[[], object]) -> QueuedWork:
        """Calls `work` at once if the instance need not queue, otherwise in its turn."""

    def turn_to_resume(self, loop: asyncio.AbstractEventLoop) -> InlineWakeup | None:
        """Returns an awaitable for a task to await before its next step, which then runs in the turn of the instance;
        None if the instance need not queue.
        """

    def used(self, began_s: float, now_s: float) -> None:
        """Charges the instance for work between two times of `perf_counter`."""
