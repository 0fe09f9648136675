"""Messages of formats 0 and 1 that lie behind record batches in a segment: told from damage (REC-5).

A segment that begins with such messages is rewritten (`rewriting`). Behind batches only a cluster that was set back to
an old format has them; recovery must not take them for rotten batches and cut them off: that log is left as it is, and
its partition stays offline.
"""

from __future__ import annotations

import os
from pathlib import Path

from brokers.engine.records.batch import ENTRY_LENGTH_MIN, LOG_OVERHEAD_BYTES, MAGIC, MAGIC_AT, OFFSET_AND_LENGTH
from brokers.engine.records.message_set import Corrupt, Entry, checksum_holds, entries


class OldFormat(Exception):
    """The log cannot be opened: it says in which file messages of format 0 or 1 are in the way, and where."""


def old_message_at(path: str, position: int) -> Entry | None:
    """The message of format 0 or 1 that begins at `position`. None unless it is intact: zeros that a power cut left are
    none. Raises OSError.
    """
    left = os.stat(path).st_size - position  # noqa: PTH116
    with Path(path).open("rb") as file:
        file.seek(position)
        head = file.read(MAGIC_AT + 1)
        if len(head) <= MAGIC_AT or head[MAGIC_AT] >= MAGIC:
            return None
        length = OFFSET_AND_LENGTH.unpack_from(head)[1]
        if not ENTRY_LENGTH_MIN <= length <= left - LOG_OVERHEAD_BYTES:
            return None
        data = head + file.read(LOG_OVERHEAD_BYTES + length - len(head))
    try:
        entry = next(entries(data), None)
    except Corrupt:
        return None
    return entry if entry is not None and checksum_holds(data, entry) else None


def refuse_old_message(path: str, position: int) -> None:
    """Raises OldFormat if an intact old message begins at `position`; OSError."""
    entry = old_message_at(path, position)
    if entry is not None:
        where = f"{path} at byte {position}: offset {entry.offset}"
        raise OldFormat(f"{where} is stored in message format {entry.magic}, behind batches")
