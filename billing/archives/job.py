"""One run of one archive: plan, read and write by Spark, commit. Writes of the tables of progress are here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import structlog
from django.db import transaction
from django.db.models import F

from billing.archives import limits, reading, sweeping
from billing.archives.address import Store, open_place
from billing.archives.plan import Gap, Range, next_range
from billing.archives.reading import Source, Stopped, TaskResult
from billing.models import Archive, ArchiveFile, ArchivePartition, ArchiveState, OnTrouble
from billing.models.archives import ERROR_CHARS_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger(__name__)

# The points of a run at which a fault test may stop the process, in order.
POINTS = ("planned", "written", "counted", "committed")


class OffsetsMoved(Exception):
    """The stored offsets are not those the run was planned from: somebody else advanced them. Nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What one run did. `caught_up`: all that was there when it began is archived, and nothing is the matter."""

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
) -> RunReport:
    """Everything between the stored offsets and the last stable offsets of now, within the limits of a task.

    `make_session` is called only where there is something to read. `at_point` is told each of `POINTS`.

    Raises:
        OffsetsMoved: see there.
    """
    reached = at_point or (lambda _point: None)
    try:
        ranges, troubles = _plan(archive, reading.available_offsets(source), store)
    except (Stopped, OSError) as stop:
        return note_failure(archive, now, str(stop))
    reached("planned")
    results: Sequence[TaskResult] = ()
    if ranges:
        task = partial(reading.archive_range, source, store, skips_bad=archive.on_bad_record == OnTrouble.SKIP)
        context = make_session().sparkContext
        results = context.parallelize(ranges, len(ranges)).map(task).collect()
        reached("written")
        _commit(archive, results, reached)
        reached("committed")
    troubles += [each.error for each in results if each.error]
    report = RunReport(
        records=sum(file.rows for each in results for file in each.files),
        files=sum(len(each.files) for each in results),
        caught_up=not troubles and all(each.reached == each.range.stop for each in results),
        error=troubles[0] if troubles else "",
    )
    return _note(archive, now, report)


def _plan(archive: Archive, available: Mapping[int, tuple[int, int]], store: Store) -> tuple[list[Range], list[str]]:
    """What to read, and what is the matter with partitions that are not read. It is written down before a file is: of a
    run that was killed, files that no row names are deleted first.
    """
    rows = {row.partition: row for row in ArchivePartition.objects.filter(archive=archive)}
    if dirty := {number: row.next_offset for number, row in rows.items() if row.planned_end is not None}:
        with open_place(store) as place:
            sweeping.delete_strays(archive, place, dirty)
    ranges: list[Range] = []
    troubles: list[str] = []
    for number, (low, stop) in available.items():
        row = rows.get(number)
        error, wanted = "", None
        try:
            wanted = next_range(
                number, row.next_offset if row else None, low, stop, skips_gaps=archive.on_gap == OnTrouble.SKIP
            )  # fmt: skip
        except Gap as gap:
            error = str(gap)
            troubles.append(error)
        if wanted is not None:
            ranges.append(wanted)
        noted = {"end_offset": stop, "planned_end": wanted.stop if wanted else None, "error": error}
        ArchivePartition.objects.update_or_create(
            archive=archive, partition=number, defaults=noted, create_defaults={**noted, "next_offset": low}
        )
    return ranges, troubles


@transaction.atomic
def _commit(archive: Archive, results: Sequence[TaskResult], reached: Callable[[str], None]) -> None:
    """The rows of the files and the next offsets at once: from here on the files count."""
    locked = Archive.objects.select_for_update().get(pk=archive.pk)
    for each in results:
        row = ArchivePartition.objects.filter(archive=locked, partition=each.range.partition)
        if each.error:
            # `planned_end` stays: what was written is swept before the next try.
            row.update(error=each.error[:ERROR_CHARS_MAX])
            continue
        moved = row.filter(next_offset=each.range.start - each.range.missed).update(
            next_offset=each.reached, planned_end=None, error="",
            skipped_records=F("skipped_records") + each.skipped, missed_offsets=F("missed_offsets") + each.range.missed,
        )  # fmt: skip
        if not moved:
            raise OffsetsMoved(f"{archive.pk}-{each.range.partition} is not at {each.range.start} any more")
        ArchiveFile.objects.bulk_create([
            ArchiveFile(
                archive=locked, path=file.path, partition=file.partition, first_offset=file.first_offset,
                last_offset=file.last_offset, rows=file.rows, bytes=file.bytes, content_sum=file.content_sum,
            )
            for file in each.files
        ])  # fmt: skip
    reached("counted")


def note_failure(archive: Archive, now: datetime, error: str) -> RunReport:
    """Nothing was read."""
    return _note(archive, now, RunReport(records=0, files=0, caught_up=False, error=error))


def _note(archive: Archive, now: datetime, report: RunReport) -> RunReport:
    """When it is due again: at once where there is more to read, soon where something is the matter."""
    minutes = archive.interval_minutes if report.caught_up else (limits.RETRY_MINUTES if report.error else 0)
    Archive.objects.filter(pk=archive.pk).exclude(state=ArchiveState.DELETING).update(
        last_run_at=now, next_run_at=now + timedelta(minutes=minutes), error=report.error[:ERROR_CHARS_MAX]
    )
    if report.error:
        log.warning("archive_failed", archive_id=archive.pk, reason=report.error[:ERROR_CHARS_MAX])
    return report
