"""Readers of a partition's files. Files are opened read-only, and nothing in them is trusted."""

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
# Larger than any batch that a broker accepts. A greater length is damage, for which no buffer must be allocated.
BATCH_BYTES_MAX: Final = 1 << 30


class Batch(NamedTuple):
    """One batch of a segment; `data` is the whole batch, header included."""

    position: int
    header: BatchHeader
    data: bytes
    is_intact: bool


class UnreadableRest(NamedTuple):
    """The rest of a file that cannot be read as batches, from `position` on."""

    position: int
    reason: str
    size_bytes: int


def list_segment_files(directory: Path) -> tuple[dict[str, list[int]], list[str]]:
    """Returns the ascending base offsets by suffix (`.log`, `.index`, …), and the names of all other files."""
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


def read_batches(path: Path) -> Iterator[Batch | UnreadableRest]:
    """Yields every batch of a segment file in order; an `UnreadableRest` comes last if the rest cannot be read."""
    size = path.stat().st_size
    with path.open("rb", buffering=READ_AHEAD_BYTES) as file:
        position = 0
        while position < size:
            result = _read_batch(file, position, size - position)
            yield result
            if isinstance(result, UnreadableRest):
                return
            position += result.header.size_bytes


def _read_batch(file: BinaryIO, position: int, remaining_bytes: int) -> Batch | UnreadableRest:
    head = file.read(layout.HEADER_BYTES)
    try:
        header = layout.read_header(head)
    except struct.error:
        return UnreadableRest(position, f"{len(head)} bytes are less than a batch header", remaining_bytes)
    if header.magic != layout.MAGIC:
        reason = f"message format {header.magic}" if header.magic in (0, 1) else f"magic {header.magic}"
        return UnreadableRest(position, f"not a batch of format 2 but {reason}", remaining_bytes)
    if not layout.HEADER_BYTES <= header.size_bytes <= BATCH_BYTES_MAX:
        return UnreadableRest(position, f"a batch cannot be {header.size_bytes} bytes long", remaining_bytes)
    if header.size_bytes > remaining_bytes:
        return UnreadableRest(position, f"a batch of {header.size_bytes} bytes is cut off", remaining_bytes)
    data = head + file.read(header.size_bytes - layout.HEADER_BYTES)
    return Batch(position, header, data, len(data) == header.size_bytes and layout.checksum(data) == header.crc)


class IndexEntries(NamedTuple):
    """Contents of an index file: its entries, the preallocated zero bytes after them, and bytes of a partial entry."""

    entries: list[tuple[int, ...]]
    zero_bytes: int
    odd_bytes: int


def read_index_entries(path: Path, entry: Struct) -> IndexEntries:
    """Reads an index file whose entries have the format `entry` (`OFFSET_ENTRY`, `TIME_ENTRY`, `TRANSACTION_ENTRY`).

    Apache Kafka preallocates the index of an active segment with zeros.
    """
    content = path.read_bytes()
    odd_bytes = len(content) % entry.size
    count = len(content) // entry.size
    empty = bytes(entry.size)
    used = count
    while used and content[(used - 1) * entry.size : used * entry.size] == empty:
        used -= 1
    if count - used == 1:  # a single entry of zeros is not preallocated but damaged
        used = count
    result = [entry.unpack_from(content, number * entry.size) for number in range(used)]
    return IndexEntries(result, (count - used) * entry.size, odd_bytes)


def read_offset_entries(path: Path) -> IndexEntries:
    return read_index_entries(path, OFFSET_ENTRY)


def read_time_entries(path: Path) -> IndexEntries:
    return read_index_entries(path, TIME_ENTRY)
