"""What lies on the disk only is read into the page cache by a thread while the loop serves others; then the partition
is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from brokers.engine.handlers.context import Engine
from brokers.engine.handlers.fetch.delayed_fetch import serve_again
from brokers.engine.handlers.session import Session
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.results import Uncached

# How often one request is sent to the disk. Each round brings it a step further (an index, a header, where to cut) in
# up to so many partitions; if it takes more, memory is so short that what was read is gone again, and the loop waits.
ROUNDS_MAX: Final = 64
PREFETCHED_TOGETHER_MAX: Final = 16


class Missing(NamedTuple):
    """What a read has to wait for."""

    partition: Partition
    uncached: Uncached


class Failed(NamedTuple):
    """A read that the disk refused."""

    partition: Partition
    error: OSError


Prefetching = asyncio.Future[list[Failed]]


async def prefetch(engine: Engine, missing: Sequence[Missing]) -> None:
    """Waits until the first of what is `missing` are in the page cache. A failing disk takes its partitions with it."""
    _report_failures(await asyncio.shield(_begin(engine, missing)))


def prefetch_then(session: Session, missing: Sequence[Missing], again: Callable[[], object]) -> None:
    """Calls `again` when the first of what is `missing` are in the page cache and the instance's turn comes, unless the
    connection went.
    """
    prefetching = _begin(session.engine, missing)

    def done(_: object) -> None:
        session.cancel = None
        if prefetching.cancelled():
            session.channel.close("the broker stops")
            return
        try:
            _report_failures(prefetching.result())
        except Exception as error:  # one tenant's request must not take the others' broker down
            session.channel.fail(error)
            return
        turn = session.channel.turns.now_or_in_turn(serve)
        if not turn.is_over:
            session.cancel = turn.cancel

    def serve() -> None:
        session.cancel = None
        serve_again(session, again)

    prefetching.add_done_callback(done)
    session.cancel = lambda: prefetching.remove_done_callback(done)


def _begin(engine: Engine, missing: Sequence[Missing]) -> Prefetching:
    _release(missing[PREFETCHED_TOGETHER_MAX:])
    prefetched = missing[:PREFETCHED_TOGETHER_MAX]
    prefetching = engine.loop.run_in_executor(engine.readers, _prefetch, prefetched)
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
