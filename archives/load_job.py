"""One run of an archive to a database: reads the progress there, loads records by Spark, and copies the progress.

The progress in the tenant's database decides which records are loaded. The rows of `ArchivePartition` are a copy of it
for pages and REST, which each run corrects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from django.db import transaction
from django.db.models import F

from archives import database, job, limits, loading, reading
from archives.database import DatabaseFailed, Load
from archives.database_address import Database
from archives.job import ArchiveRunReport
from archives.loading import LoadResult
from archives.models import ERROR_CHARS_MAX, Archive, ArchivePartition
from archives.plan import Range, pace_of
from archives.reading import Source, Stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Points of a run at which a fault test may stop the process, in order; those of `loading` are between them.
POINTS = ("planned", "loaded", "noted")


def run(
    make_session: Callable[[], SparkSession],
    archive: Archive,
    source: Source,
    target: Database,
    now: datetime,
    *,
    at_point: Callable[[str], None] | None = None,
) -> ArchiveRunReport:
    """Loads everything between the offsets in the tenant's database and the current last stable offsets, within the
    limits of a task.

    `make_session` is called only if there is something to read. `at_point` is called with each of `POINTS`, and with
    those of `loading` if the session runs tasks in this process.
    """
    report_point = at_point or (lambda _point: None)
    try:
        topic = reading.topic_state(source)
        rows = job.rows_of(archive)
        if job.follow_topic(archive, rows, topic):
            rows = job.rows_of(archive)
        if any(row.is_of_deleted for row in rows.values()):
            job.note_ends(archive, topic)
            return job.note_failure(archive, now, job.RECREATED)
        missed = {number: row.missed_offsets for number, row in rows.items()}
        lows = {number: low for number, (low, _) in topic.ends.items()}
        loads = database.prepare(target, archive.topic, topic.id, lows, missed)
    except (Stopped, DatabaseFailed) as stop:
        return job.note_failure(archive, now, job.reason_of(archive, stop))
    _note_loads(archive, topic.ends, loads)
    ranges, troubles = job.ranges_of(archive, job.rows_of(archive), topic.ends)
    planned = [range_.partition for range_ in ranges]
    ArchivePartition.objects.filter(archive=archive, partition__in=planned).update(error="")
    for number, trouble in troubles.items():
        ArchivePartition.objects.filter(archive=archive, partition=number).update(error=trouble[:ERROR_CHARS_MAX])
    report_point("planned")
    results = _load(make_session, archive, source, target, topic.id, ranges, at_point)
    report_point("loaded")
    _note_results(archive, results, now)
    report_point("noted")
    errors = [*troubles.values(), *(result.error for result in results if result.error)]
    report = ArchiveRunReport(
        records=sum(result.records for result in results),
        files=0,
        caught_up=not errors and all(result.reached == result.range.stop for result in results),
        error=errors[0] if errors else "",
    )
    return job.note(archive, now, report, sum(result.bytes_read for result in results))


def _load(
    make_session: Callable[[], SparkSession],
    archive: Archive,
    source: Source,
    target: Database,
    topic_id: str,
    ranges: Sequence[Range],
    at_point: Callable[[str], None] | None,
) -> Sequence[LoadResult]:
    if not ranges:
        return ()
    context = make_session().sparkContext
    pace = pace_of(archive.bytes_per_s_max, len(ranges), context.defaultParallelism, time.time() + limits.TASKS_S)
    task = partial(loading.load_range, source, target, topic_id, pace)
    if at_point is not None:
        task = partial(task, at_point=at_point)
    results: Sequence[LoadResult] = context.parallelize(ranges, len(ranges)).map(task).collect()
    return results


def _note_loads(archive: Archive, ends: Mapping[int, tuple[int, int]], loads: Mapping[int, Load]) -> None:
    """Copies the progress from the tenant's database. The error of a partition stays until the partition is planned."""
    ArchivePartition.objects.bulk_create(
        [
            ArchivePartition(
                archive=archive, partition=number, end_offset=stop, next_offset=loads[number].next_offset,
                loaded_rows=loads[number].rows, skipped_records=loads[number].skipped,
                missed_offsets=loads[number].missed,
            )
            for number, (_, stop) in ends.items()
            if number in loads
        ],
        update_conflicts=True,
        unique_fields=["archive", "partition"],
        update_fields=["end_offset", "next_offset", "loaded_rows", "skipped_records", "missed_offsets", "updated_at"],
    )  # fmt: skip


@transaction.atomic
def _note_results(archive: Archive, results: Sequence[LoadResult], now: datetime) -> None:
    for result in results:
        row = ArchivePartition.objects.filter(archive=archive, partition=result.range.partition, is_of_deleted=False)
        if result.error or result.reached > result.range.start:
            row.update(read_at=now)
        row.update(
            next_offset=result.reached, error=result.error[:ERROR_CHARS_MAX],
            loaded_rows=F("loaded_rows") + result.records, skipped_records=F("skipped_records") + result.skipped,
            missed_offsets=F("missed_offsets") + result.missed,
        )  # fmt: skip
