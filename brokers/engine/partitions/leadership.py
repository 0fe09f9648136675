"""Leader state of a partition with followers: their progress, the ISR and pending requests (REP-1, REP-11, REP-14,
REP-26).

A partition with a single replica has no `Leadership`.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from brokers.engine.partitions.delayed_operations import DelayedOperation, DelayedReplication
from brokers.engine.partitions.progress import UNKNOWN_OFFSET, FollowerProgress, may_join

# Number of pending produces at which ended ones are first removed; later whenever the number left has doubled.
SWEEP_COUNT_MIN: Final = 1_024


class Leadership:
    """State of one leadership, pure except for pending requests; times are from a monotonic clock.

    `isr` is the ISR in the cluster documents. `proposed` is an ISR that this leader wrote and has not read back;
    meanwhile the members of both count as `in_sync` (REP-24). `fetches` are entries of follower sessions; appends
    notify them.
    """

    __slots__ = (
        "_delayed_produces",
        "_produce_count",
        "_sweep_at_count",
        "epoch_start_offset",
        "fetches",
        "followers",
        "in_sync",
        "isr",
        "proposed",
        "unavailable_brokers",
        "was_checked",
    )

    def __init__(self) -> None:
        self.followers: dict[int, FollowerProgress] = {}
        self.isr: tuple[int, ...] = ()
        self.proposed: tuple[int, ...] | None = None
        # Brokers that are dead or stopping: the high watermark does not wait for them before they are back in the ISR.
        self.unavailable_brokers: frozenset[int] = frozenset()
        self.in_sync: tuple[int, ...] = ()
        self.epoch_start_offset = 0
        # True if a leadership check had to wait for followers in this epoch (`leadership_check`).
        self.was_checked = False
        self.fetches: set[DelayedOperation] = set()
        self._delayed_produces: list[tuple[int, int, DelayedReplication]] = []
        self._produce_count = 0
        self._sweep_at_count = SWEEP_COUNT_MIN

    # -- followers ----------------------------------------------------------------------------------------------------

    def begin(self, follower_ids: tuple[int, ...], isr: tuple[int, ...], epoch_start_offset: int, now_ms: int) -> None:
        """Begins a leader epoch without knowledge of any follower (REP-26)."""
        self.followers = {
            replica: FollowerProgress(caught_up_ms=now_ms if replica in isr else 0) for replica in follower_ids
        }
        self.epoch_start_offset = epoch_start_offset
        self.proposed = None
        self.was_checked = False
        self.confirm(follower_ids, isr)

    def confirm(self, follower_ids: tuple[int, ...], isr: tuple[int, ...]) -> None:
        """Sets the followers and the ISR from the cluster documents, in the same leader epoch."""
        previous_progress = self.followers
        if len(previous_progress) != len(follower_ids) or any(
            replica not in previous_progress for replica in follower_ids
        ):
            self.followers = {replica: previous_progress.get(replica) or FollowerProgress() for replica in follower_ids}
        self.isr = isr
        self._update_in_sync()

    def propose(self, isr: tuple[int, ...] | None) -> None:
        """Sets the ISR that this leader is writing, None once the documents were read again."""
        self.proposed = isr
        self._update_in_sync()

    def _update_in_sync(self) -> None:
        proposed = self.proposed
        self.in_sync = self.isr if proposed is None else tuple({*self.isr, *proposed})

    def isr_candidates(self, high_watermark: int, start_offset: int = UNKNOWN_OFFSET) -> list[int]:
        """Returns the followers outside the ISR that may join it (REP-23); the caller checks whether they are alive."""
        return [
            replica
            for replica, follower in self.followers.items()
            if replica not in self.isr and may_join(follower, high_watermark, self.epoch_start_offset, start_offset)
        ]

    # -- progress -----------------------------------------------------------------------------------------------------

    def committed_offset(self, end_offset: int) -> int:
        """Returns the lowest end offset of the ISR, of its proposed members, and of followers about to be proposed
        (REP-11).
        """
        lowest = end_offset
        for replica, follower in self.followers.items():
            offset = follower.end_offset
            if offset < lowest and (
                replica in self.in_sync or (follower.keeps_up and replica not in self.unavailable_brokers)
            ):
                lowest = offset
        return lowest

    def low_watermark(self, start_offset: int) -> int:
        """Returns the lowest log start of leader and in-sync followers; records below it are gone on all of them
        (LOG-46).
        """
        lowest = start_offset
        for replica, follower in self.followers.items():
            if replica in self.in_sync and follower.start_offset < lowest:
                lowest = follower.start_offset
        return lowest

    # -- pending requests ---------------------------------------------------------------------------------------------

    def await_commit(self, produce: DelayedReplication, last_offset: int) -> None:
        if len(self._delayed_produces) >= self._sweep_at_count:
            self._delayed_produces = [entry for entry in self._delayed_produces if not entry[2].done]
            heapify(self._delayed_produces)
            self._sweep_at_count = max(SWEEP_COUNT_MIN, 2 * len(self._delayed_produces))
        self._produce_count += 1
        heappush(self._delayed_produces, (last_offset, self._produce_count, produce))

    def pop_committed(self, high_watermark: int) -> list[DelayedReplication]:
        """Removes and returns the produces that wait for an offset below the high watermark; some may have ended."""
        produces = self._delayed_produces
        result: list[DelayedReplication] = []
        while produces and produces[0][0] < high_watermark:
            result.append(heappop(produces)[2])
        return result

    def delayed_operations(self) -> list[DelayedOperation]:
        """Returns all pending operations, which must be notified of the end of the leadership."""
        result: list[DelayedOperation] = [*self.fetches, *(produce for _, _, produce in self._delayed_produces)]
        self._delayed_produces = []
        return result
