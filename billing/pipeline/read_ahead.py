"""Reading of the next ranges of a backlog while those before them are committed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

import structlog

from billing.pipeline.consuming import UsageConsumer

if TYPE_CHECKING:
    import pyarrow as pa

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRange:
    """Records `[start, stop)` of one partition, to be read up to `bytes_max`."""

    partition: int
    start: int
    stop: int
    bytes_max: int


class ReadAhead:
    """Reader of ranges that can read the next ones ahead, in a thread. The consumer is used by one thread at a time.

    Records that are read ahead are only decoded: whether they count depends on the ranges before them.
    """

    def __init__(self, consumer: UsageConsumer) -> None:
        self._consumer = consumer
        self._thread: ThreadPoolExecutor | None = None
        self._reading: Future[dict[tuple[int, int], list[pa.RecordBatch]]] | None = None
        self._read: dict[tuple[int, int], list[pa.RecordBatch]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.is_ending = True
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def begin(self, ranges: Sequence[ReadRange]) -> None:
        """Begins to read the ranges; the consumer must not be used until `finish`."""
        if ranges:
            self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix="usage-ahead")
            self._reading = self._thread.submit(self._read_all, ranges)

    def finish(self) -> None:
        """Waits until the ranges are read. Ranges that could not be read are read again by the run that needs them."""
        reading, self._reading = self._reading, None
        self._read = {}
        if reading is None:
            return
        try:
            self._read = reading.result()
        except Exception as failure:  # the run that needs these records reports the error
            log.info("usage.not_read_ahead", reason=type(failure).__name__)

    def read(self, range_: ReadRange) -> Iterable[pa.RecordBatch]:
        """Returns the records of a range like `UsageConsumer.read`; if they were read ahead, without reading again."""
        ready = self._read.pop((range_.partition, range_.start), None)
        if ready:
            return ready
        return self._consumer.read(range_.partition, range_.start, range_.stop, range_.bytes_max)

    def _read_all(self, ranges: Sequence[ReadRange]) -> dict[tuple[int, int], list[pa.RecordBatch]]:
        return {
            (range_.partition, range_.start): list(
                self._consumer.read(range_.partition, range_.start, range_.stop, range_.bytes_max)
            )
            for range_ in ranges
        }
