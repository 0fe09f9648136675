"""Limits on the changes and reads in ZooKeeper that requests cause. Changes are made one at a time for each instance,
and a limited number at once for all instances, fairly by tenant. Reads have a budget.

A change waits for earlier requests of its instance, then until its instance has paid for earlier changes, then for a
permit.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from brokers.contract.instance_limits import CHANGES_PER_S_MAX
from brokers.engine.clock import Clock
from brokers.engine.cluster.errors import TooManyChanges
from brokers.engine.scheduling.accounts import Ownership
from brokers.engine.scheduling.permits import Permits
from brokers.engine.throttling.request_time import ChangeRate
from instances.naming import split_internal
from quotas.token_bucket import TokenBucket

# Maximum number of concurrent changes of all instances; each is a transaction of ZooKeeper in flight.
CHANGES_AT_ONCE_MAX: Final = 4
# Maximum number of waiting requests of one instance.
REQUESTS_WAITING_MAX: Final = 500
# Maximum number of reads of the change log in a burst, and per second, for one instance and for all together.
CHANGE_LOG_READS_BURST: Final = 10
CHANGE_LOG_READS_PER_S: Final = 2
ALL_CHANGE_LOG_READS_BURST: Final = 40
ALL_CHANGE_LOG_READS_PER_S: Final = 20
# Maximum number of instances with a budget of their own; the oldest is dropped, and starts anew.
INSTANCES_REMEMBERED_MAX: Final = 1_000


class WriteQueue:
    """Writing requests of one instance: one of them holds `lock`, `waiting` is the number of all."""

    __slots__ = ("__weakref__", "lock", "waiting")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


class ChangeTurns:
    """Turns of instances to change ZooKeeper through one broker."""

    def __init__(self, ownership: Ownership | None = None) -> None:
        self._instances: dict[str, WriteQueue] = {}
        self._permits = Permits(CHANGES_AT_ONCE_MAX, ownership)

    @asynccontextmanager
    async def turn(
        self,
        instance_id: str,
        rate: ChangeRate,
        *,
        now_ms: Callable[[], int],
        deadline_ms: int,
        until_ready: Callable[[float], Awaitable[object]] | None = None,
    ) -> AsyncIterator[None]:
        """Waits for the turn of an instance, which lasts as long as the block. When the instance has paid,
        `until_ready` is called with the seconds that are left, and awaited.

        Raises:
            TooManyChanges: the turn would come after `deadline_ms` (monotonic), or too many requests wait already.
        """
        changes = self._instances.get(instance_id)
        if changes is None:
            changes = self._instances[instance_id] = WriteQueue()
        if changes.waiting >= REQUESTS_WAITING_MAX:
            raise too_many(0)
        changes.waiting += 1
        try:
            await _acquire_within(changes.lock.acquire(), changes.lock.locked(), (deadline_ms - now_ms()) / 1000)
            try:
                wait_ms = rate.wait_ms(now_ms())
                if now_ms() + wait_ms > deadline_ms:
                    raise too_many(wait_ms)
                if wait_ms:
                    await asyncio.sleep(wait_ms / 1000)
                if until_ready is not None:
                    await until_ready(max(0.0, (deadline_ms - now_ms()) / 1000))
                permit = self._permits.acquire(instance_id)
                await _acquire_within(permit, self._permits.would_wait(), (deadline_ms - now_ms()) / 1000)
                began_ms = now_ms()
                try:
                    yield
                finally:
                    self._permits.release()
                    await asyncio.sleep(rate.pause_ms(began_ms, now_ms()) / 1000)
            finally:
                changes.lock.release()
        finally:
            changes.waiting -= 1
            if not changes.waiting:
                del self._instances[instance_id]


async def _acquire_within(acquiring: Awaitable[object], would_wait: bool, timeout_s: float) -> None:
    """Awaits a lock or a permit. Raises `TooManyChanges` if it would wait longer than `timeout_s`."""
    try:
        async with asyncio.timeout(timeout_s if would_wait else None):
            await acquiring
    except TimeoutError:
        raise too_many(0) from None


def too_many(wait_ms: int) -> TooManyChanges:
    """Returns the error of a change that would have to wait for `wait_ms`; 0 if that time is not known."""
    when = f"in {wait_ms / 1000:.0f} s" if wait_ms else "later"
    return TooManyChanges(
        f"The instance changes more than {CHANGES_PER_S_MAX} partitions, configurations, quotas and ACLs a second; "
        f"try again {when}."
    )


class TopicsBeingCreated:
    """Internal names of topics that are being auto-created, one at a time for each instance: hundreds of concurrent
    plans, each over all existing topics, would block the event loop.
    """

    __slots__ = ("_counts", "_names", "_turns")

    def __init__(self) -> None:
        self._turns: dict[str | None, asyncio.Lock] = {}
        self._names: set[str] = set()
        self._counts: Counter[str | None] = Counter()

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, internal_name: str) -> bool:
        return internal_name in self._names

    def of_instance(self, instance_id: str | None) -> int:
        return self._counts[instance_id]

    def turn(self, instance_id: str | None) -> asyncio.Lock:
        """Returns the lock that is held while a topic of the instance is planned and created."""
        return self._turns.setdefault(instance_id, asyncio.Lock())

    def add(self, internal_name: str) -> None:
        if internal_name not in self._names:
            self._names.add(internal_name)
            self._counts[split_internal(internal_name)[0]] += 1

    def discard(self, internal_name: str) -> None:
        if internal_name in self._names:
            self._names.discard(internal_name)
            instance_id = split_internal(internal_name)[0]
            self._counts[instance_id] -= 1
            if not self._counts[instance_id]:
                del self._counts[instance_id]
                self._turns.pop(instance_id, None)


class ChangeLogReadBudget:
    """Budget of reads of the change log that requests for unknown topics cause, of each instance and of all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._total_bucket = TokenBucket(ALL_CHANGE_LOG_READS_PER_S, ALL_CHANGE_LOG_READS_BURST - 1)
        self._by_instance: dict[str, TokenBucket] = {}

    def take(self, instance_id: str) -> bool:
        """True if the instance may cause a read now, which is charged."""
        now_ms = self._clock.monotonic_ms()
        bucket = self._by_instance.get(instance_id)
        if bucket is None:
            if len(self._by_instance) >= INSTANCES_REMEMBERED_MAX:
                del self._by_instance[next(iter(self._by_instance))]
            bucket = self._by_instance[instance_id] = TokenBucket(CHANGE_LOG_READS_PER_S, CHANGE_LOG_READS_BURST - 1)
        if bucket.is_exhausted(now_ms) or self._total_bucket.is_exhausted(now_ms):
            return False
        bucket.charge(1, now_ms)
        self._total_bucket.charge(1, now_ms)
        return True
