"""Changes of what is in ZooKeeper: one at a time for each instance, and a few at a time for all of them. An instance
with a thousand changes is before nobody who has one.

Whose turn it is first waits until its instance has paid for what it changed before, then for a place among all
instances. Each instance asks for one place at a time, so places go round.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from brokers.contract.instance_limits import CHANGES_PER_S_MAX
from brokers.engine.cluster.errors import TooManyChanges
from brokers.engine.throttling.change_rate import ChangeRate
from instances.naming import split_internal

# Of all instances: each is one transaction of ZooKeeper under way.
CHANGES_AT_ONCE_MAX: Final = 4
# Requests of one instance that wait for a turn.
REQUESTS_WAITING_MAX: Final = 500


class _Lane:
    """Of one instance."""

    __slots__ = ("lock", "waiting")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


class ChangeTurns:
    """Of one broker."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}
        self._places = asyncio.Semaphore(CHANGES_AT_ONCE_MAX)

    @asynccontextmanager
    async def turn(
        self,
        instance_id: str,
        rate: ChangeRate,
        *,
        now_ms: Callable[[], int],
        until_ms: int,
        until_ready: Callable[[float], Awaitable[object]] | None = None,
    ) -> AsyncIterator[None]:
        """A turn of the instance. `until_ready` is given the seconds left, and awaited when the instance has paid.

        Raises:
            TooManyChanges: not until `until_ms` (monotonic), or too many wait already.
        """
        lane = self._lanes.get(instance_id)
        if lane is None:
            lane = self._lanes[instance_id] = _Lane()
        if lane.waiting >= REQUESTS_WAITING_MAX:
            raise too_many(0)
        lane.waiting += 1
        try:
            await _acquire(lane.lock, (until_ms - now_ms()) / 1000)
            try:
                wait_ms = rate.wait_ms(now_ms())
                if now_ms() + wait_ms > until_ms:
                    raise too_many(wait_ms)
                if wait_ms:
                    await asyncio.sleep(wait_ms / 1000)
                if until_ready is not None:
                    await until_ready(max(0.0, (until_ms - now_ms()) / 1000))
                await _acquire(self._places, (until_ms - now_ms()) / 1000)
                began_ms = now_ms()
                try:
                    yield
                finally:
                    self._places.release()
                    await asyncio.sleep(rate.rest_ms(began_ms, now_ms()) / 1000)
            finally:
                lane.lock.release()
        finally:
            lane.waiting -= 1
            if not lane.waiting:
                del self._lanes[instance_id]


async def _acquire(gate: asyncio.Lock | asyncio.Semaphore, timeout_s: float) -> None:
    if not gate.locked():
        await gate.acquire()  # at once
        return
    try:
        async with asyncio.timeout(timeout_s):
            await gate.acquire()
    except TimeoutError:
        raise too_many(0) from None


def too_many(wait_ms: int) -> TooManyChanges:
    when = f"in {wait_ms / 1000:.0f} s" if wait_ms else "later"
    return TooManyChanges(
        f"The instance changes more than {CHANGES_PER_S_MAX} partitions, configurations, quotas and ACLs a second; "
        f"try again {when}."
    )


class TopicsBeingCreated:
    """Internal names of topics that are made because a client asked for them, of an instance one after the other: to
    plan hundreds at once, each beside all topics there are, would hold the loop.
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
        """Held while a topic of the instance is planned and made."""
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
