"""Reading the files of a partition as they lie there: nothing is opened for writing, nothing is believed."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import BinaryIO, Final, NamedTuple

from brokers.engine.records import batch as layout
from brokers.engine.records.batch import BatchHeader
from brokers.engine.storage.indexes import OFFSET_ENTRY, TIME_ENTRY

SEGMENT_FILE: Final = re.compile(r"^(?P<base>\d{20})(?P<suffix>\.[a-z]+)$")
TRANSACTION_ENTRY: Final = Struct(">hqqqq")
READ_AHEAD_BYTES: Final = 1 << 20
# Larger than any batch a broker accepts: a length beyond it is damage, and must not become a buffer of that size.
BATCH_BYTES_MAX: Final = 1 << 30


class Batch(NamedTuple):
    """One batch of a segment. `data` is the whole of it."""

    position: int
    header: BatchHeader
    data: bytes
    intact: bool


class Unreadable(NamedTuple):
    """From `position` on the file holds no batch: why, and how many bytes are left."""

    position: int
    reason: str
    size_bytes: int


def segment_files(directory: Path) -> tuple[dict[str, list[int]], list[str]]:
    """Base offsets by suffix (`.log`, `.index`, …), ascending; and the names of all other files."""
    bases: dict[str, list[int]] = {}
    others = []
    for entry in sorted(directory.iterdir()):
        match = SEGMENT_FILE.match(entry.name)
        if match:
            bases.setdefault(match["suffix"], []).append(int(match["base"]))
        else:
            others.append(entry.name)
    return bases, others


def segment_path(directory: Path, base_offset: int, suffix: str) -> Path:
    return directory / f"{base_offset:020d}{suffix}"


def batches(path: Path) -> Iterator[Batch | Unreadable]:
    """Every batch of a segment file in its order; at most one `Unreadable`, the last thing yielded."""
    size = path.stat().st_size
    with path.open("rb", buffering=READ_AHEAD_BYTES) as file:
        position = 0
        while position < size:
            result = _next(file, position, size - position)
            yield result
            if isinstance(result, Unreadable):
                return
            position += result.header.size_bytes


def _next(file: BinaryIO, position: int, left: int) -> Batch | Unreadable:
    head = file.read(layout.HEADER_BYTES)
    try:
        header = layout.read_header(head)
    except struct.error:
        return Unreadable(position, f"{len(head)} bytes are less than a batch header", left)
    if header.magic != layout.MAGIC:
        reason = f"message format {header.magic}" if header.magic in (0, 1) else f"magic {header.magic}"
        return Unreadable(position, f"no batch of format 2 but {reason}", left)
    if not layout.HEADER_BYTES <= header.size_bytes <= BATCH_BYTES_MAX:
        return Unreadable(position, f"a batch cannot be {header.size_bytes} bytes long", left)
    if header.size_bytes > left:
        return Unreadable(position, f"a batch of {header.size_bytes} bytes is cut off", left)
    data = head + file.read(header.size_bytes - layout.HEADER_BYTES)
    return Batch(position, header, data, len(data) == header.size_bytes and layout.checksum(data) == header.crc)


class Entries(NamedTuple):
    """An index file: its entries, the bytes of preallocated zeros behind them, and bytes that are no whole entry."""

    entries: list[tuple[int, ...]]
    zero_bytes: int
    odd_bytes: int


def index_entries(path: Path, entry: Struct) -> Entries:
    """The entries of an index file (`OFFSET_ENTRY`, `TIME_ENTRY`, `TRANSACTION_ENTRY`). Zeros at the end are what
    Apache Kafka preallocates for an active segment.
    """
    content = path.read_bytes()
    odd_bytes = len(content) % entry.size
    count = len(content) // entry.size
    empty = bytes(entry.size)
    used = count
    while used and content[(used - 1) * entry.size : used * entry.size] == empty:
        used -= 1
    if count - used == 1:  # one alone is no preallocation but a damaged entry
        used = count
    result = [entry.unpack_from(content, number * entry.size) for number in range(used)]
    return Entries(result, (count - used) * entry.size, odd_bytes)


def offset_entries(path: Path) -> Entries:
    return index_entries(path, OFFSET_ENTRY)


def time_entries(path: Path) -> Entries:
    return index_entries(path, TIME_ENTRY)
