"""Merging (`billing.lake.merging`): a merged file has all rows in order, for any split, and filters work."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from billing.lake import files, merging
from billing.lake.address import Lake, open_lake
from tests.testkit import depth

DAY = date(2026, 3, 14)
DAY_BEGINS_MS = 1_773_446_400_000
TYPES = {
    "broker_id": pa.int32(), "instance_id": pa.string(), "topic": pa.string(), "user": pa.string(),
    "client_id": pa.string(), "direction": pa.string(),
}  # fmt: skip


def reports(rows: list[tuple[str, str, int]]) -> pa.Table:
    """Returns reports of (instance, topic, sequence)."""
    columns: dict[str, list[Any]] = {name: [] for name in files.COLUMNS}
    for instance_id, topic, sequence in rows:
        row = {
            "broker_id": 1, "broker_epoch": 5, "instance_id": instance_id, "topic": topic, "user": "u",
            "client_id": "c", "direction": "produce", "sequence": sequence, "at_ms": DAY_BEGINS_MS + sequence,
            "bytes": sequence * 10, "requests": 1, "added_bytes": 10, "added_requests": 1,
        }  # fmt: skip
        for name in files.COLUMNS:
            columns[name].append(row[name])
    return pa.table({name: pa.array(columns[name], TYPES.get(name, pa.int64())) for name in files.COLUMNS})


def written(place: Lake, tables: list[pa.Table]) -> list[Any]:
    found = []
    for number, table in enumerate(tables):
        for each in files.write(place, "cl", {0: (number, number + 1)}, table):
            found.append(SimpleNamespace(path=each.path, rows=each.rows, added_bytes=each.added_bytes))  # noqa: PERF401
    return found


def read(place: Lake, path: str) -> list[tuple[str, str, int]]:
    table = files.read(place, path)
    return list(zip(*(table.column(name).to_pylist() for name in ("instance_id", "topic", "sequence")), strict=True))


rows = st.lists(
    st.tuples(st.sampled_from(("ins-a", "ins-b", "ins-c", "ins-ü")), st.sampled_from("tuv"), st.integers(1, 50)),
    min_size=1, max_size=40,
)  # fmt: skip


@settings(max_examples=depth.examples(100), deadline=None)
@given(parts=st.lists(rows, min_size=1, max_size=4), bucket_rows=st.integers(1, 60))
def test_all_rows_are_merged_and_each_counter_is_in_order(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[tuple[str, str, int]]], bucket_rows: int
) -> None:
    place = open_lake(tmp_path_factory.mktemp("lake").as_uri())
    old = written(place, [reports(part) for part in parts])

    made = merging.merge(place, "cl", DAY, old, bucket_rows)  # type: ignore[arg-type]

    found = read(place, made.path)
    everything = [row for part in parts for row in part]
    assert sorted(found) == sorted(everything)
    assert (made.rows, made.added_bytes) == (len(everything), 10 * len(everything))
    assert [row[0] for row in found] == sorted(row[0] for row in found)
    for counter in {row[:2] for row in everything}:
        sequences = [row[2] for row in found if row[:2] == counter]
        assert sequences == sorted(sequences)


@given(
    counts=st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 5_000), max_size=30),
    bucket_rows=st.integers(1, 3_000),
)
def test_buckets_are_bounded_in_number_and_each_instance_has_its_own_range(
    counts: dict[str, int], bucket_rows: int
) -> None:
    plan = merging.plan_buckets(counts, bucket_rows)
    assert plan.buckets <= merging.BUCKETS_MAX
    taken = [
        number for each in sorted(counts) for number in range(plan.first[each], plan.first[each] + plan.parts[each])
    ]
    assert taken == sorted(taken) and set(taken) == set(range(plan.buckets))


def test_row_groups_of_other_instances_are_passed_over(tmp_path: Path) -> None:
    place = open_lake(tmp_path.as_uri())
    old = written(place, [reports([(f"ins-{n}", "t", 1 + at) for n in range(9)]) for at in range(6)])
    made = merging.merge(place, "cl", DAY, old, bucket_rows=6)  # type: ignore[arg-type]
    file: Any = SimpleNamespace(path=made.path, rows=made.rows, added_bytes=made.added_bytes)

    assert merging.rows_of_groups(place, file, ["ins-4"]) == 6
    (table,) = merging.batches_of(place, file, instance_ids=["ins-4"])
    assert set(table.column("instance_id").to_pylist()) == {"ins-4"}
    assert list(merging.batches_of(place, file, instance_ids=["ins-none", "ins-44"])) == []
    assert sum(each.num_rows for each in merging.batches_of(place, file)) == 54


@pytest.mark.parametrize("harm", [{"rows": 3}, {"added_bytes": 21}])
def test_a_file_that_is_not_what_was_written_is_not_merged(tmp_path: Path, harm: dict[str, int]) -> None:
    place = open_lake(tmp_path.as_uri())
    first, second = written(place, [reports([("ins-a", "t", 1), ("ins-a", "t", 2)]), reports([("ins-a", "t", 3)])])
    vars(first).update(harm)
    with pytest.raises(merging.FileMismatch, match=first.path):
        merging.merge(place, "cl", DAY, [first, second])
    assert len([found for found in tmp_path.rglob("*.parquet") if found.is_file()]) == 2


def test_files_whose_types_are_narrower_are_widened(tmp_path: Path) -> None:
    place = open_lake(tmp_path.as_uri())
    table = reports([("ins-a", "t", 1)])
    narrow = table.set_column(table.schema.get_field_index("requests"), "requests", pa.array([1], pa.int32()))
    made = merging.merge(place, "cl", DAY, written(place, [narrow, reports([("ins-a", "t", 2)])]))
    assert files.read(place, made.path).schema.field("requests").type == pa.int64()
