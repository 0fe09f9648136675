"""Totals of cleaning runs since the broker started, for its metrics."""

from __future__ import annotations

from dataclasses import dataclass

from brokers.engine.storage.compaction.job import Finished


@dataclass(slots=True)
class CleanerTotals:
    """Totals of cleaning runs.

    `uncleanable` partitions are excluded because their logs are damaged (CMP-15); `waiting` ones are retried after a
    run that failed for another reason.
    """

    runs: int = 0
    failures: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    io_bytes: int = 0
    cpu_s: float = 0.0
    uncleanable: int = 0
    waiting: int = 0

    def add(self, run: Finished) -> None:
        self.runs += 1
        self.bytes_before += run.bytes_before
        self.bytes_after += run.bytes_after
        self.io_bytes += run.io_bytes
        self.cpu_s += run.cpu_s
