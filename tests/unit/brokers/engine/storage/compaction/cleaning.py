"""Cleans a log synchronously with the steps of the broker: measure, run, swap."""

from __future__ import annotations

from brokers.engine.storage.compaction import selection
from brokers.engine.storage.compaction.job import Cleaned, Event, Finished, Job
from brokers.engine.storage.compaction.pacing import Pacer
from brokers.engine.storage.compaction.run import Run
from brokers.engine.storage.compaction.selection import CompactionFacts
from brokers.engine.storage.compaction.settings import CompactionRules
from brokers.engine.storage.compaction.swap import swap_in
from brokers.engine.storage.log import Log

MAP_BYTES = 1 << 20


def facts(log: Log) -> list[CompactionFacts]:
    return [
        CompactionFacts(held.base_offset, held.size_bytes, held.largest_timestamp, held.load_first_timestamp)
        for held in log.segments
    ]


def job_for(
    log: Log,
    *,
    now_ms: int,
    first_dirty: int = 0,
    end_offset: int | None = None,
    delete_retention_ms: int = 1_000,
    map_bytes: int = MAP_BYTES,
    producers: dict[int, tuple[int, int]] | None = None,
) -> Job:
    result = selection.measure(
        facts(log),
        CompactionRules(),
        first_dirty=first_dirty,
        stable_offset=log.log_end_offset if end_offset is None else end_offset,
        now_ms=now_ms,
    )
    below = [held for held in log.segments if held.base_offset < result.first_uncleanable]
    return Job(
        directory=log.directory,
        segments=[(held.base_offset, held.size_bytes) for held in below],
        ahead=[(held.base_offset, held.size_bytes) for held in log.segments[len(below) :] if held.size_bytes],
        first_dirty=first_dirty,
        end_offset=result.first_uncleanable,
        committed_offset=log.log_end_offset,
        producers=producers or {},
        now_ms=now_ms,
        delete_retention_ms=delete_retention_ms,
        segment_bytes=log.config.segment_bytes,
        index_bytes=log.config.index_limits[1],
        index_interval_bytes=log.config.index_limits[0],
        map_bytes=map_bytes,
        load_factor=0.9,
        buffer_bytes=4_096,
        io_bytes_per_s=0.0,
    )


def run(job: Job) -> list[Event]:
    events: list[Event] = []
    Run(job, events.append, Pacer(0.0, lambda: 0.0, lambda _: None)).run()
    return events


def clean(
    log: Log,
    *,
    now_ms: int,
    first_dirty: int = 0,
    end_offset: int | None = None,
    delete_retention_ms: int = 1_000,
    map_bytes: int = MAP_BYTES,
    producers: dict[int, tuple[int, int]] | None = None,
) -> Finished:
    """Runs one whole cleaning, swaps the results in and returns its last event."""
    job = job_for(
        log,
        now_ms=now_ms,
        first_dirty=first_dirty,
        end_offset=end_offset,
        delete_retention_ms=delete_retention_ms,
        map_bytes=map_bytes,
        producers=producers,
    )
    *groups, last = run(job)
    for group in groups:
        assert isinstance(group, Cleaned)
        assert swap_in(log, group) is not None
    assert isinstance(last, Finished)
    return last
