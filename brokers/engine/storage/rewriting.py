"""Conversion of segments in message formats 0 and 1, from Kafka before 0.11, to record batches before their log opens
(REC-5 to REC-12, REC-30).

Offsets, timestamps, keys, values and codecs are preserved, and every reader of a log finds a single format. A segment
is replaced like a compacted one, so a crash leaves the old file or the complete new one.

Old messages follow record batches only if the cluster's message format was lowered later. Recovery must not truncate
them as corrupt batches: the log is left unchanged and its partition stays offline.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from brokers.engine.records import batch as layout
from brokers.engine.records.batch import ENTRY_LENGTH_MIN, LOG_OVERHEAD_BYTES, MAGIC, MAGIC_AT, OFFSET_AND_LENGTH
from brokers.engine.records.compression import NONE, Oversized
from brokers.engine.records.conversion import encode_batch
from brokers.engine.records.message_set import (
    MESSAGE_BYTES_MIN,
    Corrupt,
    Invalid,
    Message,
    MessagePosition,
    is_checksum_valid,
    read_entries,
    read_message,
    unwrap_messages,
)
from brokers.engine.storage.compaction import swap
from brokers.engine.storage.files import storage_errors
from brokers.engine.storage.log import RELATIVE_OFFSET_MAX
from brokers.engine.storage.segment import LOG_SUFFIX, base_name
from brokers.engine.storage.splitting import PartsWriter

# Limits of a batch of adjacent messages.
BATCH_MESSAGES_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 64 * 1024


class OldFormat(Exception):
    """The log cannot be opened because a file has messages of format 0 or 1; the text names the file and position."""


def find_old_message(path: str, position: int) -> MessagePosition | None:
    """Returns the intact message of format 0 or 1 at `position`, or None; zeros from a power cut are none.

    Raises OSError.
    """
    remaining_bytes = os.stat(path).st_size - position  # noqa: PTH116
    with Path(path).open("rb") as file:
        file.seek(position)
        head = file.read(MAGIC_AT + 1)
        if len(head) <= MAGIC_AT or head[MAGIC_AT] >= MAGIC:
            return None
        length = OFFSET_AND_LENGTH.unpack_from(head)[1]
        if not ENTRY_LENGTH_MIN <= length <= remaining_bytes - LOG_OVERHEAD_BYTES:
            return None
        data = head + file.read(LOG_OVERHEAD_BYTES + length - len(head))
    try:
        entry = next(read_entries(data), None)
    except Corrupt:
        return None
    return entry if entry is not None and is_checksum_valid(data, entry) else None


def refuse_old_message(path: str, position: int) -> None:
    """Raises OldFormat if an intact old message begins at `position`. Raises OSError."""
    entry = find_old_message(path, position)
    if entry is not None:
        where = f"{path} at byte {position}: offset {entry.offset}"
        raise OldFormat(f"{where} is stored in message format {entry.magic}, behind batches")


class RewrittenBatch(NamedTuple):
    """A batch of a rewritten segment."""

    data: bytes | bytearray
    last_offset: int
    max_timestamp: int


def rewrite_old_segments(directory: str, root: Path, bases: Iterable[int], interval_bytes: int) -> int:
    """Rewrites every segment of `directory` that begins with an intact message of an old format; returns their number.

    Raises StorageFailed, and OldFormat for a damaged segment, which stays unchanged.
    """
    count = 0
    for base in bases:
        path = f"{directory}/{base_name(base)}{LOG_SUFFIX}"
        with storage_errors(root):
            if find_old_message(path, 0) is None:
                continue
            _rewrite_segment(directory, root, base, path, interval_bytes)
        count += 1
    return count


def end_offset(path: str) -> int:
    """Returns the offset after the last message of an old segment. Raises OSError, and OldFormat if it is damaged."""
    end = 0
    for batch in _read_as_batches(path):
        end = batch.last_offset + 1
    return end


def _rewrite_segment(directory: str, root: Path, base: int, path: str, interval_bytes: int) -> None:
    parts_writer = PartsWriter(directory, root, base, interval_bytes)
    try:
        for batch in _read_as_batches(path):
            base_offset = layout.OFFSET_AND_LENGTH.unpack_from(batch.data)[0]
            parts_writer.add(batch.data, base_offset, batch.last_offset, batch.max_timestamp)
        parts_writer.finish()
    except OldFormat:
        swap.discard(directory, root)
        raise
    finally:
        parts_writer.close()


def _read_as_batches(path: str) -> Iterator[RewrittenBatch]:
    """Yields the entries of a file as batches: adjacent messages together, each compressed wrapper alone, batches
    unchanged.
    """
    run: list[Message] = []
    run_bytes = 0
    for position, data in _read_entries(path):
        try:
            messages, codec = _read_messages(data)
        except (Corrupt, Invalid, Oversized, struct.error) as fault:
            raise OldFormat(
                f"{path} at byte {position}: in a segment of an old message format, {fault}; nothing was changed"
            ) from fault
        can_join = codec == NONE and bool(messages)
        if run and not (can_join and _can_append(run, run_bytes, messages[0])):
            yield _encode_batch(run, NONE)
            run, run_bytes = [], 0
        if can_join:
            run += messages
            run_bytes += len(data)
        elif messages:
            yield _encode_batch(messages, codec)
        else:
            header = layout.read_header(data)
            yield RewrittenBatch(data, header.last_offset, header.max_timestamp)
    if run:
        yield _encode_batch(run, NONE)


def _read_entries(path: str) -> Iterator[tuple[int, bytes]]:
    """Yields (position, bytes) of every entry. Raises OldFormat where the file contains something else."""
    with Path(path).open("rb") as file:
        position, size = 0, os.fstat(file.fileno()).st_size
        while position < size:
            head = file.read(layout.LOG_OVERHEAD_BYTES)
            length = layout.OFFSET_AND_LENGTH.unpack(head)[1] if len(head) == layout.LOG_OVERHEAD_BYTES else -1
            if not MESSAGE_BYTES_MIN <= length <= size - position - layout.LOG_OVERHEAD_BYTES:
                raise OldFormat(f"{path} at byte {position}: no message begins there; nothing was changed")
            data = head + file.read(length)
            yield position, data
            position += len(data)


def _read_messages(data: bytes) -> tuple[list[Message], int]:
    """Returns the messages of an entry and their codec, no message for an intact record batch.

    Raises like `unwrap_messages`.
    """
    if data[layout.MAGIC_AT] == layout.MAGIC:
        header = layout.read_header(data)
        if header.size_bytes != len(data) or layout.checksum(data) != header.crc:
            raise Corrupt("the checksum of a batch is wrong")
        return [], NONE
    entry = next(read_entries(data), None)
    if entry is None or not is_checksum_valid(data, entry):
        raise Corrupt("the checksum of a message is wrong")
    message = read_message(data, entry)
    if message.codec == NONE:
        return [message], NONE
    timestamp_type = message.attributes & layout.LOG_APPEND_TIME if entry.magic else 0
    return [inner._replace(attributes=timestamp_type) for inner in unwrap_messages(message, entry.magic)], message.codec


def _can_append(run: list[Message], run_bytes: int, message: Message) -> bool:
    """True if a message may join a batch, which has one timestamp type and, for LogAppendTime, one timestamp."""
    last_message = run[-1]
    timestamp_type = message.attributes & layout.LOG_APPEND_TIME
    has_same_type = timestamp_type == last_message.attributes & layout.LOG_APPEND_TIME
    is_in_order = last_message.offset < message.offset <= run[0].offset + RELATIVE_OFFSET_MAX
    has_same_time = not timestamp_type or message.timestamp_ms == last_message.timestamp_ms
    return (
        has_same_type
        and is_in_order
        and has_same_time
        and len(run) < BATCH_MESSAGES_MAX
        and run_bytes < BATCH_BYTES_MAX
    )


def _encode_batch(messages: list[Message], codec: int) -> RewrittenBatch:
    data = encode_batch(messages, codec, messages[0].attributes & layout.LOG_APPEND_TIME)
    return RewrittenBatch(data, messages[-1].offset, max(message.timestamp_ms for message in messages))
