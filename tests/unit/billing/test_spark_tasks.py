"""Ranges that are summed separately and joined: the results for the driver, and ranges that it reads together."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pyarrow as pa
import pytest

from billing.pipeline import differences, spark_tasks
from billing.pipeline.checking import Checked, check
from billing.pipeline.decoding import batch_of
from billing.pipeline.rounds import PlannedRange, Round, StoredCounters, UsageLost
from config.environment import BASE_DIR
from tests.testkit.usage_reports import BOUNDS, NOW_MS, Processes, event_of

KEY = ("ins-00000000", "orders", "app", "etl", "produce")


def report(sequence: int, size: int, broker: int = 1, epoch: int = 7) -> bytes:
    return event_of(broker, epoch, sequence, NOW_MS + sequence, KEY, (size, sequence))


def checked(*raws: bytes | None, partition: int = 0) -> Checked:
    return check([batch_of(partition, range(len(raws)), raws)], 0, (), BOUNDS)


def none_stored(keys: pa.Table) -> pa.Table:
    return differences.none_stored(keys.num_rows)


def joined(*ranges: Checked, stored: StoredCounters = none_stored) -> Round | None:
    planned = [
        PlannedRange(partition=place, start=0, stop=each.stop, bounds=BOUNDS) for place, each in enumerate(ranges)
    ]
    results = [spark_tasks.aggregate(each)[0] for each in ranges]
    return spark_tasks.combine_results(planned, results, stored)


@pytest.mark.parametrize("module", ["archives.loading", "archives.reading", "archives.tunnel", spark_tasks.__name__])
def test_modules_of_tasks_need_no_settings_of_django(module: str) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    subprocess.run([sys.executable, "-c", f"import {module}"], env=environ, cwd=BASE_DIR, check=True, timeout=60)


def test_tasks_return_the_first_report_of_each_counter_and_keep_the_others() -> None:
    result, later = spark_tasks.aggregate(checked(*(report(n, n * 10) for n in range(1, 30))))
    assert result.first.column("sequence").to_pylist() == [1]
    assert result.counters.select(["sequence", "bytes"]).to_pylist() == [{"sequence": 29, "bytes": 290}]
    assert later.num_rows == 28 and sum(later.column("added_bytes").to_pylist()) == 280
    assert result.checked.reports.num_rows == 0 and result.minutes.num_rows == 1


def test_the_first_report_is_counted_from_what_is_stored() -> None:
    def stored(keys: pa.Table) -> pa.Table:
        assert keys.num_rows == 2
        return pa.table([[4, None], [30, None], [3, None]], schema=differences.LAST)

    found = joined(checked(report(5, 50), report(6, 90)), checked(report(1, 7, broker=2)), stored=stored)
    assert found is not None
    assert sum(found.minutes.column("bytes").to_pylist()) == 60 + 7
    assert sorted(found.reports.column("added_bytes").to_pylist()) == [7, 20]
    assert (found.records, found.ranges) == (3, {0: (0, 2), 1: (0, 1)})


def test_reports_of_one_counter_in_two_ranges_are_read_together() -> None:
    assert joined(checked(report(1, 10)), checked(report(2, 20), partition=1)) is None


@pytest.mark.parametrize("sequence", [5, 9])
def test_reports_that_were_read_before_are_read_together(sequence: int) -> None:
    """The stored counters decide which of them are new."""
    stored = pa.table([[sequence], [50], [5]], schema=differences.LAST)
    assert joined(checked(report(5, 60), report(10, 90)), stored=lambda _keys: stored) is None


def test_records_that_were_not_delivered_stop_the_run() -> None:
    short = check([batch_of(0, [0, 2], [report(1, 1), report(3, 3)])], 0, (), BOUNDS)
    with pytest.raises(UsageLost, match="read 2 of the 3 usage records of partition 0 from 0 on"):
        joined(short)


def test_any_ranges_of_processes_that_keep_to_theirs_come_to_the_same_as_when_read_together() -> None:
    drawn = random.Random(11)
    ranges = []
    for place in range(3):
        processes = Processes(drawn, brokers=1, hostile=False)
        processes._state = {0: (100 + place, 0, {})}
        ranges.append(checked(*processes.reports(40), partition=place))
    found = joined(*ranges)
    assert found is not None
    reports = differences.distinct(pa.concat_tables([each.reports for each in ranges]))
    rows = differences.increments(reports, differences.none_stored(differences.keys(reports).num_rows))

    def sorted_rows(table: pa.Table) -> list[dict[str, object]]:
        return sorted(table.to_pylist(), key=str)

    assert sorted_rows(found.minutes) == sorted_rows(differences.minutes(rows))
    assert sorted_rows(found.counters) == sorted_rows(differences.last_counters(rows))
