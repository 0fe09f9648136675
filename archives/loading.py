"""Task of a Spark worker: loads a range of one partition into a tenant's table, batch by batch.

Each batch is loaded together with the offset after it in one transaction of the tenant's database, so that a process
killed at any point neither loses nor repeats a record. No Django setting is read here, because Spark workers do not
have them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from archives import database, limits, reading
from archives.database import DatabaseFailed, RowBatch
from archives.database_address import Database
from archives.database_rows import packed_row
from archives.plan import Range, TaskPace
from archives.reading import Source, Stopped
from archives.records import Records

# Points of a batch at which a fault test may stop the process, in order.
POINTS = ("read", "begun", "copied", "stored", "committed")
RECREATED_MEANWHILE = "The topic was made anew while it was read. It is tried again."


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """Result of loading a range: all offsets of `[start, reached)` are committed, even with an `error`."""

    range: Range
    reached: int
    records: int = 0
    skipped: int = 0
    missed: int = 0
    bytes_read: int = 0
    error: str = ""


class TableLoader:
    """Sink that loads the records of one range into a table in batches. Call `finish` after the last record."""

    def __init__(
        self, target: Database, source: Source, topic_id: str, range_: Range, at_point: Callable[[str], None]
    ) -> None:
        self._target = target
        self._source = source
        self._topic_id = topic_id
        self._packed_id = topic_id.encode()
        self._partition = range_.partition
        self._at_point = at_point
        self._next_offset = range_.start
        self._missed = range_.missed
        self._committed_offset = range_.start - range_.missed
        self._rows = bytearray()
        self._count = 0
        self._skipped = 0
        # Counts of committed records and offsets.
        self.records = 0
        self.skipped = 0
        self.missed = 0

    @property
    def committed_offset(self) -> int:
        """Next offset in the database."""
        return self._committed_offset

    def add(self, records: Records) -> int:
        """Adds records and returns their size in bytes. Raises `DatabaseFailed`, `Stopped`."""
        rows = zip(
            records.offsets, records.timestamps_ms, records.keys, records.values, records.headers, strict=True
        )  # fmt: skip
        for offset, timestamp_ms, key, value, headers in rows:
            if len(self._rows) >= limits.BATCH_BYTES_MAX or self._count >= limits.BATCH_RECORDS_MAX:
                self._load()
            self._rows += packed_row(self._packed_id, self._partition, offset, timestamp_ms, key, value, headers)
            self._count += 1
            self._next_offset = offset + 1
        return records.size_bytes()

    def skip(self, start: int, stop: int) -> None:
        """Counts offsets `[start, stop)` that cannot be read."""
        self._skipped += stop - start
        self._next_offset = stop

    def finish(self, reached: int) -> None:
        """Loads the remaining records and stores `reached` as the next offset. Raises `DatabaseFailed`, `Stopped`."""
        self._next_offset = reached
        if self._next_offset > self._committed_offset:
            self._load()

    def _load(self) -> None:
        # Records of a recreated topic must not be stored under the id of the deleted one.
        if reading.topic_id_of(self._source) != self._topic_id:
            raise Stopped(RECREATED_MEANWHILE)
        self._at_point("read")
        batch = RowBatch(
            topic_id=self._topic_id, partition=self._partition, start=self._committed_offset,
            next_offset=self._next_offset, rows=self._rows, count=self._count, skipped=self._skipped,
            missed=self._missed,
        )  # fmt: skip
        database.load_batch(self._target, batch, self._at_point)
        self.records, self.skipped = self.records + self._count, self.skipped + self._skipped
        self.missed += self._missed
        self._committed_offset = self._next_offset
        self._rows, self._count, self._skipped, self._missed = bytearray(), 0, 0, 0


def _ignore_point(_point: str) -> None:
    """Default of `at_point`, which does nothing."""


def load_range(
    source: Source,
    target: Database,
    topic_id: str,
    pace: TaskPace,
    range_: Range,
    at_point: Callable[[str], None] = _ignore_point,
) -> LoadResult:
    """Loads a range. Never raises: an error of one partition must not delay the others (BAT-5)."""
    loader = TableLoader(target, source, topic_id, range_, at_point)
    if time.time() >= pace.deadline_s:
        return LoadResult(range=range_, reached=loader.committed_offset)
    error, bytes_read = "", 0
    try:
        reached, bytes_read = reading.copy_records(source, pace, range_, loader)
        loader.finish(reached)
    except (Stopped, DatabaseFailed) as stop:
        error = str(stop)
    except Exception as failure:
        error = f"Partition not archived: {type(failure).__name__}"
    return LoadResult(
        range=range_, reached=loader.committed_offset, records=loader.records, skipped=loader.skipped,
        missed=loader.missed, bytes_read=bytes_read, error=error,
    )  # fmt: skip
