"""Fair share of the event loop by tenant, whatever the number of its instances and connections (CKA-4).

The sockets of a tenant that used little of the loop lately are served as they become ready, without any detour. Those
of a tenant that used more queue, instance by instance; so do those of one that owes time while others queue. In each
turn of the loop the queue (`scheduling.fair_queue`) is served for `TURN_S`: tenants in turn, and the instances of each
tenant in turn. Then the loop looks at other sockets. All time of the loop that is reported with `used` is charged, also
of work that did not queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

from brokers.engine.scheduling.fair_queue import FairQueue, InstanceQueue, TenantAccount
from brokers.engine.scheduling.inline_wakeup import InlineWakeup

# A tenant that used so much in one go queues; so much is served from the queue before others come.
TURN_S: Final = 0.002
# Both, while more than one tenant uses the loop: each hop of a request waits for a turn of the others.
SHARED_TURN_S: Final = 0.001
# How long the loop counts as shared after another tenant used it.
SHARED_S: Final = 0.1
# Used time is forgotten at half the speed of the clock: a tenant that uses less than half of the loop does not queue.
FORGOTTEN_S_PER_S: Final = 0.5
# What one tenant, and one of its instances, of weight one is served before the next one; a tenant may owe as much and
# is still served without queueing.
SLICE_S: Final = 0.0005


class Queuing(Protocol):
    """A socket whose instance has used up its turn."""

    def on_turn(self) -> None:
        """It is served now. It may have been closed meanwhile."""


class TenantTurns(TenantAccount):
    """The use that one tenant makes of the loop, with all its instances together."""

    __slots__ = ("forgotten_s", "instance_count", "is_spent")

    def __init__(self, key: str = "", weight: float = 1.0) -> None:
        super().__init__(SLICE_S, key, weight)
        # When the time that it used is forgotten.
        self.forgotten_s = 0.0
        self.is_spent = False
        # Number of instances that `FairTurns.enter` was called for.
        self.instance_count = 0

    def start_anew(self, now_s: float) -> None:
        """Lets the tenant be served without queueing again: nothing of it is queued any more."""
        self.is_spent = False
        self.forgotten_s = now_s


class InstanceLine(InstanceQueue[Queuing]):
    """The queue of one instance. `used_s` is all the time of the loop that it was charged."""

    __slots__ = ("used_s",)

    def __init__(self, tenant: TenantTurns, key: str = "") -> None:
        super().__init__(tenant, key)
        self.used_s = 0.0


class InstanceTurns:
    """The turns of one instance at the loop. `is_spent`: ask `must_wait` before anything of it is served.

    The connections of an instance without `fair_turns` never queue. An instance without `tenant` is its own tenant.
    """

    __slots__ = ("_fair_turns", "clock_s", "line", "tenant")

    def __init__(self, fair_turns: FairTurns | None, tenant: TenantTurns | None = None, instance_id: str = "") -> None:
        self._fair_turns = fair_turns
        self.clock_s: Callable[[], float] = perf_counter if fair_turns is None else fair_turns.clock_s
        self.tenant = tenant or TenantTurns()
        self.line = InstanceLine(self.tenant, instance_id)

    @property
    def is_spent(self) -> bool:
        return self.tenant.is_spent

    def used(self, began_s: float, now_s: float) -> None:
        """Charges what the loop did for the instance from `began_s` until now, but for what was charged meanwhile."""
        if self._fair_turns is not None:
            self._fair_turns.charge(self.line, self.tenant, began_s, now_s)

    def must_wait(self, now_s: float) -> bool:
        """Returns True if the caller must `join` the line; what its tenant has queued already goes first."""
        tenant, fair_turns = self.tenant, self._fair_turns
        if not tenant.is_spent or fair_turns is None:
            return False
        if tenant.is_queued or tenant.forgotten_s - now_s >= fair_turns.turn_s(now_s) or fair_turns.is_in_debt(tenant):
            return True
        tenant.is_spent = False
        return False

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

    def turn_to_resume(self, loop: asyncio.AbstractEventLoop) -> InlineWakeup | None:
        """Returns what a task awaits before its next step, which then runs as the turn of the instance; None while it
        need not queue.
        """
        if not self.is_spent or not self.must_wait(self.clock_s()):
            return None
        resumption = Resumption(loop)
        self.join(resumption)
        return resumption.turn


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
    """A task that goes on when the turn of its instance comes, and holds the turn until it waits again."""

    __slots__ = ("turn",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.turn = InlineWakeup(loop)

    def on_turn(self) -> None:
        self.turn.begin()


class FairTurns:
    """The queue of one broker. `call_soon` calls back in the next turn of the loop."""

    __slots__ = (
        "_call_soon", "_charged_s", "_is_scheduled", "_queue", "_recent", "_shared_until_s", "_tenants", "clock_s",
    )  # fmt: skip

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], clock_s: Callable[[], float] = perf_counter
    ) -> None:
        self._call_soon = call_soon
        self.clock_s = clock_s
        # Time before this was charged already: what is served in a turn reports parts of it itself.
        self._charged_s = 0.0
        # Who used the loop last, and until when it counts as shared.
        self._recent: TenantTurns | None = None
        self._shared_until_s = 0.0
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

    def set_weights(self, line: InstanceLine, weight: float, tenant_weight: float) -> None:
        """Changes which part of the loop an instance and its tenant have while others want it."""
        self._queue.set_weight(line, weight)
        self._queue.set_weight(line.tenant, tenant_weight)

    def set_tenant_weight(self, tenant_id: str, weight: float) -> None:
        """Changes the part of a tenant. Does nothing if no instance of it is here."""
        tenant = self._tenants.get(tenant_id)
        if tenant is not None:
            self._queue.set_weight(tenant, weight)

    def charge(self, line: InstanceLine, tenant: TenantTurns, began_s: float, now_s: float) -> None:
        """Charges what the loop did for an instance. A debt counts only while others queue: alone it may use all."""
        if began_s < self._charged_s:
            began_s = self._charged_s
        spent_s = now_s - began_s
        if spent_s <= 0.0:
            return
        self._charged_s = now_s
        line.used_s += spent_s
        if tenant is not self._recent:
            if self._recent is not None:
                self._shared_until_s = now_s + SHARED_S
            self._recent = tenant
        forgotten_s = tenant.forgotten_s if tenant.forgotten_s > began_s else began_s
        tenant.forgotten_s = forgotten_s = forgotten_s + spent_s / FORGOTTEN_S_PER_S
        if len(self._queue):
            self._queue.charge(line, spent_s)
            tenant.is_spent = True  # it may owe; `must_wait` knows
        elif forgotten_s - now_s >= self.turn_s(now_s):
            tenant.is_spent = True

    def turn_s(self, now_s: float) -> float:
        """Returns how long one tenant is served before others come."""
        return SHARED_TURN_S if now_s < self._shared_until_s else TURN_S

    def is_in_debt(self, tenant: TenantTurns) -> bool:
        return self._queue.is_in_debt(tenant, SLICE_S)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._serve)

    def _serve(self) -> None:
        """Serves the queue for one turn of the loop."""
        self._is_scheduled = False
        queue = self._queue
        now_s = self.clock_s()
        end_s = now_s + self.turn_s(now_s)
        while now_s < end_s:
            line = queue.next_instance()
            if line is None:
                return
            assert isinstance(line, InstanceLine)
            tenant = line.tenant
            assert isinstance(tenant, TenantTurns)
            began_s = now_s
            try:
                queue.pop(line).on_turn()
            finally:  # a fault of ours with one request must not end the service of all that queue
                now_s = self.clock_s()
                self.charge(line, tenant, began_s, now_s)
                if not tenant.is_queued and not len(queue):
                    tenant.start_anew(now_s)
                if len(queue):
                    self._schedule()
