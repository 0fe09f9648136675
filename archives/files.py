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
from archives.placing import UNDATED, Folder, choose_folders, hour_of
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

# Assumed overhead of a record in a file, added to its size when a folder is chosen.
BYTES_PER_RECORD = 64
# Estimated memory of a column of a buffered row, in addition to its value.
BYTES_PER_COLUMN = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """Completed file, with the values of its future `ArchiveFile` row. The file belongs to the archive by that row."""

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
class _HourBuffer:
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
        self._buffers_by_hour: dict[int | None, _HourBuffer] = defaultdict(_HourBuffer)
        self._open_files: dict[Folder, _OpenFile] = {}
        self._written_files: list[WrittenFile] = []
        self._buffered_bytes = 0
        self._buffered_records = 0
        self.skipped = 0

    def skip(self, start: int, stop: int) -> None:
        """Counts offsets `[start, stop)` that cannot be read."""
        self.skipped += stop - start

    def add(self, records: Records) -> int:
        """Adds records and returns their size in bytes. Offsets must ascend."""
        size_bytes = 0
        for hour, hour_records in _split_by_hour(records):
            hour_bytes = hour_records.size_bytes()
            buffer = self._buffers_by_hour[hour]
            buffer.records.extend(hour_records)
            buffer.bytes += hour_bytes
            size_bytes += hour_bytes
            self._buffered_bytes += hour_bytes
            if self._columns.fields:
                buffer.columns += map(self._columns.decode_row, hour_records.values)
                value_bytes = sum(map(len, filter(None, hour_records.values)))
                self._buffered_bytes += value_bytes + BYTES_PER_COLUMN * len(self._columns.fields) * len(hour_records)
        self._buffered_records += len(records)
        if self._buffered_bytes > limits.BUFFERED_BYTES_MAX or self._buffered_records > limits.BUFFERED_RECORDS_MAX:
            self._flush()
        return size_bytes

    def finish(self) -> list[WrittenFile]:
        """Closes all files under their final names and returns them."""
        self._flush()
        for file in self._open_files.values():
            self._complete(file)
        self._open_files.clear()
        result, self._written_files = self._written_files, []
        return result

    def abandon(self) -> None:
        """Deletes all files as far as possible; the next run writes them again."""
        unwanted_paths = [_unfinished_path(self._destination.path(file.path)) for file in self._open_files.values()]
        unwanted_paths += [self._destination.path(file.path) for file in self._written_files]
        for file in self._open_files.values():
            with contextlib.suppress(OSError):
                file.writer.close()
        for full_path in unwanted_paths:
            with contextlib.suppress(OSError):
                self._destination.files.delete_file(full_path)
        self._open_files.clear()
        self._buffers_by_hour.clear()
        self._written_files = []

    def _flush(self) -> None:
        bytes_by_hour = {
            hour: buffer.bytes + BYTES_PER_RECORD * len(buffer.records)
            for hour, buffer in self._buffers_by_hour.items()
        }
        hours_by_folder: dict[Folder, list[int | None]] = defaultdict(list)
        for hour, folder in choose_folders(bytes_by_hour, self._open_files).items():
            hours_by_folder[folder].append(hour)
        for folder, hours in hours_by_folder.items():
            self._write(folder, [(hour, self._buffers_by_hour[hour]) for hour in hours])
        self._buffers_by_hour.clear()
        self._buffered_bytes = self._buffered_records = 0

    def _write(self, folder: Folder, parts: Sequence[tuple[int | None, _HourBuffer]]) -> None:
        """Writes records of one folder in the order of their offsets."""
        size_bytes = sum(buffer.bytes for _, buffer in parts)
        records, columns = parts[0][1].records, parts[0][1].columns
        if len(parts) > 1:
            records, columns = _merge_by_offset([buffer for _, buffer in parts])
        file = self._open_file_for(folder, records.offsets[0], size_bytes)
        arrays = [*arrays_of(records, self._partition)]
        if self._columns.fields:
            structs, unfit = self._columns.build_array(columns)
            arrays.append(structs)
            file.unfit += unfit - records.values.count(None)
        if folder == UNDATED:
            arrays.append(pa.array(records.timestamps_ms, pa.int64()))
        file.writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema_of(self._columns, folder)))
        file.last_offset, file.count, file.bytes = (
            records.offsets[-1],
            file.count + len(records),
            file.bytes + size_bytes,
        )
        file.content_sum += records.content_sum()

    def _open_file_for(self, folder: Folder, offset: int, size_bytes: int) -> _OpenFile:
        """Returns the open file of the folder and marks it as the most recently written."""
        file = self._open_files.pop(folder, None)
        if file is not None and file.bytes and file.bytes + size_bytes > limits.FILE_BYTES_MAX:
            self._complete(file)
            file = None
        if file is None:
            if len(self._open_files) >= limits.OPEN_FILES_MAX:
                self._complete(self._open_files.pop(next(iter(self._open_files))))
            file = self._create_file(folder, offset)
        self._open_files[folder] = file
        return file

    def _create_file(self, folder: Folder, offset: int) -> _OpenFile:
        from pyarrow.parquet import ParquetWriter

        path = file_path(folder, self._partition, offset, self._generation)
        full_path = self._destination.path(path)
        if self._destination.files.type_name == "local":  # a bucket has no folders
            self._destination.files.create_dir(full_path.rpartition("/")[0], recursive=True)
        schema = schema_of(self._columns, folder)
        writer = ParquetWriter(
            _unfinished_path(full_path), schema, compression="zstd", filesystem=self._destination.files,
            use_dictionary=[*REPEATING, *(f"{RECORD}.{field.name}" for field in self._columns.fields)],
            write_statistics=[name for name in schema.names if name not in ("value", "headers", RECORD)],
        )  # fmt: skip
        return _OpenFile(path, offset, writer)

    def _complete(self, file: _OpenFile) -> None:
        full_path = self._destination.path(file.path)
        file.writer.add_key_value_metadata({
            "penstock.topic": self._topic, "penstock.partition": str(self._partition),
            "penstock.first_offset": str(file.first_offset), "penstock.last_offset": str(file.last_offset),
        })  # fmt: skip
        file.writer.close()
        size_bytes = self._destination.files.get_file_info(_unfinished_path(full_path)).size
        self._destination.files.move(_unfinished_path(full_path), full_path)
        self._written_files.append(
            WrittenFile(
                path=file.path, partition=self._partition, first_offset=file.first_offset,
                last_offset=file.last_offset, rows=file.count, bytes=size_bytes or 0,
                content_sum=file.content_sum % SUM_MODULUS, unfit=file.unfit,
            )
        )  # fmt: skip


def _split_by_hour(records: Records) -> list[tuple[int | None, Records]]:
    """Splits records by the hour of their timestamps. Undated records have the hour None."""
    first_hour = hour_of(min(records.timestamps_ms))
    if first_hour is not None and first_hour == hour_of(max(records.timestamps_ms)):
        return [(first_hour, records)]
    rows: dict[int | None, list[int]] = defaultdict(list)
    for row, timestamp_ms in enumerate(records.timestamps_ms):
        rows[hour_of(timestamp_ms)].append(row)
    return [(hour, records.select(row_numbers)) for hour, row_numbers in rows.items()]


def _merge_by_offset(parts: Sequence[_HourBuffer]) -> tuple[Records, list[Row | None]]:
    """Returns the records of several hours, and their columns, in the order of their offsets."""
    records = Records()
    for buffer in parts:
        records.extend(buffer.records)
    order = sorted(range(len(records)), key=records.offsets.__getitem__)
    columns = [row for buffer in parts for row in buffer.columns]
    return records.select(order), [columns[row] for row in order] if columns else []


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


def _unfinished_path(full_path: str) -> str:
    folder, _, name = full_path.rpartition("/")
    return f"{folder}/.{name}.new"
