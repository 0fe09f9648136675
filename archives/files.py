"""Files of an archive: records of one partition by the hour of their timestamps, as Parquet.

The name of a file consists of folder, partition and first offset, so that a retry writes it under the same name.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from archives import limits
from archives.columns import NO_COLUMNS, Columns, Row
from archives.placing import UNDATED, Folder, hour_of, placed
from archives.records import SUM_MODULUS, Headers, Records
from billing.lake.address import Lake

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetWriter

# Name of the struct with the columns of the value, if there are any, after the other columns.
RECORD = "record"
_HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])
SCHEMA = pa.schema([
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("headers", pa.list_(_HEADER_TYPE)),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("ms", tz="UTC")),
])  # fmt: skip

# Column in undated files: milliseconds since 1970, with the original value.
TIMESTAMP_MS = "timestamp_ms"
# Columns with repeated values, which are stored as dictionaries. For other columns this costs more than it saves.
REPEATING = ["key", "headers.list.element.key", "partition"]

# Overhead of a record that is assumed where sizes of hours are compared.
BYTES_PER_RECORD = 64
# Estimated memory of a column of a buffered row, in addition to its value.
BYTES_PER_COLUMN = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Completed file with the values of the `ArchiveFile` row that makes it part of the archive."""

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


def parse_name(path: str) -> FileName | None:
    """Parses the name of a file, finished or not; None for a name that archives do not use."""
    name = path.rpartition("/")[2].removeprefix(".").removesuffix(".new").removesuffix(".parquet")
    numbers = name.split("-")
    if not 2 <= len(numbers) <= 3 or not all(number.isdecimal() for number in numbers):
        return None
    return FileName(int(numbers[0]), int(numbers[1]), int(numbers[2]) if len(numbers) > 2 else 0)


@dataclass(slots=True)
class _Pending:
    """Buffered records of one hour, with the columns of their values if the archive has columns."""

    records: Records = field(default_factory=Records)
    columns: list[Row | None] = field(default_factory=list)
    bytes: int = 0


@dataclass(slots=True)
class _OpenFile:
    """File that is being written, under a hidden name that readers of data sets ignore."""

    path: str
    first_offset: int
    writer: ParquetWriter
    unfit: int = 0
    last_offset: int = -1
    count: int = 0
    bytes: int = 0
    content_sum: int = 0


class FileSet:
    """Files that one task writes. The caller adds records in batches by `add`, and ends with `finish` or `abandon`.

    Records are buffered by hour up to a limit; then a folder is chosen for each hour and its file is written. Beyond
    the maximum number of open files, the least recently written one is closed.
    """

    def __init__(
        self, destination: Lake, topic: str, partition: int, columns: Columns = NO_COLUMNS, generation: int = 0
    ) -> None:
        self._destination = destination
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

    def add(self, records: Records) -> int:
        """Adds records and returns their size in bytes. Offsets must ascend."""
        size = 0
        for hour, part in _by_hour(records):
            part_bytes = part.size_bytes()
            pending = self._pending[hour]
            pending.records.extend(part)
            pending.bytes += part_bytes
            size += part_bytes
            self._buffered_bytes += part_bytes
            if self._columns.fields:
                pending.columns += map(self._columns.row, part.values)
                value_bytes = sum(map(len, filter(None, part.values)))
                self._buffered_bytes += value_bytes + BYTES_PER_COLUMN * len(self._columns.fields) * len(part)
        self._buffered_records += len(records)
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
        unwanted = [_unfinished(self._destination.path(file.path)) for file in self._open.values()]
        unwanted += [self._destination.path(file.path) for file in self._written]
        for file in self._open.values():
            with contextlib.suppress(OSError):
                file.writer.close()
        for full_path in unwanted:
            with contextlib.suppress(OSError):
                self._destination.files.delete_file(full_path)
        self._open.clear()
        self._pending.clear()
        self._written = []

    def _flush(self) -> None:
        sizes = {
            hour: pending.bytes + BYTES_PER_RECORD * len(pending.records) for hour, pending in self._pending.items()
        }
        hours_of: dict[Folder, list[int | None]] = defaultdict(list)
        for hour, folder in placed(sizes, self._open).items():
            hours_of[folder].append(hour)
        for folder, hours in hours_of.items():
            self._write(folder, [(hour, self._pending[hour]) for hour in hours])
        self._pending.clear()
        self._buffered_bytes = self._buffered_records = 0

    def _write(self, folder: Folder, parts: Sequence[tuple[int | None, _Pending]]) -> None:
        """Writes records of one folder in the order of their offsets."""
        size = sum(pending.bytes for _, pending in parts)
        records, columns = parts[0][1].records, parts[0][1].columns
        if len(parts) > 1:
            records, columns = _in_order([pending for _, pending in parts])
        file = self._file(folder, records.offsets[0], size)
        arrays = [*arrays_of(records, self._partition)]
        if self._columns.fields:
            structs, unfit = self._columns.array(columns)
            arrays.append(structs)
            file.unfit += unfit - records.values.count(None)
        if folder == UNDATED:
            arrays.append(pa.array(records.timestamps_ms, pa.int64()))
        file.writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema_of(self._columns, folder)))
        file.last_offset, file.count, file.bytes = records.offsets[-1], file.count + len(records), file.bytes + size
        file.content_sum += records.content_sum()

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
        full_path = self._destination.path(path)
        if self._destination.files.type_name == "local":  # a bucket has no folders
            self._destination.files.create_dir(full_path.rpartition("/")[0], recursive=True)
        schema = schema_of(self._columns, folder)
        writer = ParquetWriter(
            _unfinished(full_path), schema, compression="zstd", filesystem=self._destination.files,
            use_dictionary=[*REPEATING, *(f"{RECORD}.{field.name}" for field in self._columns.fields)],
            write_statistics=[name for name in schema.names if name not in ("value", "headers", RECORD)],
        )  # fmt: skip
        return _OpenFile(path, offset, writer)

    def _close(self, file: _OpenFile) -> None:
        full_path = self._destination.path(file.path)
        file.writer.add_key_value_metadata({
            "penstock.topic": self._topic, "penstock.partition": str(self._partition),
            "penstock.first_offset": str(file.first_offset), "penstock.last_offset": str(file.last_offset),
        })  # fmt: skip
        file.writer.close()
        size = self._destination.files.get_file_info(_unfinished(full_path)).size
        self._destination.files.move(_unfinished(full_path), full_path)
        self._written.append(
            Written(
                path=file.path, partition=self._partition, first_offset=file.first_offset,
                last_offset=file.last_offset, rows=file.count, bytes=size or 0,
                content_sum=file.content_sum % SUM_MODULUS, unfit=file.unfit,
            )
        )  # fmt: skip


def _by_hour(records: Records) -> list[tuple[int | None, Records]]:
    """Returns the records of each hour (None: undated). Usually all of them are of one hour."""
    first = hour_of(min(records.timestamps_ms))
    if first is not None and first == hour_of(max(records.timestamps_ms)):
        return [(first, records)]
    rows: dict[int | None, list[int]] = defaultdict(list)
    for row, timestamp_ms in enumerate(records.timestamps_ms):
        rows[hour_of(timestamp_ms)].append(row)
    return [(hour, records.at(row_numbers)) for hour, row_numbers in rows.items()]


def _in_order(parts: Sequence[_Pending]) -> tuple[Records, list[Row | None]]:
    """Returns the records of several hours, and their columns, in the order of their offsets."""
    records = Records()
    for pending in parts:
        records.extend(pending.records)
    order = sorted(range(len(records)), key=records.offsets.__getitem__)
    columns = [row for pending in parts for row in pending.columns]
    return records.at(order), [columns[row] for row in order] if columns else []


def arrays_of(records: Records, partition: int) -> list[pa.Array]:
    """Returns the columns of `SCHEMA`. Undated records have no timestamp, because not every reader can represent it."""
    timestamps_ms = pa.array(records.timestamps_ms, pa.int64())
    if hour_of(min(records.timestamps_ms)) is None or hour_of(max(records.timestamps_ms)) is None:
        undated = [hour_of(timestamp_ms) is None for timestamp_ms in records.timestamps_ms]
        timestamps_ms = pc.if_else(pa.array(undated), None, timestamps_ms)
    return [
        pa.array(records.keys, pa.binary()),
        pa.array(records.values, pa.binary()),
        _headers_array(records.headers),
        pa.repeat(pa.scalar(partition, pa.int32()), len(records)),
        pa.array(records.offsets, pa.int64()),
        timestamps_ms.cast(SCHEMA.field("timestamp").type),
    ]


def _headers_array(headers: Sequence[Headers]) -> pa.Array:
    """Returns a list of structs for each record, made of one column of all names and one of all values."""
    ends = pa.array([0, *accumulate(map(len, headers))], pa.int32())
    flat = list(chain.from_iterable(headers))
    structs = pa.StructArray.from_arrays(
        [pa.array([name for name, _ in flat], pa.string()), pa.array([value for _, value in flat], pa.binary())],
        fields=list(_HEADER_TYPE),
    )
    return pa.ListArray.from_arrays(ends, structs, type=SCHEMA.field("headers").type)


def _unfinished(full_path: str) -> str:
    folder, _, name = full_path.rpartition("/")
    return f"{folder}/.{name}.new"
