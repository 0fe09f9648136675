"""Prefetch: reads parts of logs from the disk into the page cache, in a thread, while the event loop serves others. The
caller then reads the partition again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from brokers.engine.handlers.services import BrokerServices
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.results import Uncached

# Maximum number of prefetches of one request. Each gets the read one step further (an index, a header, the end of the
# slice) in `PREFETCHED_TOGETHER_MAX` partitions. If more are needed, memory is so short that prefetched pages are
# evicted again, and the event loop waits for the disk.
ROUNDS_MAX: Final = 64
PREFETCHED_TOGETHER_MAX: Final = 16


class Missing(NamedTuple):
    """Part of a partition's log that a read needs from the disk."""

    partition: Partition
    uncached: Uncached


class Failed(NamedTuple):
    """Partition whose prefetch failed, and the disk's error."""

    partition: Partition
    error: OSError


Prefetching = asyncio.Future[list[Failed]]


async def prefetch(services: BrokerServices, missing: Sequence[Missing]) -> None:
    """Waits until the first `missing` parts are in the page cache. A disk error fails its partition."""
    _report_failures(await asyncio.shield(_begin(services, missing)))


def _begin(services: BrokerServices, missing: Sequence[Missing]) -> Prefetching:
    _release(missing[PREFETCHED_TOGETHER_MAX:])
    prefetched = missing[:PREFETCHED_TOGETHER_MAX]
    prefetching = services.loop.run_in_executor(services.storage.readers, _prefetch, prefetched)
    # Files stay open as long as the thread reads them, even if the task was cancelled.
    prefetching.add_done_callback(lambda _: _release(prefetched))
    return prefetching


def _prefetch(missing: Sequence[Missing]) -> list[Failed]:
    failed = []
    for partition, uncached in missing:
        try:
            uncached.prefetch()
        except OSError as error:
            failed.append(Failed(partition, error))
    return failed


def _release(missing: Sequence[Missing]) -> None:
    for _, uncached in missing:
        uncached.release()


def _report_failures(failed: list[Failed]) -> None:
    for partition, error in failed:
        partition.disk_failed(error)
