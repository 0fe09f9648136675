"""Where a follower's log starts: on disk before its leader hears of it (LOG-46).

The leader tells its client that records are gone once every replica in sync has said so. One that said so and forgot it
in a crash would bring them back as the next leader.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from brokers.engine.replication.fetch_plan import FetchPlan, Followed

# Writes where the logs of a directory start, and calls back when that is done.
PersistLogStartOffsets = Callable[[Path, Callable[[], object]], object]


class PersistedLogStartOffsets:
    """Of one leader's partitions. `wake` sends what the plan has to say."""

    def __init__(self, keep: PersistLogStartOffsets, plan: FetchPlan, wake: Callable[[], object]) -> None:
        self._keep = keep
        self._plan = plan
        self._wake = wake
        self._under_way: set[Followed] = set()

    def see_to(self, followed: Followed) -> None:
        """Call when its log's start may have moved."""
        log = followed.partition.log
        if log.kept_start_offset < log.log_start_offset and followed not in self._under_way:
            self._under_way.add(followed)
            self._keep(log.root, partial(self._done, followed))

    def moved(self, followed: Followed) -> None:
        """Its log begins later, and no answer of the leader made it so: nothing else would tell the leader, which keeps
        whoever begins before itself out of the ISR.
        """
        self.see_to(followed)
        if followed not in self._under_way:
            self._plan.tell(followed)
            self._wake()

    def _done(self, followed: Followed) -> None:
        self._under_way.discard(followed)
        # Of a log that is gone no file says anything, however often it is written.
        if followed.partition.offline or self._plan.followed.get(followed.key) is not followed:
            return
        self._plan.tell(followed)
        self._wake()
        # It may have moved on meanwhile.
        self.see_to(followed)
