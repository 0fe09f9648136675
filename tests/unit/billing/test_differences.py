"""Minutes from cumulative counters: examples, a naive reader, and any division into runs."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest

from billing.pipeline import differences, schema
from billing.pipeline.checking import check
from billing.pipeline.copying import as_text
from billing.pipeline.decoding import batch_of
from billing.pipeline.doubts import ClockBounds, Incarnation
from billing.pipeline.fields import as_batch
from billing.pipeline.naming import with_bounded_names, with_others
from brokers.contract.usage import COUNTER_KEY
from tests.testkit import depth, naive_usage
from tests.testkit.usage_reports import BOUNDS as SPAN
from tests.testkit.usage_reports import Processes, in_columns

KEY = ("ins-aaaaaaaa", "orders", "ANONYMOUS", "etl", "produce")
BOUNDS = ClockBounds(None, 10**9)
Last = dict[tuple[Any, ...], tuple[int, ...]]


def event(
    sequence: int, total: int, *, at_ms: int = 1, broker: int = 1, epoch: int = 7, key: tuple[str, ...] = KEY
) -> tuple[Any, ...]:
    return (0, 0, broker, epoch, sequence, at_ms, *key, total, total // 100, None, None)


def minutes_of(events: list[tuple[Any, ...]], counters: Last | None = None) -> tuple[dict[Any, int], Last]:
    """Returns bytes by minute, topic and direction, and the last counters."""
    reports = differences.distinct(check([as_batch(events)], 0, (), BOUNDS).reports)
    before = [(counters or {}).get(tuple(row.values()), (None,) * 3) for row in differences.keys(reports).to_pylist()]
    columns = [pa.array(column, pa.int64()) for column in zip(*before, strict=True)] or [pa.array([], pa.int64())] * 3
    rows = differences.increments(reports, pa.Table.from_arrays(columns, schema=differences.LAST))
    found = differences.minutes(rows).to_pylist()
    last = [tuple(row.values()) for row in differences.last_counters(rows).to_pylist()]
    return (
        {(row["minute_ms"], row["topic"], row["direction"]): row["bytes"] for row in found},
        {row[: len(COUNTER_KEY)]: row[len(COUNTER_KEY) :] for row in last},
    )


def test_counters_become_differences_in_the_minute_that_ends_with_the_report() -> None:
    result, last = minutes_of(
        [event(1, 1000, at_ms=10_000), event(2, 1500, at_ms=60_000), event(3, 4000, at_ms=60_001)]
    )
    assert result == {(0, "orders", "produce"): 1500, (60_000, "orders", "produce"): 2500}
    assert last == {(1, 7, *KEY): (3, 4000, 40)}


def test_repeated_and_reordered_events_change_nothing() -> None:
    events = [event(2, 1500, at_ms=20_000), event(1, 1000, at_ms=10_000), event(2, 1500, at_ms=20_000)]
    assert minutes_of(events)[0] == {(0, "orders", "produce"): 1500}


def test_a_lost_event_loses_no_bytes() -> None:
    events = [event(1, 1000, at_ms=10_000), event(4, 9000, at_ms=40_000)]
    assert minutes_of(events)[0] == {(0, "orders", "produce"): 9000}


def test_a_run_continues_from_the_stored_counter_and_ignores_what_it_already_covers() -> None:
    events = [event(1, 1000, at_ms=10_000), event(2, 1500, at_ms=20_000), event(3, 1700, at_ms=30_000)]
    assert minutes_of(events, {(1, 7, *KEY): (2, 1500, 15)})[0] == {(0, "orders", "produce"): 200}


def test_a_report_that_is_said_again_with_larger_counters_counts_for_the_rest() -> None:
    """It was partly appended, and repeated under its sequence ten seconds later: 150, not 100."""
    first, last = minutes_of([event(5, 100, at_ms=10_000)])
    again, last = minutes_of([event(5, 150, at_ms=20_000)], last)
    assert first[0, "orders", "produce"] + again[0, "orders", "produce"] == 150
    assert last == {(1, 7, *KEY): (5, 150, 1)}
    assert minutes_of([event(5, 120, at_ms=30_000)], last) == ({}, {})


def test_a_counter_that_falls_within_one_process_adds_nothing() -> None:
    events = [event(1, 500), event(2, 200), event(3, 260)]
    assert minutes_of(events)[0] == {(0, "orders", "produce"): 560}


def test_sums_of_whatever_brokers_say_stay_within_a_table() -> None:
    huge = [event(1, 10**18, broker=broker) for broker in range(20)]
    assert minutes_of(huge)[0] == {(0, "orders", "produce"): differences.MINUTE_MAX}
    some = [event(1, 10**18 - broker, broker=broker) for broker in range(4)]
    assert minutes_of(some)[0] == {(0, "orders", "produce"): 4 * 10**18 - 6}


def test_a_restarted_broker_counts_from_zero_again() -> None:
    stored = {(1, 7, *KEY): (2, 1500, 15)}
    assert minutes_of([event(1, 300, epoch=9)], stored)[0] == {(0, "orders", "produce"): 300}


def test_records_that_are_no_usage_events_are_left_out_and_counted() -> None:
    malformed = (0, 5, *[None] * 11, schema.MALFORMED, "{}")
    assert minutes_of([malformed, event(1, 10, at_ms=5)])[0] == {(0, "orders", "produce"): 10}
    checked = check([as_batch([malformed, event(1, 10)])], 0, (), BOUNDS)
    assert (checked.records, checked.left_out, checked.stop) == (2, 1, 6)
    assert minutes_of([malformed]) == ({}, {})


@pytest.mark.parametrize("seed", range(6))
def test_any_cut_into_runs_gives_what_a_naive_reader_of_the_whole_gives(seed: int) -> None:
    drawn = random.Random(seed)
    totals: dict[tuple[int, str], int] = defaultdict(int)
    naive: dict[Any, int] = defaultdict(int)
    events = []
    for sequence in range(1, 40):
        for topic in ("orders", "clicks"):
            for broker in (1, 2):
                added = drawn.choice([0, 5, 100, 7000])
                totals[broker, topic] += added
                at_ms = sequence * 10_000
                if added:
                    naive[((at_ms - 1) // 60_000) * 60_000, topic, "produce"] += added
                key = ("ins-aaaaaaaa", topic, "ANONYMOUS", "etl", "produce")
                events.append(event(sequence, totals[broker, topic], at_ms=at_ms, broker=broker, key=key))
    cut = sorted(drawn.sample(range(1, len(events)), 2))
    summed: dict[Any, int] = defaultdict(int)
    counters: Last = {}
    for part in (events[: cut[0]], events[cut[0] : cut[1]], events[cut[1] :]):
        result, last = minutes_of(part, counters)
        counters.update(last)
        for where, added in result.items():
            summed[where] += added
    assert summed == naive


def test_rows_are_text_for_copy_whatever_is_in_them() -> None:
    table = pa.table({"number": [7, -1], "name": ['a\tb\\\n"', "\\."], "other": ["", "\u00fc\r"]})
    assert as_text(table).decode() == '7\ta\\tb\\\\\\n"\t\n-1\t\\\\.\t\u00fc\\r\n'
    assert as_text(table.slice(1)).decode() == "-1\t\\\\.\t\u00fc\\r\n"
    assert as_text(table.slice(0, 0)) == b""


def test_names_of_a_table_are_bounded_as_rows_are() -> None:
    drawn = random.Random(3)
    columns = schema.columns(schema.MINUTE_NAMES)
    rows = {
        (f"ins-{drawn.randrange(3)}", 0, f"t{drawn.randrange(9)}", "u", "c", drawn.choice(["produce", "consume"])): (
            drawn.randrange(99), 1,
        )
        for _ in range(80)
    }  # fmt: skip
    table = schema.table(columns, [(*key, *counted) for key, counted in rows.items()])
    assert with_bounded_names(table) is table
    expected = with_others(((*key, *counted) for key, counted in rows.items()), 5)
    assert sorted(tuple(row.values()) for row in with_bounded_names(table, 5).to_pylist()) == sorted(expected)


@pytest.mark.parametrize("seed", range(depth.examples(60)))
def test_hostile_records_are_billed_as_by_a_naive_reader_of_each(seed: int) -> None:
    """Two runs with repeated sequences, reused epochs, restarts, gaps, wrong clocks, garbage, and any names."""
    drawn = random.Random(seed)
    processes = Processes(drawn, brokers=3)
    known: dict[Any, Incarnation] = {}
    stored: Last = {}
    for start in (0, 10_000):
        ranges = [list(processes.reports(40)), list(processes.reports(drawn.randrange(1, 20)))]
        if seed % 2:  # a process of each version
            ranges[1] = in_columns(ranges[1])
        found = []
        for partition, raws in enumerate(ranges):
            cut = drawn.randrange(len(raws))
            offsets = range(start, start + len(raws))
            parts = [part for part in (slice(cut), slice(cut, None)) if raws[part]]
            batches = [batch_of(partition, offsets[part], raws[part]) for part in parts]
            found.append(check(batches, start, known.values(), SPAN))
        reports = differences.distinct(pa.concat_tables([each.reports for each in found]))
        keys = [tuple(row.values()) for row in differences.keys(reports).to_pylist()]
        before = pa.table(
            [[stored.get(key, (None,) * 3)[place] for key in keys] for place in range(3)], schema=differences.LAST
        )
        rows = differences.increments(reports, before)
        minutes, counters, increments = naive_usage.bill(ranges, start, SPAN, known, stored)
        assert as_rows(differences.minutes(rows)) == minutes
        assert as_rows(differences.last_counters(rows)) == counters
        assert as_rows(rows.drop_columns(["counter"])) == increments
        for key, (sequence, *counted) in ((row[: len(COUNTER_KEY)], row[len(COUNTER_KEY) :]) for row in counters):
            earlier = stored.get(key, (-1, 0, 0))
            larger = counted if sequence > earlier[0] else map(max, counted, earlier[1:])
            stored[key] = (sequence, *larger)
        known |= {(each.broker_id, each.broker_epoch): each for one in found for each in one.incarnations}


def as_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())
