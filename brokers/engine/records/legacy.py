"""Detection of message formats 0 and 1, so that they are refused for the right reason (REC-42, REC-48)."""

from __future__ import annotations

from typing import Final

from brokers.engine.records import batch as layout

MAGIC_MAX: Final = layout.MAGIC


def first_entry(records: memoryview | bytes) -> tuple[int, int] | None:
    """Returns (size with its 12-byte prefix, magic) of the first complete entry, None if there is none.

    A size below the smallest message is returned as -1, and an unknown magic unchanged: both are corrupt (REC-48).
    """
    if len(records) < layout.UP_TO_MAGIC_BYTES:
        return None
    _, length = layout.OFFSET_AND_LENGTH.unpack_from(records)
    magic = records[layout.MAGIC_AT]
    if length < layout.ENTRY_LENGTH_MIN:
        return -1, magic
    size = length + layout.LOG_OVERHEAD_BYTES
    if magic <= MAGIC_MAX and size > len(records):
        return None
    return size, magic
