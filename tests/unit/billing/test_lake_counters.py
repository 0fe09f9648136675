"""Counters followed over the lake's files: equal to a check report by report, for any order and repetitions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from billing.lake.counters import CounterBroken, Counters
from brokers.contract.usage import COUNTER_KEY

KEYS = [
    {"broker_id": broker, "broker_epoch": 5, "instance_id": instance, "topic": topic, "user": "", "client_id": "c",
     "direction": "produce"}
    for broker, instance, topic in [(1, "ins-a", "t"), (2, "ins-a", "t"), (1, "ins-b", "t"), (1, "ins-a", "tt")]
]  # fmt: skip
Row = tuple[int, int, int, int]


def table(rows: list[Row], broker_type: pa.DataType) -> pa.Table:
    """Returns (number of the counter, sequence, cumulative bytes, bytes added) as reports of a file."""
    columns: dict[str, list[Any]] = {name: [KEYS[counter][name] for counter, *_ in rows] for name in COUNTER_KEY}
    numbers = {"sequence": 1, "bytes": 2, "added_bytes": 3}
    columns |= {name: [row[at] for row in rows] for name, at in numbers.items()}
    types = {"broker_id": broker_type} | dict.fromkeys(("broker_epoch", *numbers), pa.int64())
    return pa.table({name: pa.array(values, types.get(name, pa.string())) for name, values in columns.items()})


def report_by_report(files: list[list[Row]]) -> list[bool]:
    """Returns, for each file up to the first gap, if its counters follow the ones before."""
    last: dict[int, tuple[int, int]] = {}
    for number, rows in enumerate(files):
        for counter, sequence, count, added in sorted(rows, key=lambda row: row[1:3]):
            if counter in last and (sequence, count) <= last[counter]:
                continue
            if counter in last and max(0, count - last[counter][1]) != added:
                return [True] * number + [False]
            last[counter] = sequence, count
    return [True] * len(files)


@st.composite
def lakes(draw: st.DrawFn) -> list[list[Row]]:
    """Reports of some counters, spread over files; some are repeated, some damaged."""
    reports: list[Row] = []
    for counter in draw(st.sets(st.integers(0, len(KEYS) - 1), min_size=1)):
        count = draw(st.integers(0, 2**50))
        for sequence in sorted(draw(st.sets(st.integers(1, 30), max_size=8))):
            # What was appended in part is said again under its sequence.
            for _ in range(draw(st.integers(1, 2))):
                count += (added := draw(st.integers(0, 2**40)))
                reports.append((counter, sequence, count, added))
    size = draw(st.integers(1, 4))
    files: list[list[Row]] = [[] for _ in range(size)]
    for row in reports:
        files[min(size - 1, row[1] * size // 31)].append(row)
    for row in draw(st.lists(st.sampled_from(reports), max_size=3)) if reports else []:
        files[draw(st.integers(0, size - 1))].append(row)
    if reports and draw(st.booleans()):
        file = draw(st.sampled_from([file for file in files if file]))
        at = draw(st.integers(0, len(file) - 1))
        counter, sequence, count, added = file[at]
        file[at] = (counter, sequence, count, added + 1)
    return [draw(st.permutations(file)) for file in files]


@given(lakes(), st.sampled_from([pa.int32(), pa.int64()]))
def test_files_follow_as_their_reports_do_one_by_one(files: list[list[Row]], broker_type: pa.DataType) -> None:
    # Two rows of a counter, sequence and count that say different things are no file of ours.
    assume(all(len({row[:3] for row in file}) == len(set(file)) for file in files))
    counters, found = Counters(), []
    for file in files:
        try:
            counters.verify(table(file, broker_type))
        except CounterBroken:
            found.append(False)
            break
        found.append(True)
    assert found == report_by_report(files)


def test_a_counter_that_falls_adds_nothing_and_is_followed_from_there() -> None:
    counters = Counters()
    counters.verify(table([(0, 1, 100, 100)], pa.int32()))
    counters.verify(table([(0, 2, 40, 0)], pa.int32()))
    counters.verify(table([(0, 3, 50, 10)], pa.int32()))
    with pytest.raises(CounterBroken):
        counters.verify(table([(0, 4, 60, 20)], pa.int32()))


def test_a_broken_counter_is_reported_in_bytes() -> None:
    counters = Counters()
    counters.verify(table([(0, 1, 100, 100), (1, 1, 7, 7)], pa.int32()))
    with pytest.raises(CounterBroken, match="grew by 20 bytes and 21 were added"):
        counters.verify(table([(1, 2, 9, 2), (0, 2, 120, 21)], pa.int32()))
