"""The arithmetic of the high watermark (REP-3, REP-11). Pure."""

from __future__ import annotations

from collections.abc import Iterable


def advanced(current: int, leader_end_offset: int, isr_end_offsets: Iterable[int]) -> int:
    """The high watermark after progress: the least end offset of the ISR, never moving back, never past the leader's
    end.

    `isr_end_offsets` are those of the followers in the ISR; without any (replication factor 1) the leader alone
    decides.
    """
    lowest = leader_end_offset
    for end_offset in isr_end_offsets:
        lowest = min(lowest, end_offset)
    return max(current, lowest)
