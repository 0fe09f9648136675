"""Detection of messages in formats 0 and 1 behind record batches in a segment (REC-5).

A segment that begins with such messages is rewritten (`rewriting`). Behind batches they exist only if the cluster's
message format was lowered again. Recovery must not truncate them as corrupt batches: the log is left unchanged and its
partition stays offline.
"""

from __future__ import annotations

import os
from pathlib import Path

from brokers.engine.records.batch import ENTRY_LENGTH_MIN, LOG_OVERHEAD_BYTES, MAGIC, MAGIC_AT, OFFSET_AND_LENGTH
from brokers.engine.records.message_set import Corrupt, MessagePosition, entries, is_checksum_valid


class OldFormat(Exception):
    """The log cannot be opened because a file has messages of format 0 or 1; the text names the file and position."""


def old_message_at(path: str, position: int) -> MessagePosition | None:
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
        entry = next(entries(data), None)
    except Corrupt:
        return None
    return entry if entry is not None and is_checksum_valid(data, entry) else None


def refuse_old_message(path: str, position: int) -> None:
    """Raises OldFormat if an intact old message begins at `position`. Raises OSError."""
    entry = old_message_at(path, position)
    if entry is not None:
        where = f"{path} at byte {position}: offset {entry.offset}"
        raise OldFormat(f"{where} is stored in message format {entry.magic}, behind batches")
