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
from archives.database import DatabaseFailed, PartitionProgress
from archives.database_address import Database
from archives.job import ArchiveRunReport
from archives.loading import LoadResult
from archives.models import ERROR_CHARS_MAX, Archive, ArchivePartition
from archives.plan import Range, task_pace
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
            job.store_ends(archive, topic)
            return job.store_failure(archive, now, job.RECREATED_MESSAGE)
        missed_offsets = {number: row.missed_offsets for number, row in rows.items()}
        start_offsets = {number: start_offset for number, (start_offset, _) in topic.ends.items()}
        progress_by_partition = database.prepare_tables(target, archive.topic, topic.id, start_offsets, missed_offsets)
    except (Stopped, DatabaseFailed) as error:
        return job.store_failure(archive, now, job.failure_message(archive, error))
    _store_progress(archive, topic.ends, progress_by_partition)
    ranges, errors_by_partition = job.plan_ranges(archive, job.rows_of(archive), topic.ends)
    planned_partitions = [range_.partition for range_ in ranges]
    ArchivePartition.objects.filter(archive=archive, partition__in=planned_partitions).update(error="")
    for number, message in errors_by_partition.items():
        ArchivePartition.objects.filter(archive=archive, partition=number).update(error=message[:ERROR_CHARS_MAX])
    report_point("planned")
    results = _load_ranges(make_session, archive, source, target, topic.id, ranges, at_point)
    report_point("loaded")
    _store_results(archive, results, now)
    report_point("noted")
    errors = [*errors_by_partition.values(), *(result.error for result in results if result.error)]
    report = ArchiveRunReport(
        records=sum(result.records for result in results),
        files=0,
        is_caught_up=not errors and all(result.reached == result.range.stop for result in results),
        error=errors[0] if errors else "",
    )
    return job.store_report(archive, now, report, sum(result.bytes_read for result in results))


def _load_ranges(
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
    pace = task_pace(archive.bytes_per_s_max, len(ranges), context.defaultParallelism, time.time() + limits.TASKS_S)
    task = partial(loading.load_range, source, target, topic_id, pace)
    if at_point is not None:
        task = partial(task, at_point=at_point)
    results: Sequence[LoadResult] = context.parallelize(ranges, len(ranges)).map(task).collect()
    return results


def _store_progress(
    archive: Archive, ends: Mapping[int, tuple[int, int]], progress_by_partition: Mapping[int, PartitionProgress]
) -> None:
    """Copies the progress from the tenant's database. The error of a partition stays until the partition is planned."""
    ArchivePartition.objects.bulk_create(
        [
            ArchivePartition(
                archive=archive, partition=number, end_offset=end_offset, next_offset=progress.next_offset,
                loaded_rows=progress.rows, skipped_records=progress.skipped, missed_offsets=progress.missed,
            )
            for number, (_, end_offset) in ends.items()
            if (progress := progress_by_partition.get(number)) is not None
        ],
        update_conflicts=True,
        unique_fields=["archive", "partition"],
        update_fields=["end_offset", "next_offset", "loaded_rows", "skipped_records", "missed_offsets", "updated_at"],
    )  # fmt: skip


@transaction.atomic
def _store_results(archive: Archive, results: Sequence[LoadResult], now: datetime) -> None:
    for result in results:
        row = ArchivePartition.objects.filter(archive=archive, partition=result.range.partition, is_of_deleted=False)
        if result.error or result.reached > result.range.start:
            row.update(read_at=now)
        row.update(
            next_offset=result.reached, error=result.error[:ERROR_CHARS_MAX],
            loaded_rows=F("loaded_rows") + result.records, skipped_records=F("skipped_records") + result.skipped,
            missed_offsets=F("missed_offsets") + result.missed,
        )  # fmt: skip
