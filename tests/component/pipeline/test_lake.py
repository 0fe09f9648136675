"""Files of the lake, on disk and in S3: written under derived names, merged, replayed, and reported if damaged."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.test import override_settings
from django.utils import timezone
from moto.server import ThreadedMotoServer
from pyarrow import parquet

from billing import dsn, tasks
from billing.lake import files, merge_schedule, merging, outcomes, reconciliation, replay
from billing.lake.address import Lake, open_lake
from billing.models import LakeFile, UsageHour
from billing.pipeline import sink

pytestmark = pytest.mark.django_db(transaction=True)

CLUSTER, INSTANCE = "cl-one", "ins-aaaaaaaa"
DAY = date(2026, 3, 14)
NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
INT64 = ("broker_epoch", "sequence", "at_ms", "bytes", "requests", "added_bytes", "added_requests")


@pytest.fixture(autouse=True)
def _fresh_cache() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture()
def place(tmp_path: Path) -> Lake:
    return open_lake((tmp_path / "lake").as_uri())


@pytest.fixture()
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """An S3 server with a bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    query = f"?scheme=http&region=us-east-1&endpoint_override={host}:{port}"
    place = open_lake(f"s3://usage/lake{query}&allow_bucket_creation=true")
    place.files.create_dir("usage")
    yield open_lake(f"s3://usage/lake{query}")
    server.stop()


def reports(*rows: tuple[int, datetime, int, int], instance_id: str = INSTANCE) -> pa.Table:
    """Returns (sequence, instant, cumulative bytes, bytes added) of one counter."""
    columns: dict[str, list[Any]] = {name: [] for name in files.COLUMNS}
    for sequence, at, count, added in rows:
        row = {
            "broker_id": 1, "broker_epoch": 5, "instance_id": instance_id, "topic": "t", "user": "u",
            "client_id": "c", "direction": "produce", "sequence": sequence, "at_ms": int(at.timestamp() * 1000),
            "bytes": count, "requests": 1, "added_bytes": added, "added_requests": 1,
        }  # fmt: skip
        for name in files.COLUMNS:
            columns[name].append(row[name])
    return pa.table(
        {name: pa.array(values, type=pa.int64() if name in INT64 else None) for name, values in columns.items()}
    )


def keep(place: Lake, table: pa.Table, start: int, stop: int) -> list[files.WrittenLakeFile]:
    """Writes a table into the lake in the way of a run of the pipeline."""
    written = files.write(place, CLUSTER, {0: (start, stop)}, table)
    with sink.exclusive(dsn.conninfo(), CLUSTER) as connection, connection.transaction(), connection.cursor() as cursor:
        sink.add_lake_files(cursor, written)
    return written


def total(place: Lake) -> int:
    return sum(
        each.bytes for each in replay.hours(place, [INSTANCE], NOON - timedelta(days=9), NOON + timedelta(days=9))
    )


@pytest.mark.parametrize("where", ["place", "s3"])
def test_kept_reports_are_replayed_from_disk_and_from_s3(where: str, request: pytest.FixtureRequest) -> None:
    place: Lake = request.getfixturevalue(where)
    keep(place, reports((1, NOON, 100, 100), (2, NOON + timedelta(hours=1), 250, 150)), 0, 2)
    keep(place, reports((3, NOON + timedelta(hours=1, minutes=5), 300, 50)), 2, 3)

    found = list(replay.hours(place, [INSTANCE], NOON - timedelta(days=1), NOON + timedelta(days=1)))

    assert sorted((each.hour.hour, each.bytes) for each in found) == [(11, 100), (12, 150), (13, 50)]
    assert merge_schedule.merge_days(place, DAY + timedelta(days=1)) == 1
    assert total(place) == 300 and LakeFile.objects.count() == 1


def test_a_second_try_of_the_same_offsets_writes_the_same_files(place: Lake) -> None:
    once, again = (files.write(place, CLUSTER, {0: (0, 2), 1: (7, 9)}, reports((1, NOON, 9, 9))) for _ in range(2))
    assert once == again
    assert len([found for found in Path(place.folder).rglob("*") if found.is_file()]) == 1


def test_a_report_on_the_stroke_of_midnight_belongs_to_the_day_that_ended(place: Lake) -> None:
    midnight = datetime(2026, 3, 15, tzinfo=UTC)
    written = files.write(
        place, CLUSTER, {0: (0, 2)}, reports((1, midnight, 5, 5), (2, midnight + timedelta(seconds=1), 6, 1))
    )
    assert [each.day for each in written] == [DAY, DAY + timedelta(days=1)]


def test_a_file_that_no_row_names_does_not_count(place: Lake) -> None:
    files.write(place, CLUSTER, {0: (0, 2)}, reports((1, NOON, 100, 100)))
    assert total(place) == 0


@pytest.mark.parametrize("harm", ["gone", "cut", "fewer rows", "other bytes"])
def test_a_file_that_differs_from_the_one_written_is_reported_and_never_summed(place: Lake, harm: str) -> None:
    (written,) = keep(place, reports((1, NOON, 100, 100), (2, NOON, 150, 50)), 0, 2)
    file = Path(place.folder) / written.path
    if harm == "gone":
        file.unlink()
    elif harm == "cut":
        file.write_bytes(file.read_bytes()[:-9])
    elif harm == "fewer rows":
        parquet.write_table(reports((1, NOON, 100, 100)), file)
    else:
        parquet.write_table(reports((1, NOON, 100, 100), (2, NOON, 150, 51)), file)
    with pytest.raises(replay.LakeBroken, match=written.path):
        total(place)
    with pytest.raises(replay.LakeBroken):
        keep(place, reports((3, NOON, 160, 10)), 2, 3)
        merge_schedule.merge_days(place, DAY + timedelta(days=1))
    assert LakeFile.objects.count() == 2


def test_a_counter_that_grew_by_other_than_was_added_is_reported(place: Lake) -> None:
    keep(place, reports((1, NOON, 100, 100), (2, NOON, 150, 40)), 0, 2)
    with pytest.raises(replay.LakeBroken, match="grew by 50 bytes and 40 were added"):
        total(place)


def test_a_day_is_merged_when_it_is_over_or_has_very_many_files(place: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        keep(place, reports((number + 1, NOON, 10 * (number + 1), 10)), number, number + 1)
    assert merge_schedule.merge_days(place, DAY) == 0
    monkeypatch.setattr(merge_schedule, "FILES_PER_DAY_MAX", 3)
    assert merge_schedule.merge_days(place, DAY) == 3
    assert merge_schedule.merge_days(place, DAY + timedelta(days=1)) == 0
    assert total(place) == 40
    assert len([found for found in Path(place.folder).rglob("*") if found.is_file()]) == 1


def test_a_damaged_file_stops_no_merge_and_no_reconciliation_of_other_days(
    place: Lake, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.LAKE_URL = Path(place.folder).as_uri()
    monkeypatch.setattr(timezone, "now", lambda: NOON + timedelta(days=3))
    for day in range(3):
        written = []
        for number in range(2 * day, 2 * day + 2):
            at = NOON + timedelta(days=day)
            written += keep(place, reports((number + 1, at, 10 * (number + 1), 10)), number, number + 1)
        if day == 0:
            (Path(place.folder) / written[0].path).unlink()
    log = Mock()
    monkeypatch.setattr(tasks, "log", log)

    tasks.look_after_lake()

    counts = {file.day: LakeFile.objects.filter(day=file.day).count() for file in LakeFile.objects.all()}
    assert counts == {DAY: 2, DAY + timedelta(days=1): 1, DAY + timedelta(days=2): 1}
    assert {call.args[0] for call in log.error.call_args_list} == {"lake_broken"}
    assert set(outcomes.of_days([DAY + timedelta(days=1), DAY + timedelta(days=2)]).values()) == {1}, "nothing billed"


def test_merged_files_that_cannot_be_deleted_are_left_to_the_sweep(
    place: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(place, reports((1, NOON, 100, 100)), 0, 1)
    keep(place, reports((2, NOON, 150, 50)), 1, 2)
    monkeypatch.setattr(files, "delete", Mock(side_effect=OSError("the store does not answer")))
    assert merge_schedule.merge_days(place, DAY + timedelta(days=1)) == 1
    assert total(place) == 150


def test_days_are_reconciled_up_to_their_maximum_age(place: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    today = DAY + timedelta(days=10)
    keep(place, reports((1, NOON, 100, 100)), 0, 1)
    monkeypatch.setattr(reconciliation, "RECONCILED_AGE_DAYS", 3)
    days = []
    while (day := reconciliation.day_without_outcome(today)) is not None:
        outcomes.store(day, 0)
        days.append(day)
    assert days == [today - timedelta(days=2), today - timedelta(days=3)], "and yesterday"


def test_files_of_a_version_that_had_other_columns_without_nulls_are_merged_with_those_of_today(
    place: Lake,
) -> None:
    table = reports((1, NOON, 100, 100))
    keep(place, table.cast(pa.schema([field.with_nullable(False) for field in table.schema])), 0, 1)
    keep(place, reports((2, NOON, 150, 50)), 1, 2)
    assert merge_schedule.merge_days(place, DAY + timedelta(days=1)) == 1
    assert total(place) == 150


def test_files_that_are_merged_while_they_are_read_are_read_again(place: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        keep(place, reports((number + 1, NOON, 10 * (number + 1), 10)), number, number + 1)
    plain, merged = replay.read_verified, []

    def merge_first(where: Lake, file: LakeFile) -> pa.Table:
        if not merged:
            merged.append(merge_schedule.merge_days(place, DAY + timedelta(days=1)))
        return plain(where, file)

    monkeypatch.setattr(replay, "read_verified", merge_first)

    assert total(place) == 30 and merged == [2]


def test_a_file_that_was_written_while_a_day_was_merged_is_read_before_it_and_all_count(place: Lake) -> None:
    """The merged file comes after it, with earlier reports."""
    for number in range(2):
        keep(place, reports((number + 1, NOON, 10 * (number + 1), 10)), number, number + 1)
    old = list(LakeFile.objects.order_by("id"))
    merged = merging.merge(place, CLUSTER, DAY, old)
    keep(place, reports((3, NOON, 30, 10)), 2, 3)
    LakeFile.objects.filter(pk__in=[each.pk for each in old]).delete()
    LakeFile.objects.create(
        path=merged.path, cluster_id=CLUSTER, day=DAY, rows=2, added_bytes=20, schema_version=files.SCHEMA_VERSION
    )

    assert total(place) == 30


def test_tables_that_differ_from_the_lake_are_named_by_the_hour(place: Lake) -> None:
    keep(place, reports((1, NOON, 100, 100)), 0, 1)
    UsageHour.objects.create(
        instance_id=INSTANCE, hour=NOON - timedelta(hours=1), direction="produce", bytes=100, requests=1
    )
    assert reconciliation.reconcile(place, DAY) == []

    UsageHour.objects.update(bytes=99)

    (found,) = reconciliation.reconcile(place, DAY)
    assert (found.instance_id, found.hour.hour, found.in_tables, found.in_lake) == (INSTANCE, 11, 99, 100)


def test_the_command_merges_and_reconciles(place: Lake) -> None:
    keep(place, reports((1, NOON, 100, 100)), 0, 1)
    keep(place, reports((2, NOON, 110, 10)), 1, 2)
    out = StringIO()
    with override_settings(LAKE_URL=Path(place.folder).as_uri()):
        call_command("lake", "merge", stdout=out)
        with pytest.raises(CommandError, match="1 hours differ"):
            call_command("lake", "reconcile", "--day", "2026-03-14", stdout=out)
        with pytest.raises(CommandError, match="written 2026-11-20"):
            call_command("lake", "reconcile", "--day", "yesterday", stdout=out)
        call_command("lake", "reconcile", "--day", "2026-03-10", stdout=out)
    assert "1 files fewer" in out.getvalue() and "0 bytes in the tables, 110 in the lake" in out.getvalue()
    assert "say the same" in out.getvalue()


@pytest.mark.parametrize("url", ["http://lake/", "lake", "file://", "gs://bucket/x", "file:///"])
def test_an_address_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="file: or s3:"):
        open_lake(url)
