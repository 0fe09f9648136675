"""Usage records of version 2: the counters in their columns are read, judged and billed as in records of version 1."""

from __future__ import annotations

import json
import random
from binascii import b2a_base64
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.pipeline import differences, schema
from billing.pipeline.checking import Checked, check
from billing.pipeline.decoding import batch_of, rows_of
from billing.pipeline.fields import as_batch
from brokers.contract.usage import COUNTED_THINGS, CounterValue, ReportHead, UsageEvent
from brokers.contract.usage_columns import COUNTERS_PER_RECORD_MAX, parse, to_record
from tests.testkit import depth
from tests.testkit.usage_reports import BOUNDS, NOW_MS, Processes, in_columns

HEADS = st.builds(
    ReportHead, st.integers(-1, 2**31), st.integers(-1, 2**63), st.integers(-1, 10**12 + 1), st.integers(-1, 10**15)
)
NAMES = st.text(max_size=6) | st.sampled_from(
    ["", "x" * 300, "\U0001f600" * 260, "a\x00b", "\ud800", '"],[1', "\\u0022", "ins-aaaaaaaa", "\n"]
)
COUNTERS = st.builds(
    CounterValue, NAMES, NAMES, NAMES, NAMES, st.sampled_from(COUNTED_THINGS) | NAMES,
    st.integers(-(2**63), 2**63 - 1), st.integers(0, 10**18),
)  # fmt: skip
GOOD_HEADS = st.builds(
    ReportHead, st.integers(0, 9), st.integers(0, 2**63 - 1), st.integers(0, 10**12), st.integers(1, 10**13)
)
GOOD_COUNTERS = st.builds(
    CounterValue, st.sampled_from(["ins-aaaaaaaa", "ins-bbbbbbbb"]), NAMES, NAMES, NAMES,
    st.sampled_from(COUNTED_THINGS), st.integers(0, 10**18), st.integers(0, 10**18),
)  # fmt: skip
REPORTS = st.tuples(HEADS | GOOD_HEADS, st.lists(COUNTERS | GOOD_COUNTERS, min_size=1, max_size=8))
GOOD_REPORTS = st.tuples(GOOD_HEADS, st.lists(GOOD_COUNTERS, min_size=1, max_size=8))


def without_place(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """The rows without offsets, and without the beginnings of records that cannot be read."""
    columns = [batch.column(name).to_pylist() for name in batch.schema.names if name not in ("offset", "detail")]
    return list(zip(*columns, strict=True))


@given(st.lists(GOOD_REPORTS | REPORTS, min_size=1, max_size=4))
def test_any_counters_are_the_same_rows_in_both_versions(reports: list[tuple[ReportHead, list[CounterValue]]]) -> None:
    events = [UsageEvent.of(head, counter).to_json() for head, counters in reports for counter in counters]
    records = [to_record(head, counters) for head, counters in reports]
    by_columns = batch_of(3, range(len(records)), records)
    by_events = without_place(batch_of(3, range(len(events)), events))
    expected, place = [], 0
    for head, counters in reports:
        rows = by_events[place : place + len(counters)]
        place += len(counters)
        is_head_valid = any(row[1] is not None for row in rows) or fits(head)
        expected += rows if is_head_valid else rows[:1]
    assert without_place(by_columns) == expected


def fits(head: ReportHead) -> bool:
    """True if a valid counter of this report is a valid event."""
    counter = CounterValue("ins-aaaaaaaa", "t", "u", "c", "produce", 1, 1)
    return batch_of(0, [0], [UsageEvent.of(head, counter).to_json()]).column("problem").null_count == 1


def harmed(record: bytes, drawn: random.Random) -> bytes:
    """The record with something else in one place."""
    values = json.loads(record)
    place = drawn.randrange(len(values))
    other: list[Any] = [
        None, [], {}, "", "AAAA", "AAA", "=", b2a_base64(b"\xff" * 2, newline=False).decode(), "\u00fc", 7, 1.5, True,
        2**70, [None], [7], ["\ud800"], ["x"] * 3,
    ]  # fmt: skip
    values[place] = drawn.choice(other)
    if drawn.random() < 0.2:
        values = values[:place]
    return json.dumps(values, separators=(",", ":")).encode()


@given(st.lists(GOOD_REPORTS, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_harmed_records_are_read_together_as_one_by_one(
    reports: list[tuple[ReportHead, list[CounterValue]]], drawn: random.Random
) -> None:
    records: list[bytes | None] = []
    for head, counters in reports:
        record = to_record(head, counters)
        records += [record, harmed(record, drawn)]
        records += drawn.choice([[], [None], [b"[2,"], [b"[2," + b"9" * 5_000], [b"[2," + b"[" * 100_000], [b"[3,1]"]])
    offsets = range(len(records))
    rows = [row for offset, raw in zip(offsets, records, strict=True) for row in rows_of(3, offset, raw)]
    batch = batch_of(3, offsets, records)
    assert batch.equals(as_batch(rows))
    assert batch.column("offset").unique().to_pylist() == list(offsets), "each record has its place"


def record_of(*counters: CounterValue) -> bytes:
    return to_record(ReportHead(1, 9, 5, NOW_MS), counters)


COUNTER = CounterValue("ins-aaaaaaaa", "orders", "app", "etl", "produce", 70, 1)


def test_a_counter_that_fits_no_table_is_left_out_and_the_others_of_its_record_are_not() -> None:
    found = batch_of(
        0, [7], [record_of(COUNTER, COUNTER._replace(bytes=-1), COUNTER._replace(instance_id="i" * 17), COUNTER)]
    )
    assert found.column("problem").to_pylist() == [None, schema.MALFORMED, schema.MALFORMED, None]
    checked = check([found], 7, (), BOUNDS)
    assert (checked.records, checked.values, checked.left_out, checked.stop) == (1, 4, 2, 8)


def test_a_record_of_no_counters_or_of_too_many_is_malformed() -> None:
    whole = record_of(*[COUNTER] * COUNTERS_PER_RECORD_MAX)
    assert parse(whole).counters == COUNTERS_PER_RECORD_MAX
    values = json.loads(record_of(COUNTER))
    empty = json.dumps([*values[:6], *[""] * 7], separators=(",", ":")).encode()
    for raw in (empty, record_of(*[COUNTER] * (COUNTERS_PER_RECORD_MAX + 1))):
        (row,) = batch_of(0, [0], [raw]).to_pylist()
        assert row["problem"] == schema.MALFORMED and row["bytes"] is None


def test_records_of_both_versions_keep_their_order() -> None:
    raws = [
        UsageEvent.of(ReportHead(1, 9, 1, NOW_MS), COUNTER).to_json(),
        record_of(COUNTER, COUNTER._replace(bytes=80)), None,
        UsageEvent.of(ReportHead(1, 9, 6, NOW_MS), COUNTER._replace(bytes=90)).to_json(),
        record_of(COUNTER._replace(bytes=100)),
    ]  # fmt: skip
    found = batch_of(0, range(5), raws)
    assert found.column("offset").to_pylist() == [0, 1, 1, 2, 3, 4]
    assert found.column("bytes").to_pylist() == [70, 70, 80, None, 90, 100]


def added_up(checked: Checked) -> tuple[Any, ...]:
    reports = differences.distinct(checked.reports)
    rows = differences.increments(reports, differences.none_stored(differences.keys(reports).num_rows))
    problems = sorted((each.kind, each.broker_id, each.records) for each in checked.problems)
    tables = (differences.minutes(rows), differences.last_counters(rows), rows.drop_columns(["counter"]))
    return (*(sorted(tuple(row.values()) for row in table.to_pylist()) for table in tables), problems, checked.left_out)


@pytest.mark.parametrize("seed", range(depth.examples(40)))
def test_random_and_hostile_reports_are_billed_to_the_byte_as_in_version_1(seed: int) -> None:
    """Sequences said again, epochs used again, restarts, gaps, clocks, garbage, names of any kind."""
    raws = list(Processes(random.Random(seed), brokers=3, counters=12).reports(60))
    columns = in_columns(raws)
    assert len(columns) < len(raws)
    by_events = check([batch_of(0, range(len(raws)), raws)], 0, (), BOUNDS)
    by_columns = check([batch_of(0, range(len(columns)), columns)], 0, (), BOUNDS)
    assert (by_columns.records, by_columns.values, by_events.values) == (len(columns), len(raws), len(raws))
    assert added_up(by_columns) == added_up(by_events)
    assert by_columns.incarnations == by_events.incarnations
