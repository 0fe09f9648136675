"""One run of an archive to files: plans ranges, reads and writes them by Spark, and commits files and progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import structlog
from django.db import transaction
from django.db.models import Case, F, When
from django.db.models.functions import Greatest

from archives import limits, reading, sweeping
from archives.address import Store, open_destination
from archives.models import ERROR_CHARS_MAX, Archive, ArchiveFile, ArchivePartition, OnTrouble
from archives.plan import Gap, Range, is_recreated, next_range, order_by_waiting_time, task_pace
from archives.reading import ArchivedTopic, Source, Stopped, TaskResult, TopicUnreadable
from instances.models import DeletedTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger(__name__)

# Points of a run at which a fault test may stop the process, in order.
POINTS = ("planned", "written", "counted", "committed")
RECREATED_MESSAGE = (
    "The topic was deleted and made again: what was not archived of the old one is gone. Set on_gap to skip, and the"
    " new one is archived from its beginning, in files of its own."
)

_DELETED_MESSAGE = (
    "The topic was deleted and can be restored. When it is restored, the archive goes on where it stopped."
)


class ArchiveOffsetsMoved(Exception):
    """Another run advanced the stored offsets after this run was planned. Nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRunReport:
    """Result of one run. With `is_caught_up`, all records that existed at its start are archived without errors."""

    records: int
    files: int
    is_caught_up: bool
    error: str


def run(
    make_session: Callable[[], SparkSession],
    archive: Archive,
    source: Source,
    store: Store,
    now: datetime,
    *,
    at_point: Callable[[str], None] | None = None,
) -> ArchiveRunReport:
    """Archives everything between the stored offsets and the current last stable offsets, within the limits of a task.

    `make_session` is called only if there is something to read. `at_point` is called with each of `POINTS`.

    Raises:
        ArchiveOffsetsMoved: another run advanced the offsets.
    """
    at_point = at_point or (lambda _point: None)
    try:
        topic = reading.topic_state(source)
        rows = _sweep_and_load_rows(archive, store)
    except (Stopped, OSError) as error:
        return store_failure(archive, now, failure_message(archive, error))
    ends_by_partition = topic.ends
    if follow_topic(archive, rows, topic):
        rows = rows_of(archive)
    if any(row.is_of_deleted for row in rows.values()):
        store_ends(archive, topic)
        return store_failure(archive, now, RECREATED_MESSAGE)
    source = replace(source, generation=archive.topic_generation)
    ranges, errors_by_partition = plan_ranges(archive, rows, ends_by_partition)
    _store_plan(archive, rows, ends_by_partition, ranges, errors_by_partition)
    at_point("planned")
    results: Sequence[TaskResult] = ()
    if ranges:
        context = make_session().sparkContext
        deadline_s = time.time() + limits.TASKS_S
        pace = task_pace(archive.bytes_per_s_max, len(ranges), context.defaultParallelism, deadline_s)
        task = partial(reading.archive_range, source, store, pace)
        results = context.parallelize(ranges, len(ranges)).map(task).collect()
        at_point("written")
        try:
            if reading.topic_id_of(source) != topic.id:
                raise Stopped("The topic was made anew while it was read. It is tried again.")
        except Stopped as error:
            return store_failure(archive, now, failure_message(archive, error))
        _commit(archive, results, now, at_point)
        at_point("committed")
    errors = [*errors_by_partition.values(), *(result.error for result in results if result.error)]
    report = ArchiveRunReport(
        records=sum(file.rows for result in results for file in result.files),
        files=sum(len(result.files) for result in results),
        is_caught_up=not errors and all(result.reached == result.range.stop for result in results),
        error=errors[0] if errors else "",
    )
    return store_report(archive, now, report, sum(result.bytes_read for result in results))


def failure_message(archive: Archive, error: Exception) -> str:
    """Returns a message for the tenant that states why a run ended.

    A deleted topic that can be restored has a message of its own; to clients it is merely unknown.
    """
    if isinstance(error, TopicUnreadable):
        deleted = DeletedTopic.objects.filter(instance=archive.instance_id, topic=archive.topic, is_restored=False)
        if deleted.exists():
            return _DELETED_MESSAGE
    return error.detail if isinstance(error, Stopped) else str(error)


def _sweep_and_load_rows(archive: Archive, store: Store) -> dict[int, ArchivePartition]:
    """Deletes the files that a killed run left without a row, and returns the progress rows by partition.

    Raises:
        OSError: the destination does not answer.
    """
    rows = rows_of(archive)
    if dirty_offsets := {number: row.next_offset for number, row in rows.items() if row.planned_end is not None}:
        with open_destination(store) as destination:
            sweeping.delete_strays(archive, destination, dirty_offsets)
    return rows


def rows_of(archive: Archive) -> dict[int, ArchivePartition]:
    """Returns the progress rows of the archive by partition."""
    return {row.partition: row for row in ArchivePartition.objects.filter(archive=archive)}


@transaction.atomic
def follow_topic(archive: Archive, rows: Mapping[int, ArchivePartition], topic: ArchivedTopic) -> bool:
    """Stores the id of the topic that currently has the archived name. Returns True if progress rows changed.

    Progress belongs to a topic id, because offsets of a recreated topic restart. Known offsets of the deleted topic
    that were not archived count as missed. An archive that skips gaps continues with the new topic from its beginning;
    any other archive waits until it is set to skip them.
    """
    next_offsets = {number: row.next_offset for number, row in rows.items()}
    was_recreated = bool(rows) and is_recreated(archive.topic_id, topic.id, next_offsets, topic.ends)
    if archive.topic_id != topic.id:
        archive.topic_id, archive.topic_generation = topic.id, archive.topic_generation + was_recreated
        Archive.objects.filter(pk=archive.pk).update(
            topic_id=archive.topic_id, topic_generation=archive.topic_generation
        )
    if was_recreated:
        log.warning("archive_topic_anew", archive_id=archive.pk, generation=archive.topic_generation)
        unread_offsets = Greatest(F("end_offset") - F("next_offset"), 0)
        missed = Case(When(is_of_deleted=True, then=0), default=unread_offsets)
        # Files of a killed run are already swept.
        ArchivePartition.objects.filter(archive=archive).update(
            missed_offsets=F("missed_offsets") + missed, is_of_deleted=True, end_offset=0, planned_end=None
        )
    begins_again = archive.on_gap == OnTrouble.SKIP and (
        was_recreated or any(row.is_of_deleted for row in rows.values())
    )
    if begins_again:
        for number in rows:
            start_offset, end_offset = topic.ends.get(number, (0, 0))
            ArchivePartition.objects.filter(archive=archive, partition=number).update(
                is_of_deleted=False, next_offset=start_offset, end_offset=end_offset, error="", read_at=None
            )
    return was_recreated or begins_again


def store_ends(archive: Archive, topic: ArchivedTopic) -> None:
    """Stores the end offsets of a recreated topic and the error that the archive must be set to skip gaps."""
    for number, (_, end_offset) in topic.ends.items():
        values = {"end_offset": end_offset, "is_of_deleted": True, "error": RECREATED_MESSAGE}
        ArchivePartition.objects.update_or_create(
            archive=archive, partition=number, defaults=values, create_defaults={**values, "next_offset": 0}
        )


def plan_ranges(
    archive: Archive, rows: Mapping[int, ArchivePartition], ends_by_partition: Mapping[int, tuple[int, int]]
) -> tuple[list[Range], dict[int, str]]:
    """Returns the ranges to read, longest waiting first, and by partition the errors of those that are not read.

    `ends_by_partition` has the log start offset and the last stable offset of each partition.
    """
    ranges: list[Range] = []
    errors_by_partition: dict[int, str] = {}
    skips_gaps = archive.on_gap == OnTrouble.SKIP
    for number, (start_offset, end_offset) in ends_by_partition.items():
        next_offset = rows[number].next_offset if number in rows else None
        try:
            range_ = next_range(number, next_offset, start_offset, end_offset, skips_gaps=skips_gaps)
        except Gap as gap:
            errors_by_partition[number] = str(gap)
            continue
        if range_ is not None:
            ranges.append(range_)
    return order_by_waiting_time(ranges, {number: row.read_at for number, row in rows.items()}), errors_by_partition


def _store_plan(
    archive: Archive,
    rows: Mapping[int, ArchivePartition],
    ends_by_partition: Mapping[int, tuple[int, int]],
    ranges: Sequence[Range],
    errors_by_partition: Mapping[int, str],
) -> None:
    """Stores the plan before any file is written, because the sweep after a killed run needs it."""
    ends = {range_.partition: range_.stop for range_ in ranges}
    ArchivePartition.objects.bulk_create(
        [
            ArchivePartition(
                archive=archive, partition=number, end_offset=end_offset, planned_end=ends.get(number),
                error=errors_by_partition.get(number, ""),
                next_offset=rows[number].next_offset if number in rows else start_offset,
            )
            for number, (start_offset, end_offset) in ends_by_partition.items()
        ],
        update_conflicts=True,
        unique_fields=["archive", "partition"],
        update_fields=["end_offset", "planned_end", "error", "updated_at"],
    )  # fmt: skip


@transaction.atomic
def _commit(archive: Archive, results: Sequence[TaskResult], now: datetime, at_point: Callable[[str], None]) -> None:
    """Writes the rows of the files and the next offsets in one transaction, which makes the files part of the archive.

    Raises:
        ArchiveOffsetsMoved: another run advanced the offsets.
    """
    locked = Archive.objects.select_for_update().get(pk=archive.pk)
    for result in results:
        row = ArchivePartition.objects.filter(archive=locked, partition=result.range.partition)
        if result.error:
            # `planned_end` stays, so that written files are swept before the next attempt.
            row.update(error=result.error[:ERROR_CHARS_MAX], read_at=now)
            continue
        if result.reached > result.range.start:
            row.update(read_at=now)
        # Does not match if the topic was recreated meanwhile.
        updated_rows = row.filter(next_offset=result.range.start - result.range.missed, is_of_deleted=False).update(
            next_offset=result.reached, planned_end=None, error="",
            skipped_records=F("skipped_records") + result.skipped,
            missed_offsets=F("missed_offsets") + result.range.missed,
            unfit_values=F("unfit_values") + sum(file.unfit for file in result.files),
        )  # fmt: skip
        if not updated_rows:
            raise ArchiveOffsetsMoved(f"{archive.pk}-{result.range.partition} is not at {result.range.start} any more")
        ArchiveFile.objects.bulk_create([
            ArchiveFile(
                archive=locked, path=file.path, partition=file.partition, first_offset=file.first_offset,
                last_offset=file.last_offset, rows=file.rows, bytes=file.bytes, content_sum=file.content_sum,
            )
            for file in result.files
        ])  # fmt: skip
    at_point("counted")


def store_failure(archive: Archive, now: datetime, error: str) -> ArchiveRunReport:
    """Stores the error of a run that failed before reading, and schedules the next run."""
    return store_report(archive, now, ArchiveRunReport(records=0, files=0, is_caught_up=False, error=error))


def store_report(archive: Archive, now: datetime, report: ArchiveRunReport, bytes_read: int = 0) -> ArchiveRunReport:
    """Stores the result of a run, schedules the next run, and returns the result.

    The next run is due immediately if there is more to read, and `limits.RETRY_MINUTES` after an error. If the run read
    more than the configured rate allows, the next run is delayed accordingly. A `next_run_at` that was changed during
    the run stays: a user then requested a run, or changed or deleted the archive.
    """
    minutes = archive.interval_minutes if report.is_caught_up else (limits.RETRY_MINUTES if report.error else 0)
    rate_delay_s = bytes_read / archive.bytes_per_s_max if archive.bytes_per_s_max else 0.0
    due_at = now + max(timedelta(minutes=minutes), timedelta(seconds=rate_delay_s))
    Archive.objects.filter(pk=archive.pk).update(
        last_run_at=now, error=report.error,
        next_run_at=Case(When(next_run_at=archive.next_run_at, then=due_at), default=F("next_run_at")),
    )  # fmt: skip
    if report.error:
        log.warning("archive_failed", archive_id=archive.pk, reason=report.error[:ERROR_CHARS_MAX])
    return report
