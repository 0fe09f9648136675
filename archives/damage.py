"""Search for the last offset of a damaged batch by trial reads, because clients do not expose it. Pure."""

from __future__ import annotations

from collections.abc import Callable


def find_damage_end(base_offset: int, end_offset: int, is_damaged: Callable[[int], bool]) -> int:
    """Returns the first offset after the batch that begins at `base_offset`, at most `end_offset`.

    `is_damaged` returns true if a reader that starts at this offset encounters the batch. For a batch of n records it
    is called about 2·log2(n) times at most.
    """
    damaged_offset, step = base_offset, 1
    while (readable_offset := min(base_offset + step, end_offset)) < end_offset and is_damaged(readable_offset):
        damaged_offset, step = readable_offset, step * 2
    while readable_offset - damaged_offset > 1:
        middle = (damaged_offset + readable_offset) // 2
        if is_damaged(middle):
            damaged_offset = middle
        else:
            readable_offset = middle
    return readable_offset
