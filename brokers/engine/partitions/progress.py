"""Progress of one follower in the view of its leader (REP-1, REP-21), and the decisions on ISR membership that are
based on it (REP-13, REP-22, REP-23). Pure: offsets and times in, no clock, no log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

UNKNOWN_OFFSET: Final = -1
UNKNOWN_EPOCH: Final = -1
# `replica.lag.time.max.ms`
REPLICA_LAG_MS_MAX = 30_000


class FollowerProgress:
    """Progress of one follower; `caught_up_ms` is the last time at which it had everything that the leader had.

    `broker_epoch` is the incarnation of its last fetch, -1 before the first one or if it is not sent. `keeps_up` is
    true if it was caught up so recently that it is about to join the ISR, or is in it.
    """

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "end_offset",
        "fetched_ms",
        "keeps_up",
        "leader_end_at_fetch",
        "start_offset",
    )

    def __init__(self, *, caught_up_ms: int = 0) -> None:
        """Initial state for a new leader: `caught_up_ms` is now for ISR members and 0 for others (REP-26)."""
        self.end_offset = UNKNOWN_OFFSET
        self.start_offset = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_EPOCH
        self.fetched_ms = 0
        self.leader_end_at_fetch = 0
        self.caught_up_ms = caught_up_ms
        self.keeps_up = False

    def update_fetch_state(
        self, offset: int, start_offset: int, leader_end_offset: int, now_ms: int, broker_epoch: int = UNKNOWN_EPOCH
    ) -> None:
        """Records a fetch from `offset`, which confirms all records below it (REP-7)."""
        if offset >= leader_end_offset:
            self.record_caught_up(now_ms)
        elif offset >= self.leader_end_at_fetch and self.fetched_ms:
            self.record_caught_up(self.fetched_ms)
        self.end_offset = offset
        self.start_offset = start_offset
        self.broker_epoch = broker_epoch
        self.fetched_ms = now_ms
        self.leader_end_at_fetch = leader_end_offset

    def record_caught_up(self, at_ms: int) -> None:
        """Records that the follower had everything at that time."""
        if at_ms >= self.caught_up_ms:
            self.caught_up_ms = at_ms
            self.keeps_up = True

    def update_keeps_up(self, now_ms: int, lag_ms_max: int) -> None:
        """Clears `keeps_up` if the follower was last caught up too long ago; called periodically."""
        if now_ms - self.caught_up_ms > lag_ms_max:
            self.keeps_up = False


def effective_min_insync_replicas(min_insync_replicas: int, replication_factor: int) -> int:
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
