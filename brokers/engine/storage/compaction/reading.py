"""Reading of closed segments, batch by batch, each with its checksum verified so that corruption is not copied."""

from __future__ import annotations

import os
from collections.abc import Generator

from brokers.engine.records import batch as layout
from brokers.engine.records.batch import BatchHeader
from brokers.engine.storage.compaction.job import CleaningFailed
from brokers.engine.storage.compaction.pacing import Pacer
from brokers.engine.storage.segment import LOG_SUFFIX, base_name


def log_path(directory: str, base_offset: int) -> str:
    return f"{directory}/{base_name(base_offset)}{LOG_SUFFIX}"


Batches = Generator[tuple[BatchHeader, memoryview], None, None]


def read_batches(path: str, size_bytes: int, buffer_bytes: int, pacer: Pacer) -> Batches:
    """Yields (header, bytes) of every batch in the first `size_bytes` of the file.

    Raises CleaningFailed at the first batch that is damaged or of an old format, and OSError.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        position = 0
        chunk = memoryview(b"")
        chunk_at = 0
        while position < size_bytes:
            start = position - chunk_at
            if len(chunk) - start < layout.HEADER_BYTES:
                chunk, chunk_at, start = _read_chunk(fd, path, position, buffer_bytes, size_bytes, pacer), position, 0
            if len(chunk) < layout.HEADER_BYTES:
                raise CleaningFailed(path, position, "the last batch is cut off")
            header = layout.read_header(chunk, start)
            size = header.size_bytes
            if header.magic != layout.MAGIC:
                raise CleaningFailed(path, position, f"message format {header.magic} is not compacted")
            if size < layout.HEADER_BYTES or position + size > size_bytes:
                raise CleaningFailed(path, position, f"a batch claims {size} bytes")
            if len(chunk) - start < size:
                read_bytes = max(buffer_bytes, size)
                chunk, chunk_at, start = _read_chunk(fd, path, position, read_bytes, size_bytes, pacer), position, 0
            data = chunk[start : start + size]
            if layout.checksum(data) != header.crc:
                raise CleaningFailed(
                    path, position, f"the checksum of the batch at offset {header.base_offset} is wrong"
                )
            yield header, data
            position += size
    finally:
        os.close(fd)


def _read_chunk(fd: int, path: str, position: int, read_bytes: int, size_bytes: int, pacer: Pacer) -> memoryview:
    read_bytes = min(read_bytes, size_bytes - position)
    pacer.spend(read_bytes)
    data = os.pread(fd, read_bytes, position)
    if len(data) < read_bytes:
        raise CleaningFailed(path, position, "the file is shorter than the log says")
    return memoryview(data)
