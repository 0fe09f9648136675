"""Instant up to which usage is complete: every broker of the instance's own cluster has reported, others do
not count.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import connection

from billing import dsn, selectors
from billing.models import NEVER, UsageOffset
from billing.pipeline import job, schema, sink
from billing.pipeline.cluster import UsageSource
from billing.pipeline.consuming import UsageConsumer
from brokers.models import Cluster
from tests.testkit.api_cases import Api, make_member
from tests.testkit.fleet import make_fleet, make_instance, place

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
REPORTED_EVERY = timedelta(seconds=10)


def seen(cluster: Cluster, partition: int, at: datetime) -> None:
    UsageOffset.objects.create(cluster_id=cluster.pk, topic="__usage", partition=partition, next_offset=1)
    UsageOffset.objects.filter(cluster_id=cluster.pk, partition=partition).update(updated_at=at)


@pytest.mark.django_db
def test_a_cluster_that_is_behind_is_not_called_complete_because_another_is(tmp_path: Path) -> None:
    owner = make_member()
    slow, fast = make_fleet(tmp_path), make_fleet(tmp_path)
    mine, other = make_instance(owner.tenant), make_instance(owner.tenant)
    place(mine, slow)
    place(other, fast)
    seen(slow, 0, NOON - timedelta(hours=1))
    seen(fast, 0, NOON)
    assert selectors.complete_until(mine.pk) == NOON - timedelta(hours=1) - REPORTED_EVERY
    message = Api.of(owner).get(f"/instances/{other.pk}/usage").json()["complete_until"]
    assert datetime.fromisoformat(message) == NOON - REPORTED_EVERY


@pytest.mark.django_db
def test_the_broker_that_is_known_least_says_what_is_complete(tmp_path: Path) -> None:
    cluster, instance = make_fleet(tmp_path), make_instance(make_member().tenant)
    place(instance, cluster)
    seen(cluster, 0, NOON)
    seen(cluster, 1, NOON - timedelta(minutes=5))
    assert selectors.complete_until(instance.pk) == NOON - timedelta(minutes=5) - REPORTED_EVERY
    assert selectors.applied_until(instance.pk) == NOON - REPORTED_EVERY


@pytest.mark.django_db
def test_nothing_is_complete_where_nothing_was_read_to_its_end(tmp_path: Path) -> None:
    cluster, instance = make_fleet(tmp_path), make_instance(make_member().tenant)
    assert selectors.complete_until(instance.pk) is None
    place(instance, cluster)
    assert selectors.complete_until(instance.pk) is None
    seen(cluster, 0, NEVER)
    assert selectors.complete_until(instance.pk) is None


@pytest.mark.django_db(transaction=True)
def test_a_look_that_finds_nothing_further_makes_an_idle_cluster_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    source = UsageSource(cluster_id="cl-aaaaaaaa", bootstrap="127.0.0.1:1", username="nobody", password="none")
    monkeypatch.setattr(UsageConsumer, "available", lambda _consumer: {0: (0, 5), 1: (0, 0)})
    with sink.exclusive(dsn.conninfo(), source.cluster_id) as opened:
        minutes, counters = (schema.table(each, ()) for each in (schema.columns(schema.MINUTE_NAMES), schema.COUNTER))
        applied = {"start": {0: 0}, "stop": {0: 5}, "minutes": minutes, "counters": counters}
        sink.commit(opened, cluster_id=source.cluster_id, **applied)
    assert UsageOffset.objects.get().updated_at == NEVER

    def no_session() -> None:
        raise AssertionError("nothing is to be read")

    before = datetime.now(UTC)
    assert job.run(no_session, source, dsn.conninfo()).is_caught_up
    rows = UsageOffset.objects.order_by("partition")
    assert list(rows.values_list("partition", "next_offset")) == [(0, 5), (1, 0)]
    assert all(before <= row.updated_at <= datetime.now(UTC) for row in rows)


@pytest.mark.django_db(transaction=True)
def test_a_partition_with_more_than_was_applied_stays_as_it_was_known() -> None:
    with sink.exclusive(dsn.conninfo(), "cl-aaaaaaaa") as opened:
        sink.record_read_times(opened, "cl-aaaaaaaa", {0: 5}, NOON)
        sink.record_read_times(opened, "cl-aaaaaaaa", {0: 9}, NOON + timedelta(minutes=1))
        sink.record_read_times(opened, "cl-aaaaaaaa", {0: 5}, NOON - timedelta(minutes=1))
    assert UsageOffset.objects.get().updated_at == NOON
    assert not connection.in_atomic_block
