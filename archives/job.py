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
from archives.plan import Gap, Range, in_turn, is_recreated, next_range, pace_of
from archives.reading import ArchivedTopic, Source, Stopped, TaskResult, TopicUnreadable
from instances.models import DeletedTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger(__name__)

# Points of a run at which a fault test may stop the process, in order.
POINTS = ("planned", "written", "counted", "committed")
RECREATED = (
    "The topic was deleted and made again: what was not archived of the old one is gone. Set on_gap to skip, and the"
    " new one is archived from its beginning, in files of its own."
)

_DELETED = "The topic was deleted and can be restored. When it is restored, the archive goes on where it stopped."


class ArchiveOffsetsMoved(Exception):
    """The stored offsets are not those the run was planned from: another run advanced them. Nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRunReport:
    """Result of one run. `caught_up` is true if everything that existed at its start is archived without errors."""

    records: int
    files: int
    caught_up: bool
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
        rows = _swept_rows(archive, store)
    except (Stopped, OSError) as stop:
        return note_failure(archive, now, reason_of(archive, stop))
    available = topic.ends
    if follow_topic(archive, rows, topic):
        rows = rows_of(archive)
    if any(row.is_of_deleted for row in rows.values()):
        note_ends(archive, topic)
        return note_failure(archive, now, RECREATED)
    source = replace(source, generation=archive.topic_generation)
    ranges, troubles = ranges_of(archive, rows, available)
    _store_plan(archive, rows, available, ranges, troubles)
    at_point("planned")
    results: Sequence[TaskResult] = ()
    if ranges:
        context = make_session().sparkContext
        ends_s = time.time() + limits.TASKS_S
        pace = pace_of(archive.bytes_per_s_max, len(ranges), context.defaultParallelism, ends_s)
        task = partial(reading.archive_range, source, store, pace)
        results = context.parallelize(ranges, len(ranges)).map(task).collect()
        at_point("written")
        try:
            if reading.topic_id_of(source) != topic.id:
                raise Stopped("The topic was made anew while it was read. It is tried again.")
        except Stopped as stop:
            return note_failure(archive, now, reason_of(archive, stop))
        _commit(archive, results, now, at_point)
        at_point("committed")
    errors = [*troubles.values(), *(result.error for result in results if result.error)]
    report = ArchiveRunReport(
        records=sum(file.rows for result in results for file in result.files),
        files=sum(len(result.files) for result in results),
        caught_up=not errors and all(result.reached == result.range.stop for result in results),
        error=errors[0] if errors else "",
    )
    return note(archive, now, report, sum(result.bytes_read for result in results))


def reason_of(archive: Archive, stop: Exception) -> str:
    """Returns a message for the tenant that states why a run ended.

    A deleted topic that can be restored has a message of its own; to clients it is merely unknown.
    """
    if isinstance(stop, TopicUnreadable):
        deleted = DeletedTopic.objects.filter(instance=archive.instance_id, topic=archive.topic, is_restored=False)
        if deleted.exists():
            return _DELETED
    return stop.detail if isinstance(stop, Stopped) else str(stop)


def _swept_rows(archive: Archive, store: Store) -> dict[int, ArchivePartition]:
    """Returns the progress of each partition, after deleting files of a killed run that no row names.

    Raises:
        OSError: the destination does not answer.
    """
    rows = rows_of(archive)
    if dirty := {number: row.next_offset for number, row in rows.items() if row.planned_end is not None}:
        with open_destination(store) as destination:
            sweeping.delete_strays(archive, destination, dirty)
    return rows


def rows_of(archive: Archive) -> dict[int, ArchivePartition]:
    """Returns the progress rows of the archive by partition."""
    return {row.partition: row for row in ArchivePartition.objects.filter(archive=archive)}


@transaction.atomic
def follow_topic(archive: Archive, rows: Mapping[int, ArchivePartition], topic: ArchivedTopic) -> bool:
    """Stores the id of the topic that currently has the name. Returns True if rows changed.

    Progress belongs to a topic id, because offsets of a recreated topic restart. Known offsets of the deleted topic
    that were not archived count as missed. An archive that skips gaps continues with the new topic from its beginning;
    any other archive waits until it is set to skip them.
    """
    stored = {number: row.next_offset for number, row in rows.items()}
    recreated = bool(rows) and is_recreated(archive.topic_id, topic.id, stored, topic.ends)
    if archive.topic_id != topic.id:
        archive.topic_id, archive.topic_generation = topic.id, archive.topic_generation + recreated
        Archive.objects.filter(pk=archive.pk).update(
            topic_id=archive.topic_id, topic_generation=archive.topic_generation
        )
    if recreated:
        log.warning("archive_topic_anew", archive_id=archive.pk, generation=archive.topic_generation)
        behind = Greatest(F("end_offset") - F("next_offset"), 0)
        missed = Case(When(is_of_deleted=True, then=0), default=behind)
        # Files of a killed run are already swept.
        ArchivePartition.objects.filter(archive=archive).update(
            missed_offsets=F("missed_offsets") + missed, is_of_deleted=True, end_offset=0, planned_end=None
        )
    begins_again = archive.on_gap == OnTrouble.SKIP and (recreated or any(row.is_of_deleted for row in rows.values()))
    if begins_again:
        for number in rows:
            low, stop = topic.ends.get(number, (0, 0))
            ArchivePartition.objects.filter(archive=archive, partition=number).update(
                is_of_deleted=False, next_offset=low, end_offset=stop, error="", read_at=None
            )
    return recreated or begins_again


def note_ends(archive: Archive, topic: ArchivedTopic) -> None:
    """Stores the ends of a recreated topic, of which nothing is archived yet."""
    for number, (_, stop) in topic.ends.items():
        ArchivePartition.objects.update_or_create(
            archive=archive, partition=number, defaults={"end_offset": stop, "is_of_deleted": True, "error": RECREATED},
            create_defaults={"end_offset": stop, "is_of_deleted": True, "error": RECREATED, "next_offset": 0},
        )  # fmt: skip


def ranges_of(
    archive: Archive, rows: Mapping[int, ArchivePartition], available: Mapping[int, tuple[int, int]]
) -> tuple[list[Range], dict[int, str]]:
    """Returns the ranges to read, longest waiting first, and errors of partitions that are not read."""
    ranges: list[Range] = []
    troubles: dict[int, str] = {}
    for number, (low, stop) in available.items():
        stored = rows[number].next_offset if number in rows else None
        try:
            range_ = next_range(number, stored, low, stop, skips_gaps=archive.on_gap == OnTrouble.SKIP)
        except Gap as gap:
            troubles[number] = str(gap)
            continue
        if range_ is not None:
            ranges.append(range_)
    return in_turn(ranges, {number: row.read_at for number, row in rows.items()}), troubles


def _store_plan(
    archive: Archive,
    rows: Mapping[int, ArchivePartition],
    available: Mapping[int, tuple[int, int]],
    ranges: Sequence[Range],
    troubles: Mapping[int, str],
) -> None:
    """Stores the plan before any file is written, because the sweep after a killed run needs it."""
    ends = {range_.partition: range_.stop for range_ in ranges}
    ArchivePartition.objects.bulk_create(
        [
            ArchivePartition(
                archive=archive, partition=number, end_offset=stop, planned_end=ends.get(number),
                error=troubles.get(number, ""), next_offset=rows[number].next_offset if number in rows else low,
            )
            for number, (low, stop) in available.items()
        ],
        update_conflicts=True,
        unique_fields=["archive", "partition"],
        update_fields=["end_offset", "planned_end", "error", "updated_at"],
    )  # fmt: skip


@transaction.atomic
def _commit(archive: Archive, results: Sequence[TaskResult], now: datetime, at_point: Callable[[str], None]) -> None:
    """Writes the rows of the files and the next offsets in one transaction; from here on the files are valid."""
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
        moved = row.filter(next_offset=result.range.start - result.range.missed, is_of_deleted=False).update(
            next_offset=result.reached, planned_end=None, error="",
            skipped_records=F("skipped_records") + result.skipped,
            missed_offsets=F("missed_offsets") + result.range.missed,
            unfit_values=F("unfit_values") + sum(file.unfit for file in result.files),
        )  # fmt: skip
        if not moved:
            raise ArchiveOffsetsMoved(f"{archive.pk}-{result.range.partition} is not at {result.range.start} any more")
        ArchiveFile.objects.bulk_create([
            ArchiveFile(
                archive=locked, path=file.path, partition=file.partition, first_offset=file.first_offset,
                last_offset=file.last_offset, rows=file.rows, bytes=file.bytes, content_sum=file.content_sum,
            )
            for file in result.files
        ])  # fmt: skip
    at_point("counted")


def note_failure(archive: Archive, now: datetime, error: str) -> ArchiveRunReport:
    """Records a run that failed before reading."""
    return note(archive, now, ArchiveRunReport(records=0, files=0, caught_up=False, error=error))


def note(archive: Archive, now: datetime, report: ArchiveRunReport, bytes_read: int = 0) -> ArchiveRunReport:
    """Stores the result and schedules the next run.

    That run is due immediately if there is more to read, and `limits.RETRY_MINUTES` after an error; but not before the
    configured rate allows it, since one large record may exceed the rate. A time that was set during the run stays,
    because a user requested a run, or changed or deleted the archive.
    """
    minutes = archive.interval_minutes if report.caught_up else (limits.RETRY_MINUTES if report.error else 0)
    paced_s = bytes_read / archive.bytes_per_s_max if archive.bytes_per_s_max else 0.0
    due_at = now + max(timedelta(minutes=minutes), timedelta(seconds=paced_s))
    Archive.objects.filter(pk=archive.pk).update(
        last_run_at=now, error=report.error,
        next_run_at=Case(When(next_run_at=archive.next_run_at, then=due_at), default=F("next_run_at")),
    )  # fmt: skip
    if report.error:
        log.warning("archive_failed", archive_id=archive.pk, reason=report.error[:ERROR_CHARS_MAX])
    return report
