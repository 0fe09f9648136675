"""Fair shares of the event loop by tenant, independent of the number of instances and connections (CKA-4).

The sockets of a tenant that used little of the loop lately are served as they become ready. Those of a tenant that used
more are queued, instance by instance; so are those of a tenant in debt while others are queued. In each iteration of
the event loop the queue (`scheduling.fair_queue`) is served for `TURN_S`: tenants in turn, and the instances of each
tenant in turn. Then the loop serves other sockets. All loop time that is reported with `charge` is charged, including
that of work that was not queued.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

from brokers.engine.scheduling.fair_queue import FairQueue, InstanceQueue, TenantAccount
from brokers.engine.scheduling.inline_wakeup import InlineWakeup

# A tenant that used this much time without a pause is queued; the queue is served for this time in each iteration.
TURN_S: Final = 0.002
# Replaces `TURN_S` while several tenants use the loop, since each step of a request waits for the turns of the others.
SHARED_TURN_S: Final = 0.001
# Time for which the loop counts as shared after another tenant used it.
SHARED_S: Final = 0.1
# Used time decays at half the speed of the clock: a tenant that uses less than half of the loop is never queued.
DECAY_S_PER_S: Final = 0.5
# Time for which one tenant, and one of its instances, of weight one is served before the next; a tenant with no more
# debt than this is still served without being queued.
SLICE_S: Final = 0.0005


class Waiter(Protocol):
    """A socket, or a piece of work, that waits for the turn of its instance."""

    def on_turn(self) -> None:
        """Serves the socket, which may have been closed meanwhile."""


class TenantTurns(TenantAccount):
    """Loop time used by one tenant with all its instances."""

    __slots__ = ("decayed_at_s", "instance_count", "may_have_to_queue")

    def __init__(self, key: str = "", weight: float = 1.0) -> None:
        super().__init__(SLICE_S, key, weight)
        # Time on the clock of `FairTurns` at which all used time will have decayed.
        self.decayed_at_s = 0.0
        # True if the tenant may have to queue; `InstanceTurns.must_queue` decides.
        self.may_have_to_queue = False
        # Number of instances that `FairTurns.register_instance` was called for.
        self.instance_count = 0

    def reset(self, now_s: float) -> None:
        """Forgives the used time; called when the queue has become empty."""
        self.may_have_to_queue = False
        self.decayed_at_s = now_s


class InstanceLoopQueue(InstanceQueue[Waiter]):
    """Queue of one instance. `used_s` is all the loop time that it was charged."""

    __slots__ = ("used_s",)

    def __init__(self, tenant: TenantTurns, key: str = "") -> None:
        super().__init__(tenant, key)
        self.used_s = 0.0


class InstanceTurns:
    """Share of one instance in the event loop. If it `may_have_to_queue`, call `must_queue` before serving it.

    The connections of an instance without `fair_turns` are never queued. An instance without `tenant` is its own
    tenant.
    """

    __slots__ = ("_fair_turns", "clock_s", "loop_queue", "tenant")

    def __init__(self, fair_turns: FairTurns | None, tenant: TenantTurns | None = None, instance_id: str = "") -> None:
        self._fair_turns = fair_turns
        self.clock_s: Callable[[], float] = perf_counter if fair_turns is None else fair_turns.clock_s
        self.tenant = tenant or TenantTurns()
        self.loop_queue = InstanceLoopQueue(self.tenant, instance_id)

    @property
    def may_have_to_queue(self) -> bool:
        return self.tenant.may_have_to_queue

    def charge(self, began_s: float, now_s: float) -> None:
        """Charges the loop time for the instance from `began_s` until now, except for what was charged meanwhile."""
        if self._fair_turns is not None:
            self._fair_turns.charge(self.loop_queue, self.tenant, began_s, now_s)

    def must_queue(self, now_s: float) -> bool:
        """True if the caller must `enqueue`; work of its tenant that is already queued goes first."""
        tenant, fair_turns = self.tenant, self._fair_turns
        if not tenant.may_have_to_queue or fair_turns is None:
            return False
        if tenant.is_queued or tenant.decayed_at_s - now_s >= fair_turns.turn_s(now_s) or fair_turns.is_in_debt(tenant):
            return True
        tenant.may_have_to_queue = False
        return False

    def enqueue(self, waiter: Waiter) -> None:
        assert self._fair_turns is not None, "an instance without fair turns never queues"
        self._fair_turns.enqueue(self.loop_queue, waiter)

    def leave(self, waiter: Waiter) -> None:
        """Removes a socket from the queue, if it is there."""
        if self._fair_turns is not None and self.loop_queue.items:
            self._fair_turns.queue.cancel(self.loop_queue, waiter)

    def move_to(self, tenant: TenantTurns) -> None:
        """Moves the instance with its queue to another tenant."""
        assert self._fair_turns is not None, "an instance without fair turns has no queue"
        self._fair_turns.queue.move(self.loop_queue, tenant)
        self.tenant = tenant

    def schedule(self, call_soon: Callable[[Callable[[], object]], object], work: Callable[[], object]) -> QueuedWork:
        """Schedules `work` for a later iteration of the event loop, in the instance's turn."""
        turn = QueuedWork(self, work)
        if self.may_have_to_queue:
            self.enqueue(turn)
        else:
            call_soon(turn.begin)
        return turn

    def run_or_enqueue(self, work: Callable[[], object]) -> QueuedWork:
        """Calls `work` at once if the instance need not queue, otherwise in its turn."""
        turn = QueuedWork(self, work)
        turn.begin()
        return turn

    def turn_to_resume(self, loop: asyncio.AbstractEventLoop) -> InlineWakeup | None:
        """Returns what a task awaits before its next step, to run it in its turn; None if it need not queue."""
        if not self.may_have_to_queue or not self.must_queue(self.clock_s()):
            return None
        wakeup = InlineWakeup(loop)
        self.enqueue(wakeup)
        return wakeup


class QueuedWork:
    """Work that runs when its instance may use the loop: at once, or after queued work. `cancel` drops it."""

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
        if turns.may_have_to_queue and self._work is not None and turns.must_queue(turns.clock_s()):
            turns.enqueue(self)
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
                turns.charge(began_s, turns.clock_s())


class FairTurns:
    """Fair queue of one broker's event loop. `call_soon` schedules a callback for the next iteration of the loop."""

    __slots__ = (
        "_call_soon", "_charged_until_s", "_is_scheduled", "_recent", "_shared_until_s", "_tenants", "clock_s", "queue",
    )  # fmt: skip

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], clock_s: Callable[[], float] = perf_counter
    ) -> None:
        self._call_soon = call_soon
        self.clock_s = clock_s
        # Loop time before this instant is already charged: work that runs in a turn reports parts of its time itself.
        self._charged_until_s = 0.0
        # The tenant that used the loop last, and the time until which the loop counts as shared.
        self._recent: TenantTurns | None = None
        self._shared_until_s = 0.0
        self._is_scheduled = False
        # The cost of an item is its loop time in seconds. The number of items is bounded by that of sockets.
        self.queue: FairQueue[Waiter] = FairQueue(SLICE_S)
        self._tenants: dict[str, TenantTurns] = {}

    def __len__(self) -> int:
        """Returns the number of queued tenants."""
        return len(self.queue)

    def register_instance(self, tenant_id: str) -> TenantTurns:
        """Returns the tenant of a new instance; call `exit` when the instance is removed."""
        tenant = self._tenants.get(tenant_id)
        if tenant is None:
            tenant = self._tenants[tenant_id] = TenantTurns(tenant_id)
        tenant.instance_count += 1
        return tenant

    def exit(self, tenant: TenantTurns) -> None:
        tenant.instance_count -= 1
        if not tenant.instance_count:
            del self._tenants[tenant.key]

    def enqueue(self, loop_queue: InstanceQueue[Waiter], waiter: Waiter) -> None:
        self.queue.enqueue(loop_queue, waiter)
        self._schedule()

    def set_weights(self, loop_queue: InstanceLoopQueue, weight: float, tenant_weight: float) -> None:
        """Sets the weights of an instance and its tenant for their shares of a contended loop."""
        self.queue.set_weight(loop_queue, weight)
        self.queue.set_weight(loop_queue.tenant, tenant_weight)

    def set_tenant_weight(self, tenant_id: str, weight: float) -> None:
        """Sets the weight of a tenant. Does nothing if it has no instance here."""
        tenant = self._tenants.get(tenant_id)
        if tenant is not None:
            self.queue.set_weight(tenant, weight)

    def charge(self, loop_queue: InstanceLoopQueue, tenant: TenantTurns, began_s: float, now_s: float) -> None:
        """Charges loop time to an instance. Debt counts only while others queue: one tenant alone may use it all."""
        if began_s < self._charged_until_s:
            began_s = self._charged_until_s
        loop_time_s = now_s - began_s
        if loop_time_s <= 0.0:
            return
        self._charged_until_s = now_s
        loop_queue.used_s += loop_time_s
        if tenant is not self._recent:
            if self._recent is not None:
                self._shared_until_s = now_s + SHARED_S
            self._recent = tenant
        decayed_at_s = tenant.decayed_at_s if tenant.decayed_at_s > began_s else began_s
        tenant.decayed_at_s = decayed_at_s = decayed_at_s + loop_time_s / DECAY_S_PER_S
        if len(self.queue):
            self.queue.charge(loop_queue, loop_time_s)
            tenant.may_have_to_queue = True  # it may be in debt; `must_queue` decides
        elif decayed_at_s - now_s >= self.turn_s(now_s):
            tenant.may_have_to_queue = True

    def turn_s(self, now_s: float) -> float:
        """Returns the seconds that a tenant may use before it is queued, and for which the queue is served."""
        return SHARED_TURN_S if now_s < self._shared_until_s else TURN_S

    def is_in_debt(self, tenant: TenantTurns) -> bool:
        return self.queue.is_in_debt(tenant, SLICE_S)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._serve)

    def _serve(self) -> None:
        """Serves the queue in one iteration of the event loop."""
        self._is_scheduled = False
        queue = self.queue
        now_s = self.clock_s()
        end_s = now_s + self.turn_s(now_s)
        while now_s < end_s:
            loop_queue = queue.next_instance()
            if loop_queue is None:
                return
            assert isinstance(loop_queue, InstanceLoopQueue)
            tenant = loop_queue.tenant
            assert isinstance(tenant, TenantTurns)
            began_s = now_s
            try:
                queue.pop(loop_queue).on_turn()
            finally:  # a failure of one request must not end the service of all queued ones
                now_s = self.clock_s()
                self.charge(loop_queue, tenant, began_s, now_s)
                if not tenant.is_queued and not len(queue):
                    tenant.reset(now_s)
                if len(queue):
                    self._schedule()
