"""Waits of fetches: for the disk, and for their turns after they were woken.

A prefetch reads parts of logs from the disk into the page cache, in a thread, while the event loop serves others. The
caller then reads the partition again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from brokers.engine.handlers.services import BrokerServices
from brokers.engine.handlers.session import Session
from brokers.engine.partitions.delayed_operations import DelayedRead
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.results import Uncached
from brokers.engine.protocol.apis import ApiKey

# Maximum number of prefetches of one request. Each gets the read one step further (an index, a header, the end of the
# slice) in `PREFETCHED_TOGETHER_MAX` partitions. If more are needed, memory is so short that prefetched pages are
# evicted again, and the event loop waits for the disk.
PREFETCH_ROUNDS_MAX: Final = 64
PREFETCHED_TOGETHER_MAX: Final = 16
# Longer turns of a fetch that is served again are charged to its instance as request time. A fetch of a few partitions
# takes a tenth of this.
UNCHARGED_TURN_S_MAX: Final = 0.001


class UncachedRead(NamedTuple):
    """Part of a partition's log that a read needs, and that is not in the page cache."""

    partition: Partition
    uncached: Uncached


async def prefetch(services: BrokerServices, uncached_reads: Sequence[UncachedRead]) -> None:
    """Reads the first `uncached_reads` into the page cache, and releases all of them. A disk error takes its partition
    offline.
    """
    _release(uncached_reads[PREFETCHED_TOGETHER_MAX:])
    prefetched = uncached_reads[:PREFETCHED_TOGETHER_MAX]
    prefetching = services.loop.run_in_executor(services.storage.readers, _prefetch, prefetched)
    # Files stay open as long as the thread reads them, and disk errors count, even if the task was cancelled.
    prefetching.add_done_callback(lambda done: _on_prefetched(prefetched, done))
    await asyncio.shield(prefetching)


def _on_prefetched(
    prefetched: Sequence[UncachedRead], prefetching: asyncio.Future[list[tuple[Partition, OSError]]]
) -> None:
    _release(prefetched)
    if not prefetching.cancelled() and prefetching.exception() is None:
        for partition, error in prefetching.result():
            partition.report_disk_failure(error)


def _prefetch(uncached_reads: Sequence[UncachedRead]) -> list[tuple[Partition, OSError]]:
    """Returns the partitions whose prefetch failed, and the errors of the disk."""
    failed = []
    for partition, uncached in uncached_reads:
        try:
            uncached.prefetch()
        except OSError as error:
            failed.append((partition, error))
    return failed


def _release(uncached_reads: Sequence[UncachedRead]) -> None:
    for _, uncached in uncached_reads:
        uncached.release()


class TurnEvent:
    """Event that is set in the turn of an instance: one append may wake thousands of fetches, each of which then has
    long work to do.
    """

    def __init__(self, services: BrokerServices, instance_id: str | None) -> None:
        self._services = services
        self._instance_id = instance_id
        self._is_due = False
        self.event = asyncio.Event()

    def set(self) -> None:
        if self._is_due:
            return
        self._is_due = True
        if self._instance_id is None:
            self.event.set()
        else:
            self._services.accounting.request_turns.enqueue(self._instance_id).add_done_callback(self._on_turn)

    def _on_turn(self, _: object) -> None:
        self.event.set()

    async def wait(self, operation: DelayedRead, watched: Iterable[Partition], max_wait_ms: int) -> None:
        """Waits for the event, which `operation` sets when enough bytes of the partitions are readable, when a
        partition fails, or after `max_wait_ms` (WIRE-27).
        """
        for partition in watched:
            operation.watch(partition)
        tick = self._services.deadlines.add(operation, max_wait_ms)
        try:
            await self.event.wait()
        finally:
            self._services.deadlines.drop(operation, tick)
            operation.cancel()


def charge_long_turn(session: Session, spent_s: float) -> None:
    """Records a later turn of a client's fetch, and charges it as request time if it was long."""
    services, instance_id = session.services, session.principal.instance_id
    services.accounting.loop_turns.record(int(ApiKey.FETCH), instance_id, spent_s)
    if spent_s >= UNCHARGED_TURN_S_MAX and instance_id is not None and not session.principal.internal:
        services.accounting.accountings.get_or_create(instance_id).request_time.charge(
            round(spent_s * 1e6), services.clock.monotonic_ms()
        )
