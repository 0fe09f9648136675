"""Truncation and restart offsets of a follower's log (REP-9, REP-15).

Pure: offsets of both replicas in, offsets out.
"""

from __future__ import annotations

from typing import NamedTuple

from brokers.engine.storage.leader_epochs import LeaderEpochs

UNDEFINED = -1


def truncation_offset(epochs: LeaderEpochs, end_offset: int, leader_epoch: int, leader_end_offset: int) -> int:
    """Returns the offset at which a log that ends at `end_offset` must be truncated.

    In the leader's log, `leader_epoch` is the largest epoch up to the requested one and ends at `leader_end_offset`. If
    the local log does not have that epoch, it is truncated to the end of the largest smaller one; the next response
    shows whether that was enough (KIP-279).
    """
    own_epoch, own_end_offset = epochs.end_offset(leader_epoch, end_offset)
    if own_epoch == UNDEFINED:
        own_end_offset = end_offset
    return min(own_end_offset, leader_end_offset, end_offset)


class OutOfRangeAction(NamedTuple):
    """Reaction to an out-of-range fetch: truncation, restart, or neither."""

    truncate_to: int | None = None
    restart_at: int | None = None


def resolve_out_of_range(
    end_offset: int, leader_start_offset: int, leader_end_offset: int, *, is_empty: bool = True
) -> OutOfRangeAction:
    """Returns the reaction to an out-of-range fetch (REP-9).

    Neither is needed if the leader has advanced and has the requested offset. A log that ends where the leader's begins
    is restarted, because its records are useless.
    """
    if leader_end_offset < end_offset:
        return OutOfRangeAction(truncate_to=leader_end_offset)
    if leader_start_offset > end_offset or (leader_start_offset == end_offset and not is_empty):
        return OutOfRangeAction(restart_at=leader_start_offset)
    return OutOfRangeAction()
