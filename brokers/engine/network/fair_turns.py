"""Fair share of the event loop by tenant, whatever the number of its instances and connections (CKA-4).

The sockets of a tenant that used little of the loop lately are served as they become ready, without any detour. Those
of a tenant that used more queue, instance by instance. In each turn of the loop the queue (`scheduling.fair_queue`) is
served for `TURN_S`: tenants in turn, and the instances of each tenant in turn. Then the loop looks at other sockets.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

from brokers.engine.scheduling.fair_queue import FairQueue, InstanceQueue, TenantAccount

# A tenant that used so much of the last window queues; so much is served from the queue before others come.
TURN_S: Final = 0.002
WINDOW_S: Final = 0.004
# What one tenant, and one of its instances, is served before the next one.
SLICE_S: Final = 0.0005
# What a task that is resumed is taken to need: it runs in the next round of the loop, where nobody counts any more.
RESUMED_S: Final = 0.0001


class Queuing(Protocol):
    """A socket whose instance has used up its turn."""

    def on_turn(self) -> None:
        """It is served now. It may have been closed meanwhile."""


class TenantTurns(TenantAccount):
    """The use that one tenant makes of the loop, with all its instances together."""

    __slots__ = ("instance_count", "is_spent", "used_s", "window_s")

    def __init__(self, key: str = "") -> None:
        super().__init__(SLICE_S, key)
        self.window_s = 0.0
        self.used_s = 0.0
        self.is_spent = False
        # Number of instances that `FairTurns.enter` was called for.
        self.instance_count = 0

    def start_anew(self, now_s: float) -> None:
        """Lets the tenant be served without queueing again: nothing of it is queued any more."""
        self.is_spent = False
        self.window_s = now_s
        self.used_s = 0.0


class InstanceTurns:
    """The turns of one instance at the loop. `is_spent`: ask `must_wait` before anything of it is served.

    The connections of an instance without `fair_turns` never queue. An instance without `tenant` is its own tenant.
    """

    __slots__ = ("_fair_turns", "clock_s", "line", "tenant")

    def __init__(self, fair_turns: FairTurns | None, tenant: TenantTurns | None = None) -> None:
        self._fair_turns = fair_turns
        self.clock_s: Callable[[], float] = perf_counter if fair_turns is None else fair_turns.clock_s
        self.tenant = tenant or TenantTurns()
        self.line: InstanceQueue[Queuing] = InstanceQueue(self.tenant)

    @property
    def is_spent(self) -> bool:
        return self.tenant.is_spent

    def used(self, began_s: float, now_s: float) -> None:
        """It was served from `began_s` until now."""
        tenant = self.tenant
        if began_s - tenant.window_s > WINDOW_S:
            tenant.window_s = began_s
            tenant.used_s = 0.0
        tenant.used_s += now_s - began_s
        if tenant.used_s >= TURN_S and self._fair_turns is not None:
            tenant.is_spent = True

    def must_wait(self, now_s: float) -> bool:
        """Returns True if the caller must `join` the line; what its tenant has queued already goes first."""
        tenant = self.tenant
        if not tenant.is_spent:
            return False
        if not tenant.is_queued and now_s - tenant.window_s > WINDOW_S:
            tenant.is_spent = False
            return False
        return True

    def join(self, queuing: Queuing) -> None:
        assert self._fair_turns is not None, "its turn is never spent"
        self._fair_turns.enqueue(self.line, queuing)

    def leave(self, queuing: Queuing) -> None:
        """Removes from the line what is in it."""
        if self._fair_turns is not None and self.line.items:
            self._fair_turns.cancel(self.line, queuing)

    def move_to(self, tenant: TenantTurns) -> None:
        """Makes the instance one of another tenant, with what it has in line."""
        assert self._fair_turns is not None, "it has no tenant"
        self._fair_turns.move(self.line, tenant)
        self.tenant = tenant

    def begin_ahead(self, needed_s: float) -> None:
        """Charges work that was begun in this turn and is yet to run."""
        if self._fair_turns is not None:
            self._fair_turns.ahead_s += needed_s

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


class QueuedWork:
    """Work that runs once its instance may use the loop: at once, or behind what queues already. `cancel` drops it."""

    __slots__ = ("_turns", "_work")

    def __init__(self, turns: InstanceTurns, work: Callable[[], object]) -> None:
        self._turns = turns
        self._work: Callable[[], object] | None = work

    def cancel(self) -> None:
        self._work = None
        self._turns.leave(self)

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
            self._turns.begin_ahead(RESUMED_S)


class FairTurns:
    """The queue of one broker. `call_soon` calls back in the next turn of the loop."""

    __slots__ = ("_call_soon", "_is_scheduled", "_queue", "_tenants", "ahead_s", "clock_s")

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], clock_s: Callable[[], float] = perf_counter
    ) -> None:
        self._call_soon = call_soon
        self.clock_s = clock_s
        # What was begun by the item that is served, and is yet to run.
        self.ahead_s = 0.0
        self._is_scheduled = False
        # Seconds of the loop are the currency. Sockets bound the number of items.
        self._queue: FairQueue[Queuing] = FairQueue(SLICE_S)
        self._tenants: dict[str, TenantTurns] = {}

    def __len__(self) -> int:
        """Number of tenants that queue."""
        return len(self._queue)

    def enter(self, tenant_id: str) -> TenantTurns:
        """Returns the tenant that one more instance belongs to; call `exit` when the instance has gone."""
        tenant = self._tenants.get(tenant_id)
        if tenant is None:
            tenant = self._tenants[tenant_id] = TenantTurns(tenant_id)
        tenant.instance_count += 1
        return tenant

    def exit(self, tenant: TenantTurns) -> None:
        tenant.instance_count -= 1
        if not tenant.instance_count:
            del self._tenants[tenant.key]

    def enqueue(self, line: InstanceQueue[Queuing], queuing: Queuing) -> None:
        self._queue.enqueue(line, queuing)
        self._schedule()

    def cancel(self, line: InstanceQueue[Queuing], queuing: Queuing) -> None:
        self._queue.cancel(line, queuing)

    def move(self, line: InstanceQueue[Queuing], tenant: TenantTurns) -> None:
        self._queue.move(line, tenant)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._serve)

    def _serve(self) -> None:
        """Serves the queue for one turn of the loop."""
        self._is_scheduled = False
        queue = self._queue
        now_s = self.clock_s()
        end_s = now_s + TURN_S
        while now_s < end_s:
            line = queue.next_instance()
            if line is None:
                return
            tenant = line.tenant
            began_s = now_s
            self.ahead_s = 0.0
            try:
                queue.pop(line).on_turn()
            finally:  # a fault of ours with one request must not end the service of all that queue
                now_s = self.clock_s()
                end_s -= self.ahead_s
                queue.charge(line, now_s - began_s + self.ahead_s)
                if isinstance(tenant, TenantTurns) and not tenant.is_queued:
                    tenant.start_anew(now_s)
                if len(queue):
                    self._schedule()
