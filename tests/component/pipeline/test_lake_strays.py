"""Files of the lake that no row names are deleted after a while, and no others."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test import override_settings
from pyarrow.fs import FileType

from billing import dsn
from billing.lake import files, strays
from billing.lake.address import Lake
from billing.models import LakeFile
from billing.pipeline import sink
from tests.component.pipeline.test_lake import CLUSTER, NOON, keep, place, reports, s3, total

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["place", "s3"]

LATER = NOON + strays.STRAY_AFTER + timedelta(minutes=1)


def left(place: Lake) -> set[str]:
    return {str(file.relative_to(place.folder)) for file in Path(place.folder).rglob("*") if file.is_file()}


def set_written(place: Lake, at: datetime) -> None:
    """All files of the lake were written at this time."""
    for path in left(place):
        os.utime(Path(place.folder) / path, (at.timestamp(), at.timestamp()))


def stray(place: Lake, start: int = 40) -> str:
    """A file of a run that was killed before its commit."""
    (written,) = files.write(place, CLUSTER, {0: (start, start + 2)}, reports((1, NOON, 100, 100)))
    return written.path


def sweep(place: Lake, now: datetime = LATER, deleted_max: int = strays.DELETED_MAX) -> strays.SweepResult:
    return strays.sweep(place, dsn.conninfo(), now, deleted_max)


def test_files_left_by_a_killed_run_are_deleted_and_valid_ones_are_not(place: Lake) -> None:
    (kept,) = keep(place, reports((1, NOON, 100, 100)), 0, 2)
    lost = stray(place)
    half = Path(place.folder) / f"{lost}.0badcafe.new"
    half.write_bytes(b"PAR1")
    size = (Path(place.folder) / lost).stat().st_size + 4
    foreign = [half.with_name("notes.txt"), half.with_name("mine.parquet")]
    for file in foreign:
        file.touch()
    set_written(place, NOON)

    assert sweep(place) == strays.SweepResult(files=2, bytes=size, is_complete=True)

    assert left(place) == {kept.path, *(str(file.relative_to(place.folder)) for file in foreign)}
    assert total(place) == 100
    assert sweep(place).files == 0


def test_a_file_that_was_written_lately_may_still_be_named(place: Lake) -> None:
    lost = stray(place)
    set_written(place, NOON)
    assert sweep(place, NOON + strays.STRAY_AFTER).files == 0
    assert left(place) == {lost}


def test_a_run_that_writes_its_file_again_finds_it_kept(place: Lake) -> None:
    """Files of the same offsets have the same name: the second try counts."""
    lost = stray(place, 0)
    set_written(place, NOON)
    (kept,) = keep(place, reports((1, NOON, 100, 100)), 0, 2)
    assert kept.path == lost
    set_written(place, NOON)
    assert sweep(place).files == 0 and total(place) == 100


def test_a_cluster_with_a_run_in_progress_is_left_for_another_time(place: Lake) -> None:
    stray(place)
    set_written(place, NOON)
    with sink.exclusive(dsn.conninfo(), CLUSTER):
        assert sweep(place) == strays.SweepResult(files=0, bytes=0, is_complete=False)
    assert sweep(place).files == 1


def test_a_sweep_ends_at_its_limit_and_the_next_one_goes_on(place: Lake) -> None:
    for start in range(5):
        stray(place, start * 10)
    set_written(place, NOON)
    assert (sweep(place, deleted_max=3).files, len(left(place))) == (3, 2)
    second = sweep(place, deleted_max=3)
    assert second == strays.SweepResult(files=2, bytes=pytest.approx(1, abs=10**6), is_complete=True)


def test_a_lake_in_s3_and_one_without_files_are_swept_as_well(s3: Lake, place: Lake) -> None:
    assert sweep(place).files == 0
    (written,) = files.write(s3, CLUSTER, {0: (0, 2)}, reports((1, datetime.now(UTC), 100, 100)))
    keep(s3, reports((2, datetime.now(UTC), 130, 30)), 2, 3)
    assert sweep(s3, datetime.now(UTC)).files == 0
    now = datetime.now(UTC) + strays.STRAY_AFTER + timedelta(minutes=1)
    assert sweep(s3, now).files >= 1, "the server may have files of other tests"
    (kept,) = LakeFile.objects.values_list("path", flat=True)
    found = s3.files.get_file_info([s3.path(path) for path in (kept, written.path)])
    assert [info.type for info in found] == [FileType.File, FileType.NotFound]


def test_the_command_says_what_was_deleted(place: Lake) -> None:
    (written,) = files.write(place, CLUSTER, {0: (0, 2)}, reports((1, datetime.now(UTC), 100, 100)))
    set_written(place, datetime.now(UTC) - timedelta(days=1))
    out = StringIO()
    with override_settings(LAKE_URL=Path(place.folder).as_uri()):
        call_command("lake", "sweep", stdout=out)
    assert out.getvalue().startswith("1 files deleted") and written.path not in left(place)
