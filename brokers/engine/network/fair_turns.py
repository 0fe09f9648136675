"""Whose sockets are served next: the connections of one instance are one voice, however many they are (CKA-4).

An instance that used little of the loop lately is served as its sockets become ready, without any detour. One that used
more queues: its sockets wait in a line of its own, and in each turn of the loop the lines are served one after the
other, a slice each, for one turn together. Then the loop looks at the sockets of everybody else.
"""

from __future__ import annotations

from asyncio import Future
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

# An instance that used so much of the last window queues; so much is served from the lines before others come.
TURN_S: Final = 0.002
WINDOW_S: Final = 0.004
# What one line is served before the next one.
SLICE_S: Final = 0.0005
# What a task that is resumed is taken to need: it runs in the next round of the loop, where nobody counts any more.
RESUMED_S: Final = 0.0001


class Queuing(Protocol):
    """A socket whose instance has used up its turn."""

    def on_turn(self) -> None:
        """It is served now. It may have been closed meanwhile."""


class InstanceTurns:
    """One instance's use of the loop. `is_spent`: ask `must_wait` before anything of it is served. Whose connections
    never queue has no `fair_turns`.
    """

    __slots__ = (
        "_fair_turns",
        "_used_s",
        "_window_s",
        "ahead_s",
        "clock_s",
        "credit_s",
        "is_listed",
        "is_spent",
        "line",
    )

    def __init__(self, fair_turns: FairTurns | None) -> None:
        self._fair_turns = fair_turns
        self.clock_s: Callable[[], float] = perf_counter if fair_turns is None else fair_turns.clock_s
        self._window_s = 0.0
        self._used_s = 0.0
        self.is_spent = False
        # Of `FairTurns`: whether it is among those served, and how long it may be.
        self.is_listed = False
        self.credit_s = 0.0
        # What was begun in its slice, and is yet to run.
        self.ahead_s = 0.0
        self.line: deque[Queuing] = deque()

    def used(self, began_s: float, now_s: float) -> None:
        """It was served from `began_s` until now."""
        if began_s - self._window_s > WINDOW_S:
            self._window_s = began_s
            self._used_s = 0.0
        self._used_s += now_s - began_s
        if self._used_s >= TURN_S and self._fair_turns is not None:
            self.is_spent = True

    def must_wait(self, now_s: float) -> bool:
        """Whether to `join` the line. Who queued before goes before whoever comes now."""
        if not self.is_spent:
            return False
        if not self.line and now_s - self._window_s > WINDOW_S:
            self.is_spent = False
            return False
        return True

    def join(self, queuing: Queuing) -> None:
        assert self._fair_turns is not None, "its turn is never spent"
        self.line.append(queuing)
        if not self.is_listed:
            self.is_listed = True
            self._fair_turns.add(self)

    def in_turn(self, call_soon: Callable[[Callable[[], object]], object], work: Callable[[], object]) -> QueuedWork:
        """Has `work` called in a later round of the loop, as soon as the instance's turn comes."""
        turn = QueuedWork(self, work)
        if self.is_spent:
            self.join(turn)
        else:
            call_soon(turn.begin)
        return turn

    def now_or_in_turn(self, work: Callable[[], object]) -> QueuedWork:
        """Calls `work` at once while the instance need not queue, otherwise when its turn comes."""
        turn = QueuedWork(self, work)
        turn.begin()
        return turn

    def turn_to_resume(self, create_future: Callable[[], Future[None]]) -> Future[None] | None:
        """A future that is set when the turn of the instance comes; None while it need not queue."""
        if not self.is_spent or not self.must_wait(self.clock_s()):
            return None
        resumption = Resumption(self, create_future())
        self.join(resumption)
        return resumption.future

    def start_anew(self, now_s: float) -> None:
        """Nobody is in line any more."""
        self.credit_s = 0.0
        self.is_spent = False
        self._window_s = now_s
        self._used_s = 0.0


class QueuedWork:
    """Work that runs once its instance may use the loop: at once, or behind what queues already. `cancel` drops it."""

    __slots__ = ("_turns", "_work")

    def __init__(self, turns: InstanceTurns, work: Callable[[], object]) -> None:
        self._turns = turns
        self._work: Callable[[], object] | None = work

    def cancel(self) -> None:
        self._work = None

    @property
    def is_over(self) -> bool:
        return self._work is None

    def begin(self) -> None:
        turns = self._turns
        if turns.is_spent and self._work is not None and turns.must_wait(turns.clock_s()):
            turns.join(self)
        else:
            self.on_turn()

    def on_turn(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            turns = self._turns
            began_s = turns.clock_s()
            try:
                work()
            finally:
                turns.used(began_s, turns.clock_s())


class Resumption:
    """A task that goes on when the turn of its instance comes."""

    __slots__ = ("_turns", "future")

    def __init__(self, turns: InstanceTurns, future: Future[None]) -> None:
        self._turns = turns
        self.future = future

    def on_turn(self) -> None:
        if not self.future.done():  # else its task was cancelled
            self.future.set_result(None)
            self._turns.ahead_s += RESUMED_S


class FairTurns:
    """All lines of one broker. `call_soon` calls back in the next turn of the loop."""

    __slots__ = ("_call_soon", "_is_scheduled", "_lines", "clock_s")

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], clock_s: Callable[[], float] = perf_counter
    ) -> None:
        self._call_soon = call_soon
        self.clock_s = clock_s
        self._is_scheduled = False
        # Instances with somebody in line, in the order in which they are served.
        self._lines: deque[InstanceTurns] = deque()

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, turns: InstanceTurns) -> None:
        self._lines.append(turns)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._serve)

    def _serve(self) -> None:
        """One turn of the loop. What a slice took too much, its line lacks in the next rounds."""
        self._is_scheduled = False
        lines = self._lines
        now_s = self.clock_s()
        end_s = now_s + TURN_S
        while lines and now_s < end_s:
            turns = lines.popleft()
            turns.credit_s = min(turns.credit_s, 0.0) + SLICE_S
            try:
                while turns.line and turns.credit_s > 0.0 and now_s < end_s:
                    began_s = now_s
                    turns.line.popleft().on_turn()
                    now_s = self.clock_s()
                    turns.credit_s -= now_s - began_s + turns.ahead_s
                    end_s -= turns.ahead_s
                    turns.ahead_s = 0.0
            finally:  # a fault of ours with one request must not end the service of all that queue
                if turns.line:
                    lines.append(turns)
                else:
                    turns.is_listed = False
                    turns.start_anew(now_s)
                if lines:
                    self._schedule()
        if lines:
            self._schedule()
