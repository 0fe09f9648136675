"""Reads records that lie on the disk only into the page cache, in a thread, while the loop serves others; then the
partition is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from brokers.engine.handlers.services import BrokerServices
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.results import Uncached

# How often one request is sent to the disk. Each round brings it a step further (an index, a header, where to cut) in
# up to so many partitions; if it takes more, memory is so short that what was read is gone again, and the loop waits.
ROUNDS_MAX: Final = 64
PREFETCHED_TOGETHER_MAX: Final = 16


class Missing(NamedTuple):
    """Part of a partition's log that a read has to wait for."""

    partition: Partition
    uncached: Uncached


class Failed(NamedTuple):
    """A read that the disk refused."""

    partition: Partition
    error: OSError


Prefetching = asyncio.Future[list[Failed]]


async def prefetch(services: BrokerServices, missing: Sequence[Missing]) -> None:
    """Waits until the first `missing` parts are in the page cache. A failing disk takes its partitions with it."""
    _report_failures(await asyncio.shield(_begin(services, missing)))


def _begin(services: BrokerServices, missing: Sequence[Missing]) -> Prefetching:
    _release(missing[PREFETCHED_TOGETHER_MAX:])
    prefetched = missing[:PREFETCHED_TOGETHER_MAX]
    prefetching = services.loop.run_in_executor(services.storage.readers, _prefetch, prefetched)
    # Files stay open for as long as the thread reads them, even when nobody waits for it any more.
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
