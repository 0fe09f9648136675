"""Files of an archive: records of one partition by the hour of their timestamps, as Parquet.

A file is named by its hour, its partition and its first offset, so a second try writes it again under the same name.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from billing.archives import limits
from billing.archives.columns import NO_COLUMNS, Columns, Row
from billing.lake.address import LakePlace

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetWriter

MS_PER_HOUR = 3_600_000
# The first hour of the year 10000, which no folder can be named after.
HOURS_END = int(datetime(9999, 12, 31, 23, tzinfo=UTC).timestamp()) // 3_600 + 1
# A sum of hashes fits into a bigint.
SUM_MODULUS = 2**63

# Behind these come the columns of the value, if there are any, as one struct.
RECORD = "record"
SCHEMA = pa.schema([
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("ms", tz="UTC")),
])  # fmt: skip

# What a row of columns takes in memory, beside the value it was made of.
BYTES_PER_COLUMN = 64

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A file that is there, for the row that makes it count."""

    path: str
    partition: int
    first_offset: int
    last_offset: int
    rows: int
    bytes: int
    content_sum: int
    unfit: int = 0


def schema_of(columns: Columns) -> pa.Schema:
    """What the files of an archive have."""
    return SCHEMA.append(pa.field(RECORD, pa.struct(columns.fields))) if columns.fields else SCHEMA


def hour_of(timestamp_ms: int) -> int | None:
    """The number of its hour since 1970; None: there is no such folder (no timestamp, or one beyond the year 9999)."""
    hour = timestamp_ms // MS_PER_HOUR
    return hour if 0 <= hour < HOURS_END else None


def file_path(hour: int, partition: int, first_offset: int) -> str:
    when = datetime.fromtimestamp(hour * 3_600, UTC)
    return f"date={when:%Y-%m-%d}/hour={when:%H}/{partition:05}-{first_offset:020}.parquet"


def offsets_of(path: str) -> tuple[int, int] | None:
    """(partition, first offset) of a file, also of one that was not finished; None: it is none of ours."""
    name = path.rpartition("/")[2].removeprefix(".").removesuffix(".new").removesuffix(".parquet")
    partition, _, offset = name.partition("-")
    return (int(partition), int(offset)) if partition.isdecimal() and offset.isdecimal() else None


def row_sum(offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """A hash of one record, to be summed."""
    parts = [b"%d %d" % (offset, timestamp_ms), *_measured(key), *_measured(value)]
    for name, each in headers:
        parts += (*_measured(name.encode()), *_measured(each))
    return int.from_bytes(hashlib.blake2b(b"".join(parts), digest_size=8).digest(), "big") % SUM_MODULUS


def _measured(part: bytes | None) -> tuple[bytes, bytes]:
    return (b"-", b"") if part is None else (b"%d:" % len(part), part)


@dataclass(slots=True)
class _OpenFile:
    """One file that is being written, under a name that readers of data sets pass over."""

    path: str
    first_offset: int
    writer: ParquetWriter
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    records: list[Row | None] = field(default_factory=list)
    unfit: int = 0
    last_offset: int = -1
    count: int = 0
    bytes: int = 0
    content_sum: int = 0


class FileSet:
    """The files of one task. `add` and then `finish`; or `abandon`."""

    def __init__(self, place: LakePlace, topic: str, partition: int, columns: Columns = NO_COLUMNS) -> None:
        self._place = place
        self._columns = columns
        self._schema = schema_of(columns)
        self._topic = topic
        self._partition = partition
        self._open: dict[int, _OpenFile] = {}
        self._written: list[Written] = []
        self._buffered_bytes = 0
        self._buffered_records = 0

    def has_room_for(self, hour: int) -> bool:
        return hour in self._open or len(self._open) < limits.HOURS_PER_TASK_MAX

    def add(
        self, hour: int, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> int:
        """Takes a record; the bytes it has."""
        size = len(key or b"") + len(value or b"") + sum(len(name) + len(each or b"") for name, each in headers)
        file = self._open.get(hour)
        if file is not None and file.bytes and file.bytes + size > limits.FILE_BYTES_MAX:
            self._close(self._open.pop(hour))
            file = None
        if file is None:
            file = self._open[hour] = self._begin(hour, offset)
        file.rows.append((
            key, value, [{"key": name, "value": each} for name, each in headers], self._partition, offset, timestamp_ms,
        ))  # fmt: skip
        held = size
        if self._columns.fields:
            row = self._columns.row(value)
            file.records.append(row)
            file.unfit += row is None and value is not None
            held += len(value or b"") + BYTES_PER_COLUMN * len(self._columns.fields)
        file.last_offset, file.count, file.bytes = offset, file.count + 1, file.bytes + size
        file.content_sum += row_sum(offset, timestamp_ms, key, value, headers)
        self._buffered_bytes, self._buffered_records = self._buffered_bytes + held, self._buffered_records + 1
        if self._buffered_bytes > limits.BUFFERED_BYTES_MAX or self._buffered_records > limits.BUFFERED_RECORDS_MAX:
            self._flush_all()
        return size

    def finish(self) -> list[Written]:
        """All of them under their names."""
        for file in self._open.values():
            self._close(file)
        self._open.clear()
        result, self._written = self._written, []
        return result

    def abandon(self) -> None:
        """Nothing of it is left, as far as the place lets us; the next run writes the files again."""
        unwanted = [_unfinished(self._place.path(file.path)) for file in self._open.values()]
        unwanted += [self._place.path(each.path) for each in self._written]
        for file in self._open.values():
            with contextlib.suppress(OSError):
                file.writer.close()
        for full in unwanted:
            with contextlib.suppress(OSError):
                self._place.files.delete_file(full)
        self._open.clear()
        self._written = []

    def _begin(self, hour: int, offset: int) -> _OpenFile:
        from pyarrow.parquet import ParquetWriter

        path = file_path(hour, self._partition, offset)
        full = self._place.path(path)
        if self._place.files.type_name == "local":  # a bucket has no folders
            self._place.files.create_dir(full.rpartition("/")[0], recursive=True)
        return _OpenFile(path, offset, ParquetWriter(_unfinished(full), self._schema, compression="zstd",
                                                     filesystem=self._place.files))  # fmt: skip

    def _flush_all(self) -> None:
        for file in self._open.values():
            self._flush(file)
        self._buffered_bytes = self._buffered_records = 0

    def _flush(self, file: _OpenFile) -> None:
        if not file.rows:
            return
        columns: list[pa.Array] = [
            pa.array(column, type=each.type) for column, each in zip(zip(*file.rows, strict=True), SCHEMA, strict=True)
        ]
        if self._columns.fields:
            columns.append(self._columns.array(file.records))
        file.writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        file.rows.clear()
        file.records.clear()

    def _close(self, file: _OpenFile) -> None:
        self._flush(file)
        full = self._place.path(file.path)
        file.writer.add_key_value_metadata({
            "penstock.topic": self._topic, "penstock.partition": str(self._partition),
            "penstock.first_offset": str(file.first_offset), "penstock.last_offset": str(file.last_offset),
        })  # fmt: skip
        file.writer.close()
        size = self._place.files.get_file_info(_unfinished(full)).size
        self._place.files.move(_unfinished(full), full)
        self._written.append(
            Written(
                path=file.path, partition=self._partition, first_offset=file.first_offset,
                last_offset=file.last_offset, rows=file.count, bytes=size or 0,
                content_sum=file.content_sum % SUM_MODULUS, unfit=file.unfit,
            )
        )  # fmt: skip


def _unfinished(full: str) -> str:
    folder, _, name = full.rpartition("/")
    return f"{folder}/.{name}.new"
