"""Where a follower's log has to end, or to begin again (REP-9, REP-15). Pure: what both sides know in, offsets out."""

from __future__ import annotations

from typing import NamedTuple

from brokers.engine.storage.leader_epochs import LeaderEpochs

UNDEFINED = -1


def truncation_offset(epochs: LeaderEpochs, end_offset: int, leader_epoch: int, leader_end_offset: int) -> int:
    """How much of a log that ends at `end_offset` may stay after the leader said that, of its own log, epoch
    `leader_epoch` is the largest up to the one asked for, and ends at `leader_end_offset`.

    If this log does not know that epoch, it ends with the largest smaller one; the next answer shows whether that was
    enough (KIP-279).
    """
    known, own_end_offset = epochs.end_offset(leader_epoch, end_offset)
    if known == UNDEFINED:
        own_end_offset = end_offset
    return min(own_end_offset, leader_end_offset, end_offset)


class OutOfRange(NamedTuple):
    """What to do when the leader has nothing at the offset asked for: one of the two, or neither."""

    truncate_to: int | None = None
    restart_at: int | None = None


def after_out_of_range(
    end_offset: int, leader_start_offset: int, leader_end_offset: int, *, is_empty: bool = True
) -> OutOfRange:
    """REP-9. Neither: the leader moved on since it refused, and holds what is asked for next. Of a log that ends where
    the leader's begins nothing is worth keeping.
    """
    if leader_end_offset < end_offset:
        return OutOfRange(truncate_to=leader_end_offset)
    if leader_start_offset > end_offset or (leader_start_offset == end_offset and not is_empty):
        return OutOfRange(restart_at=leader_start_offset)
    return OutOfRange()
