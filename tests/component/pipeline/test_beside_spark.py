"""Equality of usage summed on Arrow columns and in DataFrames of Spark, round by round."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from billing.lake.files import COLUMNS
from billing.pipeline import decoding, differences, schema, spark_tasks
from billing.pipeline.checking import check
from billing.pipeline.doubts import Incarnation, with_bounded_clock
from billing.pipeline.fields import as_batch
from billing.pipeline.rounds import PlannedRange
from brokers.contract.usage import COUNTER_KEY
from tests.component.pipeline import by_spark
from tests.component.pipeline.conftest import PLANTED
from tests.testkit import naive_usage
from tests.testkit.usage_reports import BOUNDS, Processes, in_columns

Rows = list[tuple[Any, ...]]
ROUNDS, REPORTS = 3, 60


class Stored:
    """Counters that PostgreSQL keeps between runs."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], tuple[int, int, int]] = {}

    def put(self, rows: Rows) -> None:
        for row in rows:
            key, (sequence, *counted) = row[: len(COUNTER_KEY)], row[len(COUNTER_KEY) :]
            before = self.rows.get(key)
            if before is None or sequence > before[0]:
                self.rows[key] = (sequence, *counted)
            elif sequence == before[0]:
                self.rows[key] = (sequence, *map(max, before[1:], counted))

    def of(self, keys: pa.Table) -> pa.Table:
        found = [self.rows.get(tuple(row.values()), (None, None, None)) for row in keys.to_pylist()]
        columns = zip(*found, strict=True) if found else [(), (), ()]
        return pa.Table.from_arrays([pa.array(column, pa.int64()) for column in columns], schema=differences.LAST)


def rows_of(table: pa.Table) -> Rows:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def made_by_spark(
    spark: SparkSession, ranges: list[list[bytes | None]], start: int, known: dict[Any, Incarnation], stored: Stored
) -> tuple[Rows, Rows, Rows, dict[Any, Incarnation]]:
    """Returns minutes, counters, reports and processes of one round."""
    tables, latest = [], dict(known)
    for partition, raws in enumerate(ranges):
        rows = [row for place, raw in enumerate(raws) for row in decoding.rows_of(partition, start + place, raw)]
        events = pa.Table.from_batches([with_bounded_clock(as_batch(rows), BOUNDS)])
        names = ("broker_id", "broker_epoch", "sequence", "at_ms")
        of_range = dict(known)
        refused = naive_usage.refused_reports(
            zip(*(events.column(name).to_pylist() for name in names), strict=True), of_range
        )
        problem = pc.if_else(pa.array(refused), schema.EPOCH_REUSED, events.column("problem"))
        tables.append(events.set_column(events.schema.get_field_index("problem"), "problem", problem))
        latest |= of_range
    events = pa.concat_tables(tables)
    frame = spark.createDataFrame([tuple(row.values()) for row in events.to_pylist()], schema.spark_ddl(schema.EVENT))
    counters = spark.createDataFrame(
        [(*key, *row) for key, row in stored.rows.items()], schema.spark_ddl(schema.COUNTER)
    )
    reports = by_spark.distinct_reports(by_spark.well_formed(frame))
    increments = by_spark.increments(reports, counters).persist()
    minutes, last = by_spark.minutes(increments), by_spark.last_counters(increments)
    result = rows_of(minutes.toArrow()), rows_of(last.toArrow()), rows_of(increments.select(*COLUMNS).toArrow()), latest
    increments.unpersist()
    return result


def planned(ranges: list[list[bytes | None]], start: int) -> list[PlannedRange]:
    return [
        PlannedRange(partition=partition, start=start, stop=start + len(raws), bounds=BOUNDS)
        for partition, raws in enumerate(ranges)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_random_and_hostile_records_are_billed_as_by_dataframes(spark: SparkSession, seed: int) -> None:
    """Sequences said again, epochs used again, restarts, gaps, clocks, garbage: minutes, counters and the lake's rows
    are the same, in one process and in tasks that see one range each. In the last case processes move to another
    partition.
    """
    drawn = random.Random(seed)
    processes = [Processes(drawn, brokers=2, hostile=seed % 2 == 0), Processes(drawn, brokers=2, hostile=seed > 1)]
    processes[1]._state = {0: (50, 0, {}), 1: (51, 0, {})}
    stored, known, start = Stored(), {}, 0
    by_tasks = 0
    for round_number in range(ROUNDS):
        ranges = [list(each.reports(REPORTS)) for each in processes]
        if seed > 1:  # processes of both versions
            ranges[0] = in_columns(ranges[0])
        if round_number == 1 and seed == 3:
            ranges[0], ranges[1] = ranges[0] + ranges[1][:9], ranges[1][9:]
        minutes, counters, reports, latest = made_by_spark(spark, ranges, start, known, stored)
        checked = []
        for partition, raws in enumerate(ranges):
            offsets = list(range(start, start + len(raws)))
            cut = drawn.randrange(1, len(raws))
            batches = [
                decoding.batch_of(partition, offsets[:cut], raws[:cut]),
                decoding.batch_of(partition, offsets[cut:], raws[cut:]),
            ]
            checked.append(check(batches, start, known.values(), BOUNDS))

        distinct = differences.distinct(pa.concat_tables([each.reports for each in checked]))
        found = differences.increments(distinct, stored.of(differences.keys(distinct)))
        assert rows_of(found.select(list(COLUMNS))) == reports
        assert naive_usage.bill(ranges, start, BOUNDS, known, stored.rows) == (minutes, counters, reports)
        assert rows_of(differences.minutes(found)) == minutes
        assert rows_of(differences.last_counters(found)) == counters
        results = [spark_tasks.aggregate(each) for each in checked]
        joined = spark_tasks.combine_results(planned(ranges, start), [result for result, _ in results], stored.of)
        if joined is not None:
            by_tasks += 1
            assert rows_of(joined.minutes) == minutes
            assert rows_of(joined.counters) == counters
            assert sorted(rows_of(joined.reports) + [row for _, later in results for row in rows_of(later)]) == reports

        stored.put(counters)
        for each in (each for found in checked for each in found.incarnations):
            before = known.get((each.broker_id, each.broker_epoch), each)
            known[each.broker_id, each.broker_epoch] = Incarnation(
                each.broker_id, each.broker_epoch, max(before.sequence, each.sequence), max(before.at_ms, each.at_ms),
                before.is_refused or each.is_refused,
            )  # fmt: skip
        assert {key for key, each in known.items() if each.is_refused} == {
            key for key, each in latest.items() if each.is_refused
        }
        start += max(map(len, ranges))
    assert by_tasks == ROUNDS or seed != 1


def test_spark_is_not_given_the_secrets_of_who_starts_it(spark: SparkSession) -> None:
    java = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/environ").read_bytes()
    (python,) = spark.sparkContext.parallelize([0], 1).map(lambda _: dict(os.environ)).collect()
    assert b"JAVA_HOME" in java
    assert PLANTED.encode() not in java
    assert PLANTED not in python.values()
