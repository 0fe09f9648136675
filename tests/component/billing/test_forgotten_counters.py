"""Removal of counters of processes that ended long ago; later reports of them are not billed again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from django.utils import timezone

from billing import dsn
from billing.models import UsageCounter, UsageIncarnation
from billing.pipeline import sink
from billing.pipeline.doubts import Incarnations
from billing.retention import counters
from brokers.models import Broker, Cluster, Host

pytestmark = pytest.mark.django_db(transaction=True)

NOW = datetime(2026, 6, 30, tzinfo=UTC)
OLD, RECENT = NOW - timedelta(days=46), NOW - timedelta(days=44)


@pytest.fixture()
def cluster() -> Cluster:
    """A cluster with broker 1; broker 2 was removed."""
    cluster = Cluster.objects.create(name="one")
    host = Host.objects.create(name="here", port_first=20_000, port_last=20_099)
    for number, removed_at in ((1, None), (2, timezone.now())):
        Broker.objects.create(
            cluster=cluster, host=host, number=number, internal_port=9000 + number, admin_port=9100 + number,
            data_dirs=["/d"], removed_at=removed_at,
        )  # fmt: skip
    return cluster


def process(cluster: Cluster, broker: int, epoch: int, at: datetime | None, keys: int = 3) -> None:
    """Creates a process with a number of counters, whose last report is of a given time."""
    if at is not None:
        UsageIncarnation.objects.create(
            cluster_id=cluster.pk, broker_id=broker, broker_epoch=epoch, sequence=9, at_ms=int(at.timestamp() * 1000)
        )
    UsageCounter.objects.bulk_create(
        UsageCounter(
            cluster_id=cluster.pk, broker_id=broker, broker_epoch=epoch, instance_id="ins-aaaaaaaa", topic=f"t{n}",
            user="u", client_id="c", direction="produce", sequence=9, bytes=5, requests=1,
        )
        for n in range(keys)
    )  # fmt: skip


def left() -> set[tuple[int, int]]:
    return set(UsageCounter.objects.values_list("broker_id", "broker_epoch"))


def test_processes_that_others_followed_or_whose_broker_is_gone_are_forgotten_after_45_days(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "COUNTERS_PER_DELETE_MAX", 2)
    process(cluster, 1, 3, None)  # from before reports were noted
    process(cluster, 1, 4, OLD - timedelta(days=9))
    process(cluster, 1, 5, OLD)
    process(cluster, 1, 6, RECENT)
    process(cluster, 1, 7, NOW)
    process(cluster, 2, 8, OLD)
    process(cluster, 2, 9, RECENT)

    assert counters.delete_old_counters(NOW) == 12

    assert left() == {(1, 6), (1, 7), (2, 9)}
    assert counters.delete_old_counters(NOW) == 0


def test_the_latest_process_of_a_broker_keeps_its_counters_however_long_it_is_silent(cluster: Cluster) -> None:
    process(cluster, 1, 5, OLD - timedelta(days=300))
    assert counters.delete_old_counters(NOW) == 0 and left() == {(1, 5)}


def test_a_report_of_a_forgotten_process_is_refused_with_its_problem(cluster: Cluster) -> None:
    process(cluster, 1, 5, OLD)
    process(cluster, 1, 6, NOW)
    counters.delete_old_counters(NOW)
    with sink.exclusive(dsn.conninfo(), cluster.pk) as connection:
        known = Incarnations(sink.stored_incarnations(connection, cluster.pk))
    report = pa.RecordBatch.from_pydict(
        {
            "broker_id": [1, 1], "broker_epoch": pa.array([5, 6], pa.int64()), "sequence": [9, 10],
            "at_ms": [int(OLD.timestamp() * 1000)] * 2, "problem": pa.array([None, None], pa.string()),
        }
    )  # fmt: skip
    assert known.refuse_reused(report).column("problem").to_pylist() == ["epoch_reused", None]
