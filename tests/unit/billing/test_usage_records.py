"""Usage records, valid and invalid: each fits its tables or is reported."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.models import UsageCounter, UsageMinute
from billing.pipeline import schema
from billing.pipeline.decoding import batch_of, row_of
from billing.pipeline.doubts import (
    AHEAD_MAX_MS,
    BEHIND_MAX_MS,
    UNSEEN_MAX_MS,
    ClockBounds,
    Incarnation,
    Incarnations,
    with_bounded_clock,
)
from billing.pipeline.fields import CALENDAR_END_MS, as_batch
from brokers.contract.usage import COUNTED_THINGS, FIELD_NAMES, UsageEvent

NOW_MS = 1_795_000_000_000
DAY_MS = 86_400_000

NUMBERS = (
    st.integers(-(2**70), 2**70) | st.floats() | st.booleans() | st.none() | st.text(max_size=3)
    | st.sampled_from([2**31, 2**63, 10**18 + 1, CALENDAR_END_MS])
)  # fmt: skip
NAMES = st.text(max_size=6) | st.sampled_from([
    "x" * 300, "\U0001f600" * 260,
    "\x00", "\ud800", '"],[1', "", "\U0001f600" * 16, '\\"', "\\\\", "\\u0022", "]\n[1,", "\t\\.",
])  # fmt: skip
EVENTS = st.builds(
    lambda head, names, counted, tail: [1, *head, *names, counted, *tail],
    st.lists(st.integers(0, 2**31 - 1), min_size=4, max_size=4), st.lists(NAMES, min_size=4, max_size=4),
    st.sampled_from(COUNTED_THINGS), st.lists(st.integers(0, 2**62), min_size=2, max_size=2),
)  # fmt: skip
ODD = st.lists(NUMBERS | NAMES | st.sampled_from(COUNTED_THINGS) | st.lists(NUMBERS, max_size=2), max_size=14)
# A record that is right but for one field.
HARMED = st.builds(
    lambda event, at, value: [*event[:at], value, *event[at + 1 :]], EVENTS, st.integers(0, 11), NUMBERS | NAMES
)
RAWS = (
    st.builds(
        lambda value, separators: json.dumps(value, separators=separators).encode(),
        EVENTS | HARMED | ODD.map(lambda values: [1, *values]) | NUMBERS,
        st.sampled_from([(",", ":"), (", ", ": ")]),  # brokers write the first
    )
    | st.none() | st.binary(max_size=8)
    | st.sampled_from([b"[1],[1]", b"[[1]", b"[1]]", b"[]", b"[NaN]", b"[" * 100_000, b"[1,%s]" % (b"9" * 5_000)])
)  # fmt: skip


@given(
    st.lists(EVENTS.map(lambda value: json.dumps(value, separators=(",", ":")).encode()) | RAWS, min_size=1, max_size=6)
)
def test_records_that_are_read_at_once_are_the_rows_that_they_are_one_by_one(raws: list[bytes | None]) -> None:
    offsets = list(range(len(raws)))
    one_by_one = as_batch([row_of(3, offset, raw) for offset, raw in zip(offsets, raws, strict=True)])
    assert batch_of(3, offsets, raws).equals(one_by_one)


@given(RAWS)
def test_a_record_fits_every_table_or_is_left_out_with_what_is_the_matter(raw: bytes | None) -> None:
    """No record of a broker may stop the bills of its cluster."""
    row = dict(zip((column.name for column in schema.EVENT), row_of(3, 44, raw), strict=True))
    assert (row["partition"], row["offset"]) == (3, 44)
    if row["problem"] is not None:
        assert row["problem"] in (schema.MALFORMED, schema.NEWER_VERSION)
        assert all(row[name] is None for name in FIELD_NAMES) and "\x00" not in row["detail"]
        return
    for model in (UsageCounter, UsageMinute):
        for field in model._meta.concrete_fields:
            value = row.get(field.name)
            if isinstance(value, str):
                assert len(value) <= (field.max_length or 0) and "\x00" not in value
                value.encode()
    assert 0 <= row["broker_id"] < 2**31 and 0 <= row["broker_epoch"] < 2**63 and 0 < row["at_ms"] < CALENDAR_END_MS
    assert all(0 <= row[name] <= 10**18 for name in ("sequence", "bytes", "requests"))
    assert row["instance_id"] and row["direction"] in COUNTED_THINGS


def event(**changes: Any) -> UsageEvent:
    values = {
        "broker_id": 1, "broker_epoch": 9, "sequence": 5, "at_ms": NOW_MS, "instance_id": "ins-aaaaaaaa",
        "topic": "orders", "user": "app", "client_id": "etl", "direction": "produce", "bytes": 7, "requests": 1,
    }  # fmt: skip
    return UsageEvent(**(values | changes))


@pytest.mark.parametrize(
    "raw",
    [
        None, b"", b"{}", b'[1,"x"]', b"\xff\xfe", b"[1" + b",1" * 50 + b"]", b"null", b'["2",1]', b"[true]",
        event(at_ms=10**18).to_json(), event(at_ms=-1).to_json(), event(at_ms=0).to_json(),
        event(instance_id="i" * 17).to_json(), event(instance_id="").to_json(), event(bytes=-1).to_json(),
        event(bytes=2**63).to_json(), event(broker_id=2**31).to_json(), event(sequence=1.0).to_json(),
        event(direction="levitate").to_json(), event(topic=7).to_json(),
    ],
)  # fmt: skip
def test_a_record_that_is_no_usage_event_keeps_only_its_place(raw: bytes | None) -> None:
    row = row_of(3, 44, raw)
    assert row[:-1] == (3, 44, *[None] * len(FIELD_NAMES), schema.MALFORMED)
    assert batch_of(3, [44, 45], [raw, event().to_json()]).column("problem").to_pylist() == [schema.MALFORMED, None]


@pytest.mark.parametrize("raw", [b"[3,1]", b"[3]", b'[999,{"a":1}]'])
def test_a_newer_version_is_no_malformed_record(raw: bytes) -> None:
    assert row_of(3, 44, raw)[-2:] == (schema.NEWER_VERSION, raw.decode())


def batch(*events: UsageEvent) -> pa.RecordBatch:
    return batch_of(0, range(len(events)), [each.to_json() for each in events])


def test_a_clock_that_is_far_off_is_bounded_by_the_looks_at_its_partition() -> None:
    """90 days back and 400 ahead are corrected; an hour back and some minutes ahead are accepted."""
    bounds = ClockBounds(NOW_MS - 60_000, NOW_MS)
    said = [NOW_MS - 90 * DAY_MS, NOW_MS + 400 * DAY_MS, NOW_MS - BEHIND_MAX_MS, NOW_MS + AHEAD_MAX_MS, NOW_MS - 5]
    found = with_bounded_clock(batch(*(event(at_ms=at_ms) for at_ms in said)), bounds)
    assert found.column("at_ms").to_pylist() == [NOW_MS - 60_000, NOW_MS, *said[2:]]
    assert found.column("problem").to_pylist() == [schema.CLOCK, schema.CLOCK, None, None, None]
    assert found.column("detail").to_pylist() == [str(said[0]), str(said[1]), None, None, None]


def test_a_backlog_of_a_partition_that_was_never_read_is_believed_as_far_as_its_retention() -> None:
    said = [NOW_MS - UNSEEN_MAX_MS, NOW_MS - UNSEEN_MAX_MS - 1]
    found = with_bounded_clock(batch(*(event(at_ms=at_ms) for at_ms in said)), ClockBounds(None, NOW_MS))
    assert found.column("at_ms").to_pylist() == [said[0], NOW_MS]


@given(st.lists(st.integers(1, CALENDAR_END_MS - 1), min_size=1, max_size=20), st.none() | st.integers(0, NOW_MS))
def test_every_time_is_within_its_bounds_afterwards(said: list[int], since_ms: int | None) -> None:
    bounds = ClockBounds(since_ms, NOW_MS)
    found = with_bounded_clock(batch(*(event(at_ms=at_ms) for at_ms in said)), bounds)
    for before, after, problem in zip(
        said, found.column("at_ms").to_pylist(), found.column("problem").to_pylist(), strict=True
    ):
        assert bounds.first_ms <= after <= bounds.last_ms
        assert (before == after) == (problem is None) or after == before


def refused(incarnations: Incarnations, *reports: tuple[int, int]) -> list[bool]:
    """Returns (sequence, at_ms) of refused reports of one broker's epoch."""
    found = incarnations.refuse_reused(batch(*(event(sequence=n, at_ms=at_ms) for n, at_ms in reports)))
    return [problem == schema.EPOCH_REUSED for problem in found.column("problem").to_pylist()]


def test_an_epoch_that_a_second_process_uses_is_refused_from_its_first_report_on() -> None:
    """Its counters start anew: attributed to the first process, they would not be billed until they exceed its
    counters.
    """
    incarnations = Incarnations([Incarnation(1, 9, 100, NOW_MS)])
    assert refused(incarnations, (1, NOW_MS + 10_000), (2, NOW_MS + 20_000), (101, NOW_MS + 30_000)) == [True] * 3
    assert refused(Incarnations(), (7, NOW_MS), (8, NOW_MS + 1), (1, NOW_MS + 2), (1, NOW_MS + 2)) == [
        False, False, True, True,
    ]  # fmt: skip
    assert refused(Incarnations([Incarnation(1, 9, 100, NOW_MS, True)]), (101, NOW_MS + 1)) == [True]
    assert refused(Incarnations([Incarnation(1, 8, 100, NOW_MS)]), (1, NOW_MS + 1)) == [False]


@given(st.data())
def test_reports_of_one_process_are_never_refused_however_they_are_repeated(data: st.DataObject) -> None:
    """Read again from the log's beginning, repeated under their sequence, with a clock that was set back."""
    reports, at_ms = [], NOW_MS
    for sequence in range(1, data.draw(st.integers(1, 12)) + 1):
        for _ in range(data.draw(st.integers(1, 2))):
            at_ms = max(1, at_ms + data.draw(st.integers(-100_000, 20_000)))
            reports.append((sequence, at_ms))
    incarnations = Incarnations()
    assert not any(refused(incarnations, *reports))
    times = [at_ms for _, at_ms in reports]
    if times == sorted(times):
        assert not any(refused(incarnations, *reports[data.draw(st.integers(0, len(reports) - 1)) :]))
