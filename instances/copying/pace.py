"""Computations for a copy: its rate and duration, and the offset at which it continues after a lost response. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from instances.copying.limits import COPY_BANDWIDTH_PERCENT, COPY_BYTES_PER_S_MAX

BYTES_PER_MB: Final = 1_000_000


def bytes_per_s(bandwidth_mb_s: int) -> int:
    """Returns the rate of a copy within an instance of this bandwidth."""
    return min(COPY_BYTES_PER_S_MAX, bandwidth_mb_s * BYTES_PER_MB * COPY_BANDWIDTH_PERCENT // 100)


def duration_s(size_bytes: int, bandwidth_mb_s: int) -> int:
    """Returns the minimum time of copying this many bytes, in whole seconds."""
    return -(-size_bytes // bytes_per_s(bandwidth_mb_s))


def resolved_offset(source_offset: int, written: int, end: int, marks: Sequence[Sequence[int]]) -> int | None:
    """Returns the source's offset at which a copy continues after a write without a response.

    `written` is the end of the target's partition before the write, `end` its end now, and `marks` are (records, next
    offset of the source) after each batch. None: the write cannot have led to this end.
    """
    source_offset_by_end = {written: source_offset} | {written + records: next_offset for records, next_offset in marks}
    return source_offset_by_end.get(end)
