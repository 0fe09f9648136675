"""What lies on the disk only is read into the page cache by a thread while the loop serves others; then the partition
is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from brokers.engine.handlers.context import Engine
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.results import Cold

if TYPE_CHECKING:
    from brokers.engine.handlers.session import Session

# How often one request is sent to the disk. Each round brings it a step further (an index, a header, where to cut) in
# up to so many partitions; if it takes more, memory is so short that what was read is gone again, and the loop waits.
ROUNDS_MAX: Final = 64
PULLED_TOGETHER_MAX: Final = 16

Missing = tuple[Partition, Cold]
Failed = tuple[Partition, OSError]
Pulling = asyncio.Future[list[Failed]]


async def pull(engine: Engine, missing: Sequence[Missing]) -> None:
    """Waits until the first of what is `missing` are in the page cache. A failing disk takes its partitions with it."""
    _report_failures(await asyncio.shield(_begin(engine, missing)))


def pull_then(session: Session, missing: Sequence[Missing], again: Callable[[], object]) -> None:
    """As `pull`, then `again`, unless the connection went."""
    pulling = _begin(session.engine, missing)

    def done(_: object) -> None:
        session.cancel = None
        if pulling.cancelled():
            session.channel.close("the broker stops")
            return
        try:
            _report_failures(pulling.result())
            again()
        except Exception as error:  # one tenant's request must not take the others' broker down
            session.channel.fail(error)

    pulling.add_done_callback(done)
    session.cancel = lambda: pulling.remove_done_callback(done)


def _begin(engine: Engine, missing: Sequence[Missing]) -> Pulling:
    _release(missing[PULLED_TOGETHER_MAX:])
    pulled = missing[:PULLED_TOGETHER_MAX]
    pulling = engine.loop.run_in_executor(engine.readers, _pull, pulled)
    # Files stay open for as long as the thread reads them, even when nobody waits for it any more.
    pulling.add_done_callback(lambda _: _release(pulled))
    return pulling


def _pull(missing: Sequence[Missing]) -> list[Failed]:
    failed = []
    for partition, cold in missing:
        try:
            cold.pull()
        except OSError as error:
            failed.append((partition, error))
    return failed


def _release(missing: Sequence[Missing]) -> None:
    for _, cold in missing:
        cold.release()


def _report_failures(failed: list[Failed]) -> None:
    for partition, error in failed:
        partition.disk_failed(error)
