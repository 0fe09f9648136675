"""Permits for work of many instances, granted fairly.

`Permits` is a semaphore whose waiters are served by tenant, then by instance, whatever the number of their requests.
`DecodeMemoryLimiter` limits the memory of each instance; no instance waits for another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from brokers.engine.scheduling.accounts import InstanceAccounts, Ownership
from brokers.engine.scheduling.fair_queue import UNBOUNDED, FairQueue

# Cost of a permit, and the grant of one tenant, and of one of its instances, of weight one in each round.
PERMIT_COST: Final = 1.0
# Received bytes of an instance's requests that are decoded at the same time.
DECODED_BYTES_PER_INSTANCE_MAX: Final = 256 * 1024
# Received bytes of decoded requests that wait for events, of an instance and of all instances of a tenant. 4 MiB are
# some 125,000 partitions of fetches, and take about seven times as much memory.
DELAYED_BYTES_PER_INSTANCE_MAX: Final = 4 * 1024 * 1024
DELAYED_BYTES_PER_TENANT_MAX: Final = 12 * 1024 * 1024


class Permits:
    """A semaphore of `permits_max` permits. Waiters of one instance are served in the order of their arrival.

    Tenants and instances have equal weights, unless `ownership` has others.
    """

    __slots__ = ("_accounts", "_free_permits", "_queue")

    def __init__(
        self, permits_max: int, ownership: Ownership | None = None, *, queued_per_instance_max: int = UNBOUNDED
    ) -> None:
        self._free_permits = permits_max
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(PERMIT_COST, queued_per_instance_max)
        self._accounts: InstanceAccounts[asyncio.Future[None]] = InstanceAccounts(PERMIT_COST, ownership or Ownership())

    def count_waiters(self, instance_id: str) -> int:
        """Returns the number of waiters of an instance."""
        instance = self._accounts.get(instance_id)
        return 0 if instance is None else len(instance)

    def would_wait(self) -> bool:
        """True if `acquire` would not return at once."""
        return not self._free_permits

    async def acquire(self, instance_id: str) -> None:
        """Acquires a permit, which the caller must `release`.

        Raises:
            QueueFull: the instance has its maximum number of waiters.
        """
        if self._free_permits:
            self._free_permits -= 1
            return
        instance = self._accounts.account_to_enqueue(instance_id)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.enqueue(instance, waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release()
            else:
                self._queue.cancel(instance, waiter)
                self._accounts.forget_idle(self._queue)
            raise

    def release(self) -> None:
        """Returns a permit to the semaphore, which grants it to the next waiter."""
        queue = self._queue
        while (instance := queue.next_instance()) is not None:
            waiter = queue.pop(instance)
            if not waiter.done():
                queue.charge(instance, PERMIT_COST)
                waiter.set_result(None)
                break
        else:
            self._free_permits += 1
        self._accounts.forget_idle(queue)

    @asynccontextmanager
    async def hold(self, instance_id: str) -> AsyncIterator[None]:
        """Holds a permit within the block. Raises `QueueFull` like `acquire`."""
        await self.acquire(instance_id)
        try:
            yield
        finally:
            self.release()


class Permit:
    """Permit of one request to use memory of its instance. `release` may be repeated.

    Short requests are decoded without a permit for it: theirs counts only while they wait for an event.
    """

    __slots__ = ("_counted_bytes", "_delayed_bytes", "_instance_id", "_is_short", "_limiter", "_request_bytes")

    def __init__(self, limiter: DecodeMemoryLimiter, instance_id: str, request_bytes: int, *, is_short: bool) -> None:
        self._limiter = limiter
        self._instance_id = instance_id
        self._request_bytes = request_bytes
        self._is_short = is_short
        self._counted_bytes = 0 if is_short else request_bytes
        self._delayed_bytes = 0

    def release(self) -> None:
        """Frees the memory, or ends the delay, of the request."""
        size_bytes, self._counted_bytes = self._counted_bytes, 0
        if size_bytes:
            self._limiter.release(self._instance_id, size_bytes)
        delayed_bytes, self._delayed_bytes = self._delayed_bytes, 0
        if delayed_bytes:
            self._limiter.end_delay(self._instance_id, delayed_bytes)

    def begin_delay(self) -> bool:
        """Frees the memory for other requests while this one waits for an event.

        Returns False, changing nothing, if too many decoded requests of the instance wait already.
        """
        if not self._limiter.begin_delay(self._instance_id, self._request_bytes):
            return False
        self.release()
        self._delayed_bytes = self._request_bytes
        return True

    async def end_delay(self) -> None:
        """Acquires the permit again after `begin_delay`."""
        if self._is_short:
            self.release()
            return
        await self._limiter.reserve(self._instance_id, self._request_bytes)
        self.release()
        self._counted_bytes = self._request_bytes


class DecodeMemoryLimiter:
    """Limits the memory of each instance's decoded requests, which take twelve to thirty times their bytes. One request
    of any length gets a permit; others wait for room, first come, first served. Requests that wait for events have
    limits of their own, for each instance and for each tenant; `tenant_of` returns the tenant's id of an instance's.
    """

    __slots__ = (
        "_bytes_max", "_delayed_bytes", "_delayed_bytes_max", "_delayed_bytes_of_tenants", "_delayed_tenants",
        "_tenant_of", "_used_bytes", "_waiters",
    )  # fmt: skip

    def __init__(
        self,
        bytes_max: int = DECODED_BYTES_PER_INSTANCE_MAX,
        delayed_bytes_max: int = DELAYED_BYTES_PER_INSTANCE_MAX,
        *,
        tenant_of: Callable[[str], str] = lambda instance_id: instance_id,
    ) -> None:
        self._bytes_max = bytes_max
        self._delayed_bytes_max = delayed_bytes_max
        self._tenant_of = tenant_of
        self._delayed_bytes: dict[str, int] = {}
        # The tenant that an instance is counted for while any of its requests wait; it may get another one meanwhile.
        self._delayed_tenants: dict[str, str] = {}
        self._delayed_bytes_of_tenants: dict[str, int] = {}
        self._used_bytes: dict[str, int] = {}
        self._waiters: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}

    async def acquire(self, instance_id: str, size_bytes: int) -> Permit:
        """Waits until there is room for a request of `size_bytes` received bytes, and returns its permit."""
        await self.reserve(instance_id, size_bytes)
        return Permit(self, instance_id, size_bytes, is_short=False)

    def short_permit(self, instance_id: str, size_bytes: int) -> Permit:
        """Returns the permit of a short request, which is decoded at once."""
        return Permit(self, instance_id, size_bytes, is_short=True)

    def begin_delay(self, instance_id: str, size_bytes: int) -> bool:
        """Counts a request that begins to wait for an event; returns False if there is no room for it."""
        delayed_bytes = self._delayed_bytes.get(instance_id, 0) + size_bytes
        if delayed_bytes > self._delayed_bytes_max:
            return False
        tenant_id = self._delayed_tenants.get(instance_id)
        if tenant_id is None:
            tenant_id = self._tenant_of(instance_id)
        tenant_bytes = self._delayed_bytes_of_tenants.get(tenant_id, 0) + size_bytes
        if tenant_bytes > DELAYED_BYTES_PER_TENANT_MAX:
            return False
        self._delayed_bytes[instance_id] = delayed_bytes
        self._delayed_tenants[instance_id] = tenant_id
        self._delayed_bytes_of_tenants[tenant_id] = tenant_bytes
        return True

    def end_delay(self, instance_id: str, size_bytes: int) -> None:
        """Removes a request that `begin_delay` counted."""
        tenant_id = self._delayed_tenants[instance_id]
        delayed_bytes = self._delayed_bytes[instance_id] - size_bytes
        if delayed_bytes:
            self._delayed_bytes[instance_id] = delayed_bytes
        else:
            del self._delayed_bytes[instance_id], self._delayed_tenants[instance_id]
        tenant_bytes = self._delayed_bytes_of_tenants[tenant_id] - size_bytes
        if tenant_bytes:
            self._delayed_bytes_of_tenants[tenant_id] = tenant_bytes
        else:
            del self._delayed_bytes_of_tenants[tenant_id]

    async def reserve(self, instance_id: str, size_bytes: int) -> None:
        """Waits until there is room, and counts the memory as used until `release`."""
        used_bytes = self._used_bytes.get(instance_id, 0)
        if instance_id not in self._waiters and self._has_room(used_bytes, size_bytes):
            self._used_bytes[instance_id] = used_bytes + size_bytes
        else:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.setdefault(instance_id, deque()).append((size_bytes, waiter))
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self.release(instance_id, size_bytes)
                raise

    def release(self, instance_id: str, size_bytes: int) -> None:
        """Frees memory, and grants it to waiting requests of the instance."""
        used_bytes = self._used_bytes[instance_id] - size_bytes
        waiters = self._waiters.get(instance_id)
        while waiters and (waiters[0][1].done() or self._has_room(used_bytes, waiters[0][0])):
            waiter_bytes, waiter = waiters.popleft()
            if not waiter.done():  # else the waiting task was cancelled
                used_bytes += waiter_bytes
                waiter.set_result(None)
        if waiters is not None and not waiters:
            del self._waiters[instance_id]
        if used_bytes:
            self._used_bytes[instance_id] = used_bytes
        else:
            del self._used_bytes[instance_id]

    def _has_room(self, used_bytes: int, size_bytes: int) -> bool:
        return not used_bytes or used_bytes + size_bytes <= self._bytes_max
