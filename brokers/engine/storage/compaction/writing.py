"""The `.cleaned` files of a rewritten segment: log and indexes, durable before they are used (CMP-25)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from brokers.engine.storage.compaction.pacing import Pacer
from brokers.engine.storage.indexes import Aborted, AbortedIndex, OffsetIndex, TimeIndex
from brokers.engine.storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    base_name,
)

CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
# Suffixes of the files of every rewritten segment, and of the file that only a segment with aborted transactions has.
REQUIRED_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)
ABORTED_SUFFIX: Final = TRANSACTION_INDEX_SUFFIX


class CleanedSegment:
    """A rewritten segment, filled by `add` and made durable by `finish`; timestamps are those of the kept batches."""

    __slots__ = (
        "_buffer",
        "_buffer_bytes",
        "_bytes_since_entry",
        "_fd",
        "_interval_bytes",
        "_pacer",
        "aborted",
        "indexed_timestamp",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "path",
        "size_bytes",
        "time_index",
    )

    def __init__(self, directory: str, base_offset: int, interval_bytes: int, buffer_bytes: int, pacer: Pacer) -> None:
        stem = f"{directory}/{base_name(base_offset)}"
        root = Path(directory).parent
        self.path = stem + LOG_SUFFIX + CLEANED_SUFFIX
        self.offset_index = OffsetIndex(stem + INDEX_SUFFIX + CLEANED_SUFFIX, root, base_offset, is_new=True)
        self.time_index = TimeIndex(stem + TIME_INDEX_SUFFIX + CLEANED_SUFFIX, root, base_offset, is_new=True)
        self.aborted = AbortedIndex(stem + ABORTED_SUFFIX + CLEANED_SUFFIX, root, base_offset, is_new=True)
        self.size_bytes = 0
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.indexed_timestamp = -1
        self._interval_bytes = interval_bytes
        self._buffer_bytes = buffer_bytes
        self._pacer = pacer
        self._bytes_since_entry = 0
        self._buffer = bytearray()
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def add(self, data: bytes | bytearray | memoryview, last_offset: int, largest_timestamp: int) -> None:
        """Appends one batch and adds index entries as for any append (LOG-9)."""
        if largest_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = largest_timestamp, last_offset
        if self._bytes_since_entry > self._interval_bytes:
            self.offset_index.add(last_offset, self.size_bytes)
            if self.max_timestamp > self.indexed_timestamp:
                self.time_index.add(self.max_timestamp, self.max_timestamp_offset)
                self.indexed_timestamp = self.max_timestamp
            self._bytes_since_entry = 0
        self._bytes_since_entry += len(data)
        self.size_bytes += len(data)
        self._buffer += data
        if len(self._buffer) >= self._buffer_bytes:
            self._write()

    def add_trailing_bytes(self, data: bytes) -> None:
        """Appends bytes that are no batch, behind all batches; no index names them."""
        self.size_bytes += len(data)
        self._buffer += data
        if len(self._buffer) >= self._buffer_bytes:
            self._write()

    def add_aborted(self, aborted: Aborted) -> None:
        """Lists an aborted transaction whose marker is the last batch that was added."""
        self.aborted.add(aborted)

    def _write(self) -> None:
        self._pacer.spend(len(self._buffer))
        view = memoryview(self._buffer)
        while view:
            view = view[os.write(self._fd, view) :]
        self._buffer = bytearray()

    def finish(self, modified_ns: int) -> None:
        """Makes the files durable and sets the modification time to that of the last source segment."""
        self._write()
        os.fsync(self._fd)
        self.close()
        self.time_index.add(self.max_timestamp, self.max_timestamp_offset)
        self.offset_index.store(durable=True)
        self.time_index.store(durable=True)
        if len(self.aborted):
            self.aborted.store(durable=True)
        os.utime(self.path, ns=(modified_ns, modified_ns))

    def close(self) -> None:
        """Closes the log file, finished or not."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
