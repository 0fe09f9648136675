"""Log start offsets of followers, which must be on disk before the leader learns of them (LOG-46).

The leader confirms a deletion to its client once every in-sync replica has reported it. A replica that reported it and
lost it in a crash would restore the records as the next leader.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from brokers.engine.replication.fetch_plan import FetchPlan, PartitionFetchState

# Writes the log start offsets of a directory, and calls back when they are on disk.
PersistLogStartOffsets = Callable[[Path, Callable[[], object]], object]


class PersistedLogStartOffsets:
    """Log start offsets of the partitions followed from one leader; `wake` sends the plan's pending reports."""

    def __init__(self, persist: PersistLogStartOffsets, plan: FetchPlan, wake: Callable[[], object]) -> None:
        self._persist = persist
        self._plan = plan
        self._wake = wake
        self._in_progress: set[PartitionFetchState] = set()

    def persist_if_advanced(self, followed: PartitionFetchState) -> None:
        """Persists the log start offset if it has advanced."""
        log = followed.partition.log
        if log.durable_start_offset < log.log_start_offset and followed not in self._in_progress:
            self._in_progress.add(followed)
            self._persist(log.root, partial(self._on_persisted, followed))

    def on_advanced(self, followed: PartitionFetchState) -> None:
        """Persists and reports a log start offset that did not come from the leader.

        Nothing else would report it, and the leader keeps replicas with a lower log start out of the ISR.
        """
        self.persist_if_advanced(followed)
        if followed not in self._in_progress:
            self._plan.report_now(followed)
            self._wake()

    def _on_persisted(self, followed: PartitionFetchState) -> None:
        self._in_progress.discard(followed)
        # No file names a deleted log, however often it is written.
        if followed.partition.offline or self._plan.followed.get(followed.key) is not followed:
            return
        self._plan.report_now(followed)
        self._wake()
        # It may have advanced meanwhile.
        self.persist_if_advanced(followed)
