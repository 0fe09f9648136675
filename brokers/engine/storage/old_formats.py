"""Messages of formats 0 and 1 that lie behind record batches in a segment: told from damage (REC-5).

A segment that begins with such messages is rewritten (`rewriting`). Behind batches only a cluster that was set back to
an old format has them; recovery must not take them for rotten batches and cut them off: that log is left as it is, and
its partition stays offline.
"""

from __future__ import annotations

import os
from pathlib import Path

from brokers.engine.records.batch import ENTRY_LENGTH_MIN, LOG_OVERHEAD_BYTES, MAGIC, MAGIC_AT, OFFSET_AND_LENGTH
from brokers.engine.records.message_set import Corrupt, checksum_holds, entries


class OldFormat(Exception):
    """The log cannot be opened: it says in which file messages of format 0 or 1 are in the way, and where."""


def refuse_old_message(path: str, position: int) -> None:
    """Raises OldFormat if an intact old message begins at `position`; OSError."""
    left = os.stat(path).st_size - position  # noqa: PTH116
    with Path(path).open("rb") as file:
        file.seek(position)
        head = file.read(MAGIC_AT + 1)
        if len(head) <= MAGIC_AT or head[MAGIC_AT] >= MAGIC:
            return
        offset, length = OFFSET_AND_LENGTH.unpack_from(head)
        if not ENTRY_LENGTH_MIN <= length <= left - LOG_OVERHEAD_BYTES:
            return
        data = head + file.read(LOG_OVERHEAD_BYTES + length - len(head))
    try:
        entry = next(entries(data), None)
    except Corrupt:
        return
    if entry is not None and checksum_holds(data, entry):
        where = f"{path} at byte {position}: offset {offset}"
        raise OldFormat(f"{where} is stored in message format {entry.magic}, behind batches")
