"""What a leader of a partition with followers keeps beside its log: how far each follower is, who is in sync, who
waits (REP-1, REP-11, REP-14, REP-26). A partition of one replica has none of this.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from brokers.engine.partitions.delayed_operations import DelayedOperation, DelayedReplication
from brokers.engine.partitions.isr import may_join
from brokers.engine.partitions.progress import UNKNOWN_OFFSET, FollowerProgress

# Requests that ran out of time are swept out when there may be as many of them as of others, and at least so many.
SWEPT_MIN: Final = 1_024


class Leadership:
    """Pure but for those who wait; times are of a clock that never jumps.

    `isr` is what the cluster's documents say, `proposed` what this leader wrote and has not read back: until then
    whoever is in either of the two counts as `in_sync` (REP-24). `fetches` are lines of followers' sessions, to be told
    of appends.
    """

    __slots__ = (
        "_produces",
        "_produces_made",
        "_sweep_at",
        "asked",
        "away",
        "epoch_start_offset",
        "fetches",
        "followers",
        "in_sync",
        "isr",
        "proposed",
    )

    def __init__(self) -> None:
        self.followers: dict[int, FollowerProgress] = {}
        self.isr: tuple[int, ...] = ()
        self.proposed: tuple[int, ...] | None = None
        # Brokers that are dead or stop: however well one of them kept up, nobody waits until it is back in the ISR.
        self.away: frozenset[int] = frozenset()
        self.in_sync: tuple[int, ...] = ()
        self.epoch_start_offset = 0
        # Whether any question was put to those in sync (`confirming`), in this epoch.
        self.asked = False
        self.fetches: set[DelayedOperation] = set()
        self._produces: list[tuple[int, int, DelayedReplication]] = []
        self._produces_made = 0
        self._sweep_at = SWEPT_MIN

    # -- who follows --------------------------------------------------------------------------------------------------

    def begin(self, others: tuple[int, ...], isr: tuple[int, ...], epoch_start_offset: int, now_ms: int) -> None:
        """A leader epoch begins: nothing is known of any follower (REP-26)."""
        self.followers = {replica: FollowerProgress(caught_up_ms=now_ms if replica in isr else 0) for replica in others}
        self.epoch_start_offset = epoch_start_offset
        self.proposed = None
        self.asked = False
        self.confirm(others, isr)

    def confirm(self, others: tuple[int, ...], isr: tuple[int, ...]) -> None:
        """The documents say that these follow and are in sync, in the same leader epoch."""
        known = self.followers
        if len(known) != len(others) or any(replica not in known for replica in others):
            self.followers = {replica: known.get(replica) or FollowerProgress() for replica in others}
        self.isr = isr
        self._count()

    def propose(self, isr: tuple[int, ...] | None) -> None:
        """This leader writes `isr`; None: the documents have been read since, and say what is."""
        self.proposed = isr
        self._count()

    def _count(self) -> None:
        proposed = self.proposed
        self.in_sync = self.isr if proposed is None else tuple({*self.isr, *proposed})

    def candidates(self, high_watermark: int, start_offset: int = UNKNOWN_OFFSET) -> list[int]:
        """Followers outside of the ISR that have what it takes (REP-23); whether they live is the caller's to know."""
        return [
            replica
            for replica, follower in self.followers.items()
            if replica not in self.isr and may_join(follower, high_watermark, self.epoch_start_offset, start_offset)
        ]

    # -- how far ------------------------------------------------------------------------------------------------------

    def committed(self, end_offset: int) -> int:
        """The least end offset of all that count: the ISR, who is proposed for it, and who keeps up and is about to be
        proposed (REP-11).
        """
        lowest = end_offset
        for replica, follower in self.followers.items():
            offset = follower.end_offset
            if offset < lowest and (replica in self.in_sync or (follower.keeps_up and replica not in self.away)):
                lowest = offset
        return lowest

    def low_watermark(self, start_offset: int) -> int:
        """The least log start of the leader and its followers in sync: what lies below is gone everywhere (LOG-46)."""
        lowest = start_offset
        for replica, follower in self.followers.items():
            if replica in self.in_sync and follower.start_offset < lowest:
                lowest = follower.start_offset
        return lowest

    # -- who waits ----------------------------------------------------------------------------------------------------

    def await_commit(self, wait: DelayedReplication, last_offset: int) -> None:
        if len(self._produces) >= self._sweep_at:
            self._produces = [held for held in self._produces if not held[2].done]
            heapify(self._produces)
            self._sweep_at = max(SWEPT_MIN, 2 * len(self._produces))
        self._produces_made += 1
        heappush(self._produces, (last_offset, self._produces_made, wait))

    def committed_below(self, high_watermark: int) -> list[DelayedReplication]:
        """Takes out whoever waits for an offset below; each may be over for another reason."""
        produces = self._produces
        result: list[DelayedReplication] = []
        while produces and produces[0][0] < high_watermark:
            result.append(heappop(produces)[2])
        return result

    def delayed_operations(self) -> list[DelayedOperation]:
        """Takes out everybody, to be told that the leadership is over."""
        result: list[DelayedOperation] = [*self.fetches, *(wait for _, _, wait in self._produces)]
        self._produces = []
        return result
