"""Folders of an archive's records: few files for any timestamps, and none of a wrong date."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem
from pytest import MonkeyPatch, TempPathFactory

from archives import limits
from archives.files import FileSet, file_path, parse_name
from archives.placing import HOURS_END, UNDATED, Folder, choose_folders, hour_of
from archives.records import Records
from billing.lake.address import Lake

HOURS = st.none() | st.integers(0, HOURS_END - 1) | st.integers(495_000, 495_100)
THREE_HOURS = st.integers(1_782_000_000_000, 1_782_009_000_000)
SIZES = st.dictionaries(HOURS, st.integers(1, 10**6), max_size=300)


@given(SIZES, st.sets(st.integers(495_000, 495_100), max_size=limits.OPEN_FILES_MAX))
def test_a_folder_says_nothing_that_is_not_so_of_its_records(sizes: dict[int | None, int], opened: set[int]) -> None:
    found = choose_folders(sizes, [Folder(hour // 24, hour) for hour in opened])
    assert found.keys() == sizes.keys()
    for hour, folder in found.items():
        if hour is None:
            assert folder == UNDATED
            continue
        assert folder.hour in (None, hour) and folder.day in (None, hour // 24)
    own = {folder for folder in found.values() if folder != UNDATED}
    large = sum(size >= limits.OWN_FILE_BYTES_MIN for size in sizes.values())
    # A hundredth of what is written at once has a file; so do as many hours, or days, as may be open.
    assert len(own) <= 2 * (100 + limits.OPEN_FILES_MAX) + 2 * large


@given(st.dictionaries(st.integers(0, HOURS_END - 1), st.integers(1, 100), max_size=limits.OPEN_FILES_MAX))
def test_few_hours_have_a_folder_each(sizes: dict[int | None, int]) -> None:
    assert all(folder.hour == hour for hour, folder in choose_folders(sizes, []).items())


def test_stragglers_of_many_days_do_not_take_the_hour_of_today_along() -> None:
    today = 495_000
    sizes: dict[int | None, int] = {today: 10_000} | {today - 24 * day: 64 for day in range(1, 60)}
    found = choose_folders(sizes, [])
    assert found[today] == Folder(today // 24, today)
    assert {folder for hour, folder in found.items() if hour != today} == {UNDATED}


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_time_that_no_folder_can_be_named_after_has_no_hour(timestamp_ms: int) -> None:
    hour = hour_of(timestamp_ms)
    assert (hour is not None) == (0 <= timestamp_ms < 253_402_300_800_000)
    if hour is not None:
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=hour)
        assert Folder(hour // 24, hour).path == f"date={when.year:04}-{when:%m-%d}/hour={when:%H}"


@given(
    st.integers(0, 99_999), st.integers(0, 2**62), st.integers(0, 3), SIZES.map(lambda sizes: choose_folders(sizes, []))
)
def test_the_name_of_a_file_says_where_it_begins(
    partition: int, offset: int, generation: int, folders: dict[int | None, Folder]
) -> None:
    for folder in [UNDATED, *folders.values()][:3]:
        path = file_path(folder, partition, offset, generation)
        head, _, name = path.rpartition("/")
        for each in (path, f"{head}/.{name}.new"):
            assert parse_name(each) == (partition, offset, generation)


@given(
    st.lists(st.sampled_from([-1, -(2**62), 2**62]) | st.integers(0, 10**13) | THREE_HOURS, max_size=120),
    st.integers(1, 5), st.integers(1, 2_000), st.integers(1, 500), st.integers(1, 9),
)  # fmt: skip
def test_every_record_is_in_one_file_whatever_its_timestamp_is(
    tmp_path_factory: TempPathFactory, times: list[int], open_max: int, buffered: int, file_bytes: int, at_once: int
) -> None:
    folder = tmp_path_factory.mktemp("archive")
    with MonkeyPatch.context() as patch:
        patch.setattr(limits, "OPEN_FILES_MAX", open_max)
        patch.setattr(limits, "BUFFERED_BYTES_MAX", buffered)
        patch.setattr(limits, "FILE_BYTES_MAX", file_bytes)
        files = FileSet(Lake(LocalFileSystem(), str(folder)), "orders", 7)
        for start in range(0, len(times), at_once):
            records = Records()
            for offset, at_ms in enumerate(times[start : start + at_once], start):
                records.append(offset, at_ms, b"k", b"v" * (offset % 50))
            files.add(records)
        written = files.finish()
    assert len({each.path for each in written}) == len(written) == len(list(folder.rglob("*.parquet")))
    rows = [row for each in written for row in _rows(folder / each.path, each)]
    assert sorted(row["offset"] for row in rows) == list(range(len(times)))
    for row in rows:
        at_ms = times[row["offset"]]
        if hour_of(at_ms) is None:
            assert row["timestamp"] is None and row["timestamp_ms"] == at_ms
        else:
            assert row["timestamp"] == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)


def _rows(path: Path, written: Any) -> list[dict[str, Any]]:
    rows = ds.dataset(path, format="parquet").to_table().to_pylist()
    offsets = [row["offset"] for row in rows]
    assert offsets == sorted(offsets), "the order within a file is that of the partition"
    assert (written.first_offset, written.last_offset, written.rows) == (offsets[0], offsets[-1], len(rows))
    records = Records()
    for row in rows:
        records.append(
            row["offset"], row.get("timestamp_ms") or _ms(row["timestamp"]), row["key"], row["value"], row["headers"]
        )
    assert records.content_sum() == written.content_sum
    return rows


def _ms(instant: datetime) -> int:
    return round(instant.timestamp() * 1_000)
