"""ISR membership decisions (REP-13, REP-22, REP-23). Pure: based on the leader's view of its followers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from brokers.engine.partitions.progress import UNKNOWN_OFFSET, FollowerProgress

# `replica.lag.time.max.ms`
REPLICA_LAG_MS_MAX = 30_000


def effective_minimum(min_insync_replicas: int, replication_factor: int) -> int:
    """Returns min(min.insync.replicas, RF): a topic with one replica is never refused for lack of a second (REP-13)."""
    return min(min_insync_replicas, replication_factor)


def out_of_sync_replicas(
    isr: Sequence[int],
    leader: int,
    followers: Mapping[int, FollowerProgress],
    leader_end_offset: int,
    now_ms: int,
    lag_ms_max: int = REPLICA_LAG_MS_MAX,
    unconfirmed: Collection[int] = (),
) -> tuple[int, ...]:
    """Returns the ISR members to remove: not caught up for longer than the allowed lag.

    They are behind the leader, or `unconfirmed`: they did not answer a leadership check.
    """
    return tuple(
        member
        for member in isr
        if member != leader
        and member in followers  # the controller removes members that are not replicas
        and (followers[member].end_offset != leader_end_offset or member in unconfirmed)
        and now_ms - followers[member].caught_up_ms > lag_ms_max
    )


def may_join(
    follower: FollowerProgress, high_watermark: int, epoch_start_offset: int, start_offset: int = UNKNOWN_OFFSET
) -> bool:
    """True if a follower outside the ISR may join it.

    It needs all committed records, all records older than this leadership, and none below `start_offset`, the leader's
    log start: as the next leader it would restore deleted records (LOG-46).
    """
    return (
        follower.end_offset >= high_watermark
        and follower.end_offset >= epoch_start_offset
        and follower.start_offset >= start_offset
    )
