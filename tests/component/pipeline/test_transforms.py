"""billing.pipeline.transforms on hand-written rows, and against a naive twin."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from pathlib import Path

import pytest

from billing.pipeline import schema, transforms
from tests.component.pipeline.conftest import PLANTED

KEY = ("ins-aaaaaaaa", "orders", "ANONYMOUS", "etl", "produce")


def event(sequence: int, total: int, *, at_ms: int = 0, offset: int = 0, broker: int = 1, epoch: int = 7, key=KEY):
    return (0, offset, broker, epoch, sequence, at_ms, *key, total, total // 100, None, None)


def minutes_of(spark, events, counters=()):
    rows = transforms.increments(
        transforms.distinct_reports(
            transforms.well_formed(spark.createDataFrame(events, schema.spark_ddl(schema.EVENT)))
        ),
        spark.createDataFrame(list(counters), schema.spark_ddl(schema.COUNTER)),
    )
    result = {(row.minute_ms, row.topic, row.direction): row.bytes for row in transforms.minutes(rows).collect()}
    last = {tuple(row)[:7]: tuple(row)[7:] for row in transforms.last_counters(rows).collect()}
    return result, last


def test_counters_become_differences_in_the_minute_that_ends_with_the_report(spark):
    events = [event(1, 1000, at_ms=10_000), event(2, 1500, at_ms=60_000), event(3, 4000, at_ms=60_001)]
    result, last = minutes_of(spark, events)
    assert result == {(0, "orders", "produce"): 1500, (60_000, "orders", "produce"): 2500}
    assert last == {(1, 7, *KEY): (3, 4000, 40)}


def test_spark_is_not_given_the_secrets_of_who_starts_it(spark):
    java = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/environ").read_bytes()
    (python,) = spark.sparkContext.parallelize([0], 1).map(lambda _: dict(os.environ)).collect()
    assert b"JAVA_HOME" in java
    assert PLANTED.encode() not in java
    assert PLANTED not in python.values()


def test_repeated_and_reordered_events_change_nothing(spark):
    events = [event(2, 1500, at_ms=20_000), event(1, 1000, at_ms=10_000), event(2, 1500, at_ms=20_000)]
    assert minutes_of(spark, events)[0] == {(0, "orders", "produce"): 1500}


def test_a_lost_event_loses_no_bytes(spark):
    assert minutes_of(spark, [event(1, 1000, at_ms=10_000), event(4, 9000, at_ms=40_000)])[0] == {
        (0, "orders", "produce"): 9000
    }


def test_a_run_continues_from_the_stored_counter_and_ignores_what_it_already_covers(spark):
    stored = [(1, 7, *KEY, 2, 1500, 15)]
    events = [event(1, 1000, at_ms=10_000), event(2, 1500, at_ms=20_000), event(3, 1700, at_ms=30_000)]
    assert minutes_of(spark, events, stored)[0] == {(0, "orders", "produce"): 200}


def test_a_report_that_is_said_again_with_larger_counters_counts_for_the_rest(spark):
    """It was appended in part, and said again under its sequence ten seconds later: 150, not 100."""
    first, last = minutes_of(spark, [event(5, 100, at_ms=10_000)])
    again, last = minutes_of(spark, [event(5, 150, at_ms=20_000)], [(*key, *value) for key, value in last.items()])
    assert first[0, "orders", "produce"] + again[0, "orders", "produce"] == 150
    assert last == {(1, 7, *KEY): (5, 150, 1)}
    assert minutes_of(spark, [event(5, 120, at_ms=30_000)], [(1, 7, *KEY, 5, 150, 1)]) == ({}, {})


def test_sums_of_whatever_brokers_say_stay_within_a_table(spark):
    huge = [event(1, 10**18, at_ms=10, broker=broker) for broker in range(20)]
    assert minutes_of(spark, huge)[0] == {(0, "orders", "produce"): transforms.MINUTE_MAX}


def test_a_restarted_broker_counts_from_zero_again(spark):
    stored = [(1, 7, *KEY, 2, 1500, 15)]
    assert minutes_of(spark, [event(1, 300, at_ms=10_000, epoch=9)], stored)[0] == {(0, "orders", "produce"): 300}


def test_records_that_are_no_usage_events_are_left_out(spark):
    malformed = (0, 5, *[None] * 11, schema.MALFORMED, "{}")
    assert minutes_of(spark, [malformed, event(1, 10, at_ms=5)])[0] == {(0, "orders", "produce"): 10}


@pytest.mark.parametrize("seed", range(2))
def test_any_cut_into_runs_gives_what_a_naive_reader_of_the_whole_gives(spark, seed):
    rng = random.Random(seed)
    totals: dict[tuple, int] = defaultdict(int)
    events, naive = [], defaultdict(int)
    for sequence in range(1, 40):
        for topic in ("orders", "clicks"):
            for broker in (1, 2):
                added = rng.choice([0, 5, 100, 7000])
                key = ("ins-aaaaaaaa", topic, "ANONYMOUS", "etl", "produce")
                totals[broker, topic] += added
                at_ms = sequence * 10_000
                if added:
                    naive[((at_ms - 1) // 60_000) * 60_000, topic, "produce"] += added
                events.append(event(sequence, totals[broker, topic], at_ms=at_ms, broker=broker, key=key))
    cut = sorted(rng.sample(range(len(events)), 2))
    summed, counters = defaultdict(int), {}
    for part in (events[: cut[0]], events[cut[0] : cut[1]], events[cut[1] :]):
        result, last = minutes_of(spark, part, [(*key, *value) for key, value in counters.items()])
        counters.update(last)
        for where, added in result.items():
            summed[where] += added
    assert dict(summed) == dict(naive)
