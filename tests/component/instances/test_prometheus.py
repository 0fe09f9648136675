"""Prometheus metrics of an instance: their values, their escaping, and the bounds of a scrape."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from instances.groups import lag_history
from instances.interfaces import Throttles, TopicSizes, Traffic
from instances.limits import METRIC_LAGS_MAX, METRIC_TOPICS_MAX
from instances.metrics import prometheus
from instances.metrics.prometheus import ScrapeValues
from tenants.access import ROLE_SCOPES
from tenants.choices import Role, Scope
from tests.component.instances.conftest import FakeObservation
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fleet import make_running

NOW_MS = 1_790_000_000_500


def figures(*, topics: int = 0, lags: dict[tuple[str, str], int] | None = None, points: int = 0) -> ScrapeValues:
    until_ms = NOW_MS - 500
    return ScrapeValues(
        bandwidth_mb_s=20,
        storage_gb=3,
        traffic=Traffic(
            now_ms=NOW_MS, step_ms=1_000, alive_since_ms=0, known_by_broker={}, by_broker={}, silent=(),
            points=tuple((until_ms - (points - at) * 1_000, 600, 60, 0) for at in range(points)),
        ),
        throttles=Throttles(now_ms=NOW_MS, entries=(), silent=()),
        sizes=TopicSizes(
            topics={f"t{at:04}": (at, 2 * at) for at in range(topics)}, partitions={}, silent=(), stored_bytes=77
        ),
        lags=lags or {},
        lags_age_s=1.5,
    )  # fmt: skip


def message(found: ScrapeValues) -> dict[str, dict[tuple[str, ...], float]]:
    """Returns the samples of the text by name and label values, read by Prometheus' own parser."""
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(prometheus.render(found))
    }


def test_limits_stand_beside_what_is_used_and_rates_are_those_of_a_minute() -> None:
    shown = message(figures(points=90))
    assert shown["penstock_instance_produce_bytes_per_second"] == {(): 600.0}
    assert shown["penstock_instance_consume_bytes_per_second"] == {(): 60.0}
    assert shown["penstock_instance_bandwidth_limit_bytes_per_second"] == {(): 20_000_000.0}
    assert shown["penstock_instance_storage_limit_bytes"] == {(): 3_000_000_000.0}
    assert shown["penstock_instance_stored_bytes"] == {(): 77.0}


def test_each_broker_counts_each_cause() -> None:
    totals = {1: {"client_quota": (3, 1_500), "capacity": (2, 0)}, 2: {"client_quota": (1, 20)}}
    shown = message(replace(figures(), throttles=Throttles(now_ms=NOW_MS, entries=(), silent=(), totals=totals)))
    assert shown["penstock_instance_throttled_requests"] == {
        ("1", "client_quota"): 3.0, ("1", "capacity"): 2.0, ("2", "client_quota"): 1.0,
    }  # fmt: skip
    assert shown["penstock_instance_throttle_seconds"]["1", "client_quota"] == 1.5


def test_traffic_that_has_just_begun_is_spread_over_the_minute() -> None:
    assert message(figures(points=6))["penstock_instance_produce_bytes_per_second"] == {(): 60.0}


@pytest.mark.parametrize("name", ['say "hello"', "back\\slash", "two\nlines", "组", "a/b", "{x}=1"])
def test_any_name_of_a_group_survives_the_format(name: str) -> None:
    shown = message(figures(lags={(name, "orders"): 7}))
    assert shown["penstock_group_lag_messages"] == {(name, "orders"): 7.0}


def test_metrics_beyond_the_limits_keep_the_largest_and_count_the_rest() -> None:
    lags = {(f"g{at}", "orders"): at for at in range(METRIC_LAGS_MAX + 5)}
    shown = message(figures(topics=METRIC_TOPICS_MAX + 3, lags=lags))
    assert len(shown["penstock_topic_size_bytes"]) == len(shown["penstock_topic_messages"]) == METRIC_TOPICS_MAX
    assert ("t0002",) not in shown["penstock_topic_size_bytes"]
    assert len(shown["penstock_group_lag_messages"]) == METRIC_LAGS_MAX
    assert shown["penstock_metrics_left_out"] == {(): 8.0}


@pytest.mark.django_db
def test_a_scrape_tells_lags_that_nobody_looked_at_and_only_to_who_may_see_groups(observation: FakeObservation) -> None:
    owner = make_member()
    instance = make_running(owner.tenant)
    now_ms = time.time_ns() // 1_000_000
    lag_history.record_samples(
        instance.pk, {"etl": {("orders", 0): 3, ("orders", 1): 0}}, {("orders", 0): 9, ("orders", 1): 4}, now_ms
    )
    at = f"/instances/{instance.pk}/metrics/prometheus"
    answer = Api.of(owner).get(at, Accept="text/plain;version=0.0.4")
    assert answer.status_code == 200
    assert answer["Content-Type"] == prometheus.CONTENT_TYPE
    assert 'penstock_group_lag_messages{group="etl",topic="orders"} 10.0' in answer.content.decode()
    blind = Api.of(owner, ROLE_SCOPES[Role.OWNER] - {Scope.GROUPS_READ}).get(at)
    assert blind.status_code == 200
    assert "etl" not in blind.content.decode()


@pytest.mark.django_db
def test_silence_of_all_brokers_is_said_instead_of_zeros(observation: FakeObservation) -> None:
    owner = make_member()
    observation.now_ms = 0
    at = f"/instances/{make_running(owner.tenant).pk}"
    for what in ("metrics/prometheus", "metrics", "throughput"):
        assert_problem(Api.of(owner).get(f"{at}/{what}"), 503, "unavailable")
