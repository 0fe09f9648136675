"""Where a damaged batch ends: its header says so, and no client shows that. Pure."""

from __future__ import annotations

from collections.abc import Callable


def end_of_damage(base: int, stop: int, is_damaged: Callable[[int], bool]) -> int:
    """The first offset behind the batch that begins at `base`, `stop` at most.

    `is_damaged` says of an offset whether who reads from there meets that batch. It is asked as often as twice the
    binary logarithm of the batch's records.
    """
    inside, step = base, 1
    while (outside := min(base + step, stop)) < stop and is_damaged(outside):
        inside, step = outside, step * 2
    while outside - inside > 1:
        middle = (inside + outside) // 2
        if is_damaged(middle):
            inside = middle
        else:
            outside = middle
    return outside
