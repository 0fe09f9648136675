"""Implausible usage records through a real broker, Spark and PostgreSQL: reported, without stopping the pipeline."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from pyspark.sql import SparkSession

from billing.lake import replay
from billing.lake.address import open_lake
from billing.models import UsageHour, UsageProblem
from brokers.contract.usage import UsageEvent
from tests.component.pipeline.test_backlog import (
    begun_at_the_end,
    billed,
    both_ways,
    conf_of,
    runs_until_caught_up,
    write,
)
from tests.testkit.engine import EngineCluster

pytestmark = [
    pytest.mark.django_db(transaction=True), pytest.mark.timeout(300),
    pytest.mark.usefixtures("begun_at_the_end", "both_ways"),
]  # fmt: skip
__all__ = ["begun_at_the_end", "both_ways"]

DAY_MS = 86_400_000


def event(sequence: int, count: int, **changes: Any) -> bytes:
    values = {
        "broker_id": 9, "broker_epoch": 5, "sequence": sequence, "at_ms": int(time.time() * 1_000),
        "instance_id": "ins-doubted", "topic": "orders", "user": "app", "client_id": "etl", "direction": "produce",
        "bytes": count, "requests": sequence,
    }  # fmt: skip
    return UsageEvent(**(values | changes)).to_json()


def problems() -> dict[str, tuple[int, int]]:
    """Returns broker and records of each kind."""
    return {row.kind: (row.broker_id, row.records) for row in UsageProblem.objects.all()}


def test_unreadable_records_are_counted_and_reported_and_the_others_are_billed(
    cluster: EngineCluster, spark: SparkSession, tmp_path: Path
) -> None:
    hostile = [
        event(2, 100, at_ms=10**18), event(2, 100, instance_id="i" * 17), event(2, -5), event(2, 2**63), b"\xff", b"",
        b"[1,2,3]", event(2, 9, topic="\x00"), event(2, 9, client_id="c" * 9_000),
    ]  # fmt: skip
    write(conf_of(cluster), [event(1, 40), *hostile, b"[3,9,9]", event(3, 70)])
    runs_until_caught_up(cluster, spark, tmp_path)
    assert billed("ins-doubted") == 70 + 9 + 9, "names are made harmless, and counted"
    assert problems() == {"malformed": (-1, 7), "newer_version": (-1, 1)}
    write(conf_of(cluster), [b"\xff", event(4, 90)])
    runs_until_caught_up(cluster, spark, tmp_path)
    assert billed("ins-doubted") == 90 + 9 + 9
    assert problems()["malformed"] == (-1, 8)
    UsageProblem.objects.update(handled_at=timezone.now())
    write(conf_of(cluster), [b"\xff"])
    runs_until_caught_up(cluster, spark, tmp_path)
    assert [row.records for row in UsageProblem.objects.filter(kind="malformed").order_by("pk")] == [8, 1]


def test_usage_by_a_clock_that_is_wrong_is_billed_when_it_was_read(
    cluster: EngineCluster, spark: SparkSession, tmp_path: Path
) -> None:
    """90 days back, and 400 days ahead. Tables and lake agree."""
    now_ms = int(time.time() * 1_000)
    write(conf_of(cluster), [event(1, 100, at_ms=now_ms - 90 * DAY_MS), event(2, 250, at_ms=now_ms + 400 * DAY_MS)])
    runs_until_caught_up(cluster, spark, tmp_path)
    now = datetime.now(UTC)
    hours = UsageHour.objects.filter(instance_id="ins-doubted")
    assert sum(row.bytes for row in hours) == 250
    assert all(abs(row.hour - now) < timedelta(hours=2) for row in hours)
    (problem,) = UsageProblem.objects.all()
    assert (problem.kind, problem.broker_id, problem.records) == ("clock", 9, 2)
    assert problem.detail == str(now_ms + 400 * DAY_MS)
    place = open_lake(tmp_path.as_uri())
    span = now - timedelta(days=1), now + timedelta(days=1)
    assert sum(each.bytes for each in replay.hours(place, ["ins-doubted"], *span)) == 250


def test_an_epoch_that_is_used_again_is_refused_and_reported(
    cluster: EngineCluster, spark: SparkSession, tmp_path: Path
) -> None:
    """A restored registry gives a second process the epoch of the first; a third one has its own."""
    now_ms = int(time.time() * 1_000)
    write(conf_of(cluster), [event(n, n * 1_000, at_ms=now_ms + n) for n in range(1, 6)])
    runs_until_caught_up(cluster, spark, tmp_path)
    write(conf_of(cluster), [event(n, n * 100, at_ms=now_ms + 1_000 + n) for n in range(1, 9)])
    runs_until_caught_up(cluster, spark, tmp_path)
    assert problems() == {"epoch_reused": (9, 8)}
    write(conf_of(cluster), [event(9, 9_000, at_ms=now_ms + 2_000)])
    runs_until_caught_up(cluster, spark, tmp_path)
    assert problems() == {"epoch_reused": (9, 9)} and billed("ins-doubted") == 5_000
    write(conf_of(cluster), [event(1, 700, at_ms=now_ms + 3_000, broker_epoch=6)])
    runs_until_caught_up(cluster, spark, tmp_path)
    assert billed("ins-doubted") == 5_700


def test_a_report_that_is_said_again_with_more_counts_once_in_tables_and_lake(
    cluster: EngineCluster, spark: SparkSession, tmp_path: Path
) -> None:
    """Its first attempt was partly appended."""
    for sequence, count in ((1, 100), (1, 150), (2, 170)):
        write(conf_of(cluster), [event(sequence, count)])
        runs_until_caught_up(cluster, spark, tmp_path)
    assert billed("ins-doubted") == 170
    now = datetime.now(UTC)
    found = replay.hours(open_lake(tmp_path.as_uri()), None, now - timedelta(days=1), now + timedelta(days=1))
    assert sum(each.bytes for each in found if each.instance_id == "ins-doubted") == 170
