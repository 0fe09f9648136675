"""A limited number of permits for work of many instances, granted fairly.

`Permits` is a semaphore whose waiters are served by tenant, then by instance, whatever the number of their requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from brokers.engine.scheduling.accounts import InstanceAccounts, Ownership
from brokers.engine.scheduling.fair_queue import UNBOUNDED, FairQueue

# Cost of a permit, and the grant of one tenant, and of one of its instances, of weight one in each round.
PERMIT: Final = 1.0


class Permits:
    """A semaphore of `permits_max` permits. Waiters of one instance are served in the order of their arrival.

    Tenants and instances have equal weights, unless `ownership` has others.
    """

    __slots__ = ("_accounts", "_free", "_queue")

    def __init__(
        self, permits_max: int, ownership: Ownership | None = None, *, queued_per_instance_max: int = UNBOUNDED
    ) -> None:
        self._free = permits_max
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(PERMIT, queued_per_instance_max)
        self._accounts: InstanceAccounts[asyncio.Future[None]] = InstanceAccounts(PERMIT, ownership or Ownership())

    def queued(self, instance_id: str) -> int:
        """Returns the number of waiters of an instance."""
        instance = self._accounts.get(instance_id)
        return 0 if instance is None else len(instance)

    def would_wait(self) -> bool:
        """True if `acquire` would not return at once."""
        return not self._free

    async def acquire(self, instance_id: str) -> None:
        """Acquires a permit; give it back with `release`.

        Raises:
            QueueFull: the instance has its maximum number of waiters.
        """
        if self._free:
            self._free -= 1
            return
        instance = self._accounts.to_enqueue(instance_id)
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.enqueue(instance, granted)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.release()
            else:
                self._queue.cancel(instance, granted)
                self._accounts.forget_idle(self._queue)
            raise

    def release(self) -> None:
        """Gives a permit back, and passes it to the next waiter."""
        queue = self._queue
        while (instance := queue.next_instance()) is not None:
            granted = queue.pop(instance)
            if not granted.done():
                queue.charge(instance, PERMIT)
                granted.set_result(None)
                break
        else:
            self._free += 1
        self._accounts.forget_idle(queue)

    @asynccontextmanager
    async def hold(self, instance_id: str) -> AsyncIterator[None]:
        """Holds a permit within the block. Raises `QueueFull` like `acquire`."""
        await self.acquire(instance_id)
        try:
            yield
        finally:
            self.release()
