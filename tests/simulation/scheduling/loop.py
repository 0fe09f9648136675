"""A simulated event loop whose sockets are served through `FairTurns`, on a simulated clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from brokers.engine.network.receiving import FRAMES_PER_TURN_MAX, TURN_S
from brokers.engine.scheduling.fair_turns import FairTurns, InstanceTurns

# What a round of the loop costs beside its callbacks.
ROUND_S = 0.000_01


class SimulatedLoop:
    """Callbacks of the next round, and a clock that moves with the work that is done."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.busy_s = 0.0
        self._soon: deque[Callable[[], object]] = deque()
        self.fair_turns = FairTurns(self.call_soon, self.clock_s)

    def clock_s(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._soon.append(callback)

    def work(self, seconds: float) -> None:
        self.now_s += seconds
        self.busy_s += seconds

    def run_callbacks(self) -> None:
        """Runs the callbacks of one round; those that they add come in the next one."""
        for _ in range(len(self._soon)):
            self._soon.popleft()()
        self.now_s += ROUND_S

    @property
    def is_idle(self) -> bool:
        return not self._soon


class Socket:
    """A connection of an instance, whose requests cost `cost_s` each.

    The next request comes `pause_s` after the one before was served; without a pause it has been received already.
    """

    def __init__(self, loop: SimulatedLoop, turns: InstanceTurns, cost_s: float, pause_s: float) -> None:
        self.loop = loop
        self.turns = turns
        self.cost_s = cost_s
        self.pause_s = pause_s
        self.ready_s: float | None = loop.now_s
        # When it began to wait for what it has sent.
        self.waits_since_s: float | None = None
        self.is_queued = False
        self.is_closed = False
        self.longest_wait_s = 0.0

    def on_ready(self) -> None:
        """Serves the socket, or has it queue: what a connection does when its socket is readable."""
        if self.is_queued or self.is_closed or self.ready_s is None or self.ready_s > self.loop.now_s:
            return
        self.waits_since_s = self.ready_s
        self.ready_s = None
        if self.turns.may_have_to_queue and self.turns.must_queue(self.loop.now_s):
            self.is_queued = True
            self.turns.enqueue(self)
        else:
            self._serve()

    def on_turn(self) -> None:
        assert self.is_queued, "it is served once for each time it queued"
        self.is_queued = False
        self._serve()

    def _serve(self) -> None:
        assert not self.is_closed, "a socket that left is not served"
        assert self.waits_since_s is not None
        began_s = self.loop.now_s
        self.longest_wait_s = max(self.longest_wait_s, began_s - self.waits_since_s)
        self.waits_since_s = None
        for _ in range(1 if self.pause_s else FRAMES_PER_TURN_MAX):
            self.loop.work(self.cost_s)
            if self.loop.now_s - began_s >= TURN_S:
                break
        self.turns.charge(began_s, self.loop.now_s)
        self.ready_s = self.loop.now_s + self.pause_s
        if not self.pause_s:
            self.loop.call_soon(self.on_ready)

    def close(self) -> None:
        self.is_closed = True
        if self.is_queued:
            self.is_queued = False
            self.turns.leave(self)
