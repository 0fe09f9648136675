"""Past causes of throttling: stored by the minute, bounded, summed over brokers, shown to the owner only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from instances import services
from instances.limits import (
    THROTTLED_CAUSES_MAX,
    THROTTLED_CLIENTS_MAX,
    THROTTLED_MINUTES_KEPT,
    THROTTLED_NAME_CHARS_MAX,
    THROTTLED_STEPS_SHOWN_MAX,
)
from instances.metrics.throttle_history import past_causes
from instances.models import Instance, ThrottledMinute
from instances.services import ThrottledMinuteReport
from instances.services.throttled_minutes import heaviest_causes
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fleet import make_running

pytestmark = pytest.mark.django_db


def cause(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "client_quota", "quota": "producer_byte_rate", "level": 3, "entity": {"user": "etl"},
        "whole_limit_per_s": 2_000_000.0, "count": 4, "waited_ms": 100, "longest_ms": 60,
        "clients": [["etl", "flink-1", 3, 80], ["etl", "flink-2", 1, 20]], **changes,
    }  # fmt: skip


def keep(instance: Instance, at: datetime, *causes: dict[str, Any], broker: int = 1, incarnation_ms: int = 1) -> None:
    at_ms = round(at.timestamp() * 1_000)
    services.store_throttled_minutes([ThrottledMinuteReport(instance.pk, at_ms, broker, incarnation_ms, causes)])


@pytest.fixture
def instance() -> Instance:
    return make_running(make_member().tenant)


@pytest.fixture
def hour() -> datetime:
    return timezone.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)


def test_minutes_of_all_brokers_add_up_by_step_and_cause(instance: Instance, hour: datetime) -> None:
    keep(instance, hour, cause())
    keep(instance, hour + timedelta(minutes=5), cause(longest_ms=90, clients=[["etl", "flink-2", 4, 500]]), broker=2)
    keep(instance, hour, cause(kind="capacity", quota="storage", level=None, entity={}, waited_ms=0, longest_ms=0))
    keep(instance, hour + timedelta(hours=1), cause())
    keep(instance, hour, cause(), incarnation_ms=2)

    causes, reaches_to = past_causes(instance, start=hour, end=hour + timedelta(hours=2), step_s=3_600)

    assert reaches_to is None
    assert [(item.start, item.kind) for item in causes] == [
        (hour + timedelta(hours=1), "client_quota"), (hour, "client_quota"),
    ]  # fmt: skip
    first = causes[1]
    assert (first.count, first.waited_ms, first.delay_ms_max, first.brokers) == (12, 300, 90, (1, 2))
    assert first.clients == (("etl", "flink-2"), ("etl", "flink-1"))
    assert (first.entity, first.whole_limit_per_s) == ({"user": "etl"}, 2_000_000.0)


def test_a_cause_that_refuses_is_listed_beside_those_that_delay(instance: Instance, hour: datetime) -> None:
    refused = cause(kind="frozen", quota="frozen", level=None, entity={}, waited_ms=0, longest_ms=0, clients=[])
    keep(instance, hour, cause(), refused)
    causes, _ = past_causes(instance, start=hour, end=hour + timedelta(hours=1), step_s=60)
    assert [(item.kind, item.waited_ms, item.clients[:1]) for item in causes] == [
        ("client_quota", 100, (("etl", "flink-1"),)), ("frozen", 0, ()),
    ]  # fmt: skip


def test_a_long_list_says_how_far_back_it_reaches(instance: Instance, hour: datetime) -> None:
    start = hour - timedelta(days=1)
    for number in range(THROTTLED_STEPS_SHOWN_MAX + 5):
        keep(instance, start + timedelta(minutes=number), cause())
    causes, reaches_to = past_causes(instance, start=start, end=hour, step_s=60)
    assert len(causes) == THROTTLED_STEPS_SHOWN_MAX
    assert reaches_to == causes[-1].start == start + timedelta(minutes=5)


def test_a_row_is_bounded_whatever_clients_and_entities_are_called() -> None:
    name = "组\x00" * 2_000
    worst = [
        cause(entity={"user": name, "client_id": name}, waited_ms=number, clients=[[name, name, 1, 1]] * 50)
        for number in range(500)
    ]
    kept = heaviest_causes(worst)
    assert [item["waited_ms"] for item in kept] == list(range(499, 499 - THROTTLED_CAUSES_MAX, -1))
    assert all(len(item["clients"]) == THROTTLED_CLIENTS_MAX for item in kept)
    names = [text for item in kept for each in (item["entity"], *item["clients"]) for text in each.values()]
    assert max(len(text) for text in names if isinstance(text, str)) == THROTTLED_NAME_CHARS_MAX
    assert not any("\x00" in text for text in names if isinstance(text, str))


def test_worst_names_are_taken_by_the_database(instance: Instance, hour: datetime) -> None:
    keep(instance, hour, cause(entity={"user": "a\x00'\"\\{}", "client_id": None}, clients=[["\x00", "💥%s", 1, 1]]))
    (item,), _ = past_causes(instance, start=hour, end=hour + timedelta(hours=1), step_s=60)
    assert item.entity == {"user": "a\ufffd'\"\\{}", "client_id": None}


def test_old_minutes_go_and_young_ones_stay(instance: Instance) -> None:
    now = timezone.now()
    keep(instance, now - THROTTLED_MINUTES_KEPT - timedelta(minutes=2), cause())
    keep(instance, now - THROTTLED_MINUTES_KEPT + timedelta(hours=1), cause())
    assert services.delete_old_throttled_minutes(now) == 1
    assert ThrottledMinute.objects.count() == 1


def test_the_owner_reads_minutes_page_by_page(hour: datetime) -> None:
    owner = make_member()
    instance = make_running(owner.tenant)
    for number in range(5):
        keep(instance, hour + timedelta(minutes=number), cause(), broker=1 + number % 2)
    api = Api.of(owner)
    span = f"since={hour:%Y-%m-%dT%H:%M:%SZ}&until={hour + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    at = f"/instances/{instance.pk}/throttles?{span}&page_size=2"

    first = api.get(at).json()
    second = api.get(f"{at}&page_token={first['next_page_token']}").json()

    assert [item["minute"][14:16] for item in (*first["items"], *second["items"])] == ["04", "03", "02", "01"]
    shown = first["items"][0]
    assert shown["broker_id"] == 1
    assert shown["causes"][0] == {
        "kind": "client_quota", "quota": "producer_byte_rate", "level": 3, "entity": {"user": "etl"},
        "unit": "bytes_per_s", "whole_limit_per_s": 2_000_000.0, "count": 4, "waited_ms": 100, "delay_ms_max": 60,
        "clients": [
            {"user": "etl", "client_id": "flink-1", "count": 3, "waited_ms": 80},
            {"user": "etl", "client_id": "flink-2", "count": 1, "waited_ms": 20},
        ],
    }  # fmt: skip
    assert_problem(Api.of(make_member()).get(at), 404, "not_found")


def test_a_span_that_ends_before_it_begins_is_refused() -> None:
    owner = make_member()
    at = f"/instances/{make_running(owner.tenant).pk}/throttles"
    assert_problem(Api.of(owner).get(f"{at}?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z"), 400)
    assert_problem(Api.of(owner).get(f"{at}?until=0001-01-01T00:00:00Z"), 400)
    assert Api.of(owner).get(at).json() == {"items": [], "next_page_token": None}
