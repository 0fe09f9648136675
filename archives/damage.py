"""Search for the end of a damaged batch, which its header states but no client exposes. Pure."""

from __future__ import annotations

from collections.abc import Callable


def end_of_damage(base: int, stop: int, is_damaged: Callable[[int], bool]) -> int:
    """Returns the first offset after the batch that begins at `base`, at most `stop`.

    `is_damaged` returns true if a reader that starts at this offset encounters the batch. For a batch of n records it
    is called about 2·log2(n) times at most.
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
