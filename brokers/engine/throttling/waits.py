"""Waits of connections and requests until the debt of a limiter is paid (QUO-30, decision 110).

A connection is muted until everything charged up to its request is paid, and at most for the throttle time of its
response. A request that arrives during a debt waits until all of it is paid; requests are admitted in their order, each
after the debt of the one before. Both waits end earlier when the debt shrinks because a share was raised or the flow
master answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

from brokers.engine.throttling.charging import Limiter

# Maximum time per turn of the event loop in which ended waits are served.
TURN_S_MAX: Final = 0.002
# Cancelled waits are removed once they are more than this and more than half of all.
CANCELLED_MIN: Final = 64


class WaitTimer(Protocol):
    """Handle of a timer."""

    def cancel(self) -> object: ...


class WaitClock(Protocol):
    """The part of the event loop and its clock that waits use."""

    def monotonic_ms(self) -> int: ...
    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> WaitTimer: ...


class QueuedWork(Protocol):
    """Work that is queued for a turn of the event loop; `is_over` is True once it has run or was cancelled."""

    @property
    def is_over(self) -> bool: ...


class LoopShare(Protocol):
    """The share of the event loop that an instance has; the fair queue of its listener implements it."""

    def run_or_enqueue(self, work: Callable[[], object]) -> QueuedWork:
        """Calls `work` at once, or queues it until the instance's turn."""


class Wait:
    """A wait for one limiter. `on_over` is called once, and never during the call that registered it."""

    __slots__ = ("_on_over", "_queue", "change_count", "charged_bytes", "until_ms")

    def __init__(self, queue: LimiterQueue, on_over: Callable[[], object], charged_bytes: int, until_ms: int) -> None:
        self._queue = queue
        self._on_over: Callable[[], object] | None = on_over
        self.charged_bytes = charged_bytes
        self.until_ms = until_ms
        self.change_count = queue.change_count

    @property
    def is_cancelled(self) -> bool:
        return self._on_over is None

    def cancel(self) -> None:
        """Ends the wait without calling `on_over`."""
        if self._on_over is not None:
            self._on_over = None
            self._queue.on_cancelled()

    def end(self) -> None:
        """Ends the wait and calls `on_over`, unless the wait was cancelled."""
        on_over, self._on_over = self._on_over, None
        if on_over is not None:
            on_over()


class LimiterQueue:
    """All waits for one limiter, under one timer."""

    def __init__(self, limiter: Limiter, clock: WaitClock) -> None:
        self._limiter = limiter
        self._clock = clock
        self._mutes: deque[Wait] = deque()
        self._requests: deque[Wait] = deque()
        self._timer: WaitTimer | None = None
        self._timer_ms = 0
        self._cancelled_count = 0
        # The queued turn in which the next request is admitted; a request costs more time than the end of a mute.
        self._queued_admission: QueuedWork | None = None
        self._loop_share: LoopShare | None = None
        self.change_count = 0

    def __len__(self) -> int:
        return len(self._mutes) + len(self._requests)

    def mute(self, until_ms: int, charged_bytes: int, on_over: Callable[[], object]) -> Wait:
        """Makes a wait that ends at `until_ms`, or earlier once the first `charged_bytes` of the limiter are paid."""
        wait = Wait(self, on_over, charged_bytes, until_ms)
        self._mutes.append(wait)
        self._schedule()
        return wait

    def admit(self, on_turn: Callable[[], object], loop_share: LoopShare) -> Wait:
        """Makes a wait that ends, in a turn of the instance, once the debt is paid and all earlier requests are
        admitted.
        """
        self._loop_share = loop_share
        wait = Wait(self, on_turn, 0, 0)
        self._requests.append(wait)
        self._schedule()
        return wait

    def on_debt_changed(self, now_ms: int) -> None:
        """Schedules the waits anew after a change of the limiter's debt."""
        self.change_count += 1
        self._schedule()

    def end_all_waits(self) -> None:
        """Ends all waits soon, because limits have changed; they apply from the next request of each client."""
        for wait in self._requests:
            self._mutes.append(wait)
        self._requests.clear()
        for wait in self._mutes:
            wait.until_ms = 0
        self._schedule()

    def on_cancelled(self) -> None:
        """Counts a cancelled wait, and removes all cancelled waits once there are many."""
        self._cancelled_count += 1
        if self._cancelled_count > CANCELLED_MIN and 2 * self._cancelled_count > len(self):
            self._mutes = deque(wait for wait in self._mutes if not wait.is_cancelled)
            self._requests = deque(wait for wait in self._requests if not wait.is_cancelled)
            self._cancelled_count = 0

    def _end_due_waits(self) -> None:
        """Ends the waits that are due, for at most `TURN_S_MAX`, and admits the next request."""
        self._timer = None
        deadline_s = perf_counter() + TURN_S_MAX
        now_ms = self._clock.monotonic_ms()
        while (wait := self._first_active(self._mutes)) is not None and self._muted_until_ms(wait, now_ms) <= now_ms:
            self._mutes.popleft().end()
            if perf_counter() >= deadline_s:
                break
        is_free = self._first_active(self._requests) is not None and self._queued_admission is None
        if is_free and self._loop_share is not None and not self._limiter.debt_ms(now_ms):
            admission = self._loop_share.run_or_enqueue(self._admit_next)
            self._queued_admission = None if admission.is_over else admission
        self._schedule()

    def _admit_next(self) -> None:
        self._queued_admission = None
        now_ms = self._clock.monotonic_ms()
        if self._first_active(self._requests) is not None and not self._limiter.debt_ms(now_ms):
            self._requests.popleft().end()
        self._schedule()

    def _first_active(self, queue: deque[Wait]) -> Wait | None:
        while queue and queue[0].is_cancelled:
            queue.popleft()
            self._cancelled_count -= 1
        return queue[0] if queue else None

    def _muted_until_ms(self, wait: Wait, now_ms: int) -> int:
        """Returns the end of a mute: as announced in the response, or earlier if the debt has changed since."""
        if wait.change_count == self.change_count:
            return wait.until_ms
        excluded_bytes = self._limiter.admitted_bytes - wait.charged_bytes
        return min(wait.until_ms, now_ms + self._limiter.debt_ms(now_ms, excluded_bytes))

    def _schedule(self) -> None:
        limiter, now_ms = self._limiter, self._clock.monotonic_ms()
        due_times_ms = []
        if self._mutes:
            due_times_ms.append(self._muted_until_ms(self._mutes[0], now_ms))
        if self._requests and self._queued_admission is None:
            due_times_ms.append(now_ms + limiter.debt_ms(now_ms))
        if not due_times_ms and not self._requests:
            if limiter.debt_watcher is self:
                limiter.debt_watcher = None
            self._cancel_timer()
            return
        limiter.debt_watcher = self
        if not due_times_ms:
            self._cancel_timer()
            return
        at_ms = max(min(due_times_ms), now_ms)
        if self._timer is None or self._timer_ms != at_ms:
            self._cancel_timer()
            self._timer_ms = at_ms
            self._timer = self._clock.call_later(at_ms - now_ms, self._end_due_waits)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Mute:
    """Mute of a connection after a response: created when the request is charged, begun when the response leaves."""

    __slots__ = ("_charged_bytes", "_clock", "_limiter", "delay_ms")

    def __init__(self, limiter: Limiter, delay_ms: int, clock: WaitClock) -> None:
        self.delay_ms = delay_ms
        self._limiter = limiter
        self._charged_bytes = limiter.admitted_bytes
        self._clock = clock

    def begin(self, on_over: Callable[[], object]) -> Wait:
        """Begins the mute; `on_over` is called at its end unless the wait is cancelled."""
        until_ms = self._clock.monotonic_ms() + self.delay_ms
        return find_or_create_queue(self._limiter, self._clock).mute(until_ms, self._charged_bytes, on_over)


def find_or_create_queue(limiter: Limiter, clock: WaitClock) -> LimiterQueue:
    """Returns the queue of a limiter, or a new one if nothing waits for it."""
    debt_watcher = limiter.debt_watcher
    return debt_watcher if isinstance(debt_watcher, LimiterQueue) else LimiterQueue(limiter, clock)
