"""Files of an archive: records of one partition by the hour of their timestamps, as Parquet.

The name of a file consists of folder, partition and first offset, so that a retry writes it under the same name.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from archives import limits
from archives.columns import NO_COLUMNS, Columns, Row
from archives.placing import UNDATED, Folder, hour_of, placed
from billing.lake.address import LakePlace

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetWriter

# Sums of hashes are taken modulo this, so that they fit into a bigint.
SUM_MODULUS = 2**63

# Name of the struct with the columns of the value, if there are any, after the other columns.
RECORD = "record"
SCHEMA = pa.schema([
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("ms", tz="UTC")),
])  # fmt: skip

# Column in undated files: milliseconds since 1970, with the original value.
TIMESTAMP_MS = "timestamp_ms"
VALUE, OFFSET, TIMESTAMP = (SCHEMA.get_field_index(name) for name in ("value", "offset", "timestamp"))

# Overhead per record, for comparing sizes.
BYTES_PER_RECORD = 64
# Memory per column of a row, beside its value.
BYTES_PER_COLUMN = 64

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Completed file, as input of the row that makes it part of the archive."""

    path: str
    partition: int
    first_offset: int
    last_offset: int
    rows: int
    bytes: int
    content_sum: int
    unfit: int = 0


def schema_of(columns: Columns, folder: Folder) -> pa.Schema:
    """Returns the schema of the files. Undated files also contain the original timestamps."""
    schema = SCHEMA.append(pa.field(RECORD, pa.struct(columns.fields))) if columns.fields else SCHEMA
    return schema.append(pa.field(TIMESTAMP_MS, pa.int64())) if folder == UNDATED else schema


def file_path(folder: Folder, partition: int, first_offset: int, generation: int = 0) -> str:
    """Returns the path of a file. Files of a recreated topic have a generation, because its offsets restart."""
    suffix = f"-{generation}" if generation else ""
    return f"{folder.path}/{partition:05}-{first_offset:020}{suffix}.parquet"


class FileName(NamedTuple):
    """Parsed name of a file."""

    partition: int
    first_offset: int
    generation: int


def parsed(path: str) -> FileName | None:
    """Parses the name of a file, finished or not; None for a name that archives do not use."""
    name = path.rpartition("/")[2].removeprefix(".").removesuffix(".new").removesuffix(".parquet")
    numbers = name.split("-")
    if not 2 <= len(numbers) <= 3 or not all(number.isdecimal() for number in numbers):
        return None
    return FileName(int(numbers[0]), int(numbers[1]), int(numbers[2]) if len(numbers) > 2 else 0)


def row_sum(offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Returns a hash of one record, to be summed."""
    parts = [b"%d %d" % (offset, timestamp_ms), *_measured(key), *_measured(value)]
    for name, each in headers:
        parts += (*_measured(name.encode()), *_measured(each))
    return int.from_bytes(hashlib.blake2b(b"".join(parts), digest_size=8).digest(), "big") % SUM_MODULUS


def _measured(part: bytes | None) -> tuple[bytes, bytes]:
    return (b"-", b"") if part is None else (b"%d:" % len(part), part)


@dataclass(slots=True)
class _Pending:
    """Buffered records of one hour."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    records: list[Row | None] = field(default_factory=list)
    bytes: int = 0
    content_sum: int = 0


@dataclass(slots=True)
class _OpenFile:
    """File that is being written, under a name that readers of data sets ignore."""

    path: str
    first_offset: int
    writer: ParquetWriter
    unfit: int = 0
    last_offset: int = -1
    count: int = 0
    bytes: int = 0
    content_sum: int = 0


class FileSet:
    """Files of one task. Call `add` for each record and then `finish`, or `abandon`.

    Records are buffered by hour up to a limit, then folders are chosen. Beyond the maximum number of open files, the
    least recently written one is closed.
    """

    def __init__(
        self, place: LakePlace, topic: str, partition: int, columns: Columns = NO_COLUMNS, generation: int = 0
    ) -> None:
        self._place = place
        self._columns = columns
        self._topic = topic
        self._partition = partition
        self._generation = generation
        self._pending: dict[int | None, _Pending] = defaultdict(_Pending)
        self._open: dict[Folder, _OpenFile] = {}
        self._written: list[Written] = []
        self._buffered_bytes = 0
        self._buffered_records = 0
        self.skipped = 0

    def skip(self, start: int, stop: int) -> None:
        """Counts offsets `[start, stop)` that cannot be read."""
        self.skipped += stop - start

    def add(self, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers) -> int:
        """Adds a record and returns its size in bytes. Offsets must ascend."""
        size = len(key or b"") + len(value or b"") + sum(len(name) + len(each or b"") for name, each in headers)
        content_sum = row_sum(offset, timestamp_ms, key, value, headers)
        pending = self._pending[hour_of(timestamp_ms)]
        pending.rows.append((
            key, value, [{"key": name, "value": each} for name, each in headers], self._partition, offset, timestamp_ms,
        ))  # fmt: skip
        held = size
        if self._columns.fields:
            pending.records.append(self._columns.row(value))
            held += len(value or b"") + BYTES_PER_COLUMN * len(self._columns.fields)
        pending.bytes, pending.content_sum = pending.bytes + size, pending.content_sum + content_sum
        self._buffered_bytes, self._buffered_records = self._buffered_bytes + held, self._buffered_records + 1
        if self._buffered_bytes > limits.BUFFERED_BYTES_MAX or self._buffered_records > limits.BUFFERED_RECORDS_MAX:
            self._flush()
        return size

    def finish(self) -> list[Written]:
        """Closes all files under their final names and returns them."""
        self._flush()
        for file in self._open.values():
            self._close(file)
        self._open.clear()
        result, self._written = self._written, []
        return result

    def abandon(self) -> None:
        """Deletes all files as far as possible; the next run writes them again."""
        unwanted = [_unfinished(self._place.path(file.path)) for file in self._open.values()]
        unwanted += [self._place.path(file.path) for file in self._written]
        for file in self._open.values():
            with contextlib.suppress(OSError):
                file.writer.close()
        for full in unwanted:
            with contextlib.suppress(OSError):
                self._place.files.delete_file(full)
        self._open.clear()
        self._pending.clear()
        self._written = []

    def _flush(self) -> None:
        sizes = {hour: pending.bytes + BYTES_PER_RECORD * len(pending.rows) for hour, pending in self._pending.items()}
        of_folder: dict[Folder, list[int | None]] = defaultdict(list)
        for hour, folder in placed(sizes, self._open).items():
            of_folder[folder].append(hour)
        for folder, hours in of_folder.items():
            self._write(folder, [(hour, self._pending[hour]) for hour in hours])
        self._pending.clear()
        self._buffered_bytes = self._buffered_records = 0

    def _write(self, folder: Folder, parts: Sequence[tuple[int | None, _Pending]]) -> None:
        """Writes records of one folder in the order of their offsets."""
        size = sum(pending.bytes for _, pending in parts)
        undated = {row[OFFSET] for hour, pending in parts if hour is None for row in pending.rows}
        rows = [row for _, pending in parts for row in pending.rows]
        records = [record for _, pending in parts for record in pending.records]
        if len(parts) > 1:
            order = sorted(range(len(rows)), key=lambda number: rows[number][OFFSET])
            rows = [rows[number] for number in order]
            records = [records[number] for number in order] if records else []
        file = self._file(folder, rows[0][OFFSET], size)
        columns: list[pa.Array] = [
            pa.array(column, type=field.type)
            for column, field in zip(zip(*(_dated(row, undated) for row in rows), strict=True), SCHEMA, strict=True)
        ]
        if self._columns.fields:
            structs, unfit = self._columns.array(records)
            columns.append(structs)
            without_value = sum(row[VALUE] is None for row in rows)
            file.unfit += unfit - without_value
        if folder == UNDATED:
            columns.append(pa.array([row[TIMESTAMP] for row in rows], pa.int64()))
        file.writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema_of(self._columns, folder)))
        file.last_offset, file.count, file.bytes = rows[-1][OFFSET], file.count + len(rows), file.bytes + size
        file.content_sum += sum(pending.content_sum for _, pending in parts)

    def _file(self, folder: Folder, offset: int, size: int) -> _OpenFile:
        """Returns the open file of the folder and marks it as the most recently written."""
        file = self._open.pop(folder, None)
        if file is not None and file.bytes and file.bytes + size > limits.FILE_BYTES_MAX:
            self._close(file)
            file = None
        if file is None:
            if len(self._open) >= limits.OPEN_FILES_MAX:
                self._close(self._open.pop(next(iter(self._open))))
            file = self._begin(folder, offset)
        self._open[folder] = file
        return file

    def _begin(self, folder: Folder, offset: int) -> _OpenFile:
        from pyarrow.parquet import ParquetWriter

        path = file_path(folder, self._partition, offset, self._generation)
        full = self._place.path(path)
        if self._place.files.type_name == "local":  # a bucket has no folders
            self._place.files.create_dir(full.rpartition("/")[0], recursive=True)
        schema = schema_of(self._columns, folder)
        return _OpenFile(path, offset, ParquetWriter(_unfinished(full), schema, compression="zstd",
                                                     filesystem=self._place.files))  # fmt: skip

    def _close(self, file: _OpenFile) -> None:
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


def _dated(row: tuple[Any, ...], undated: Collection[int]) -> tuple[Any, ...]:
    """Returns the row, without its timestamp if it is undated, because not every reader can represent it."""
    return (*row[:TIMESTAMP], None) if row[OFFSET] in undated else row


def _unfinished(full: str) -> str:
    folder, _, name = full.rpartition("/")
    return f"{folder}/.{name}.new"
