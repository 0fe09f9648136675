"""Longer spans of the chart: metered minutes and stored delays, and a sentence where there are none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from brokers.monitoring.delays import longest_delays
from instances import services
from instances.limits import DELAYED_MINUTES_KEPT
from instances.models import DelayedMinute, Instance
from tenants.models import Member
from tests.testkit.billing import create_usage

SPANS = ("3h", "24h", "30d")


@pytest.fixture
def now() -> datetime:
    return timezone.now()


def born(instance: Instance, at: datetime) -> None:
    Instance.objects.filter(pk=instance.pk).update(first_running_at=at)


def ask(ida: Client, instance: Instance, span: str) -> dict[str, Any]:
    return ida.get(reverse("page-traffic-history", args=[instance.pk]), {"range": span}).json()  # type: ignore[no-any-return]


def minute_of(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(second=0, microsecond=0)


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1_000)


@pytest.mark.parametrize("span", SPANS)
def test_an_instance_of_a_few_minutes_is_drawn_over_its_life(
    span: str, ida: Client, instance: Instance, now: datetime
) -> None:
    at = minute_of(now - timedelta(minutes=3))
    born(instance, now - timedelta(minutes=10))
    create_usage(instance.pk, at, produce=600)
    services.store_delays({instance.pk: {ms(at): 250}})
    body = ask(ida, instance, span)
    assert [ms(at), 10.0, 0.0, 250] in body["points"]
    assert body["step_ms"] == 60_000
    assert body["from_ms"] == ms(now - timedelta(minutes=10))
    assert "there is nothing before" in body["note"]


@pytest.mark.parametrize("span", SPANS)
def test_a_span_without_a_whole_minute_says_so(span: str, ida: Client, instance: Instance, now: datetime) -> None:
    born(instance, now)
    body = ask(ida, instance, span)
    assert body["points"] == []
    assert "No whole minute is metered yet." in body["note"]


@pytest.mark.parametrize(("span", "step_ms"), [("3h", 60_000), ("24h", 60_000), ("30d", 86_400_000)])
def test_a_topic_has_its_own_points_without_the_limit_of_the_instance(
    span: str, step_ms: int, ida: Client, instance: Instance, now: datetime
) -> None:
    born(instance, now - timedelta(days=60))
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    at = day - timedelta(days=2) if span == "30d" else minute_of(now - timedelta(minutes=30))
    create_usage(instance.pk, at, produce=600, consume=1_200, topic="orders", user="a")
    create_usage(instance.pk, at, produce=600, topic="orders", user="b")
    create_usage(instance.pk, at, produce=9_999, topic="others")
    # Usage of all is applied until now: points end there.
    create_usage(instance.pk, minute_of(now), produce=1, topic="others")
    answer = ida.get(reverse("page-traffic-history", args=[instance.pk]), {"range": span, "topic": "orders"})
    body = answer.json()
    seconds = step_ms / 1_000
    assert [point for point in body["points"] if any(point[1:])] == [[ms(at), 1_200 / seconds, 1_200 / seconds, 0]]
    assert (body["step_ms"], body["limit_bytes_per_s"]) == (step_ms, None)
    page = ida.get(reverse("page-topic-traffic", args=[instance.pk, "orders.created"])).content.decode()
    assert "topic=orders.created" in page


def test_an_hour_of_a_month_has_the_longest_delay_of_its_minutes(
    ida: Client, instance: Instance, now: datetime
) -> None:
    born(instance, now - timedelta(days=60))
    hour = minute_of(now - timedelta(days=20)).replace(minute=0)
    minutes = {ms(hour + timedelta(minutes=at)): delay_ms for at, delay_ms in ((1, 40), (30, 900), (59, 3))}
    services.store_delays({instance.pk: minutes})
    body = ask(ida, instance, "30d")
    assert {point[0]: point[3] for point in body["points"]}[ms(hour)] == 900
    assert body["note"] == ""


def test_a_minute_reported_twice_keeps_its_longest_delay(instance: Instance, now: datetime) -> None:
    at = ms(minute_of(now))
    for delay_ms in (40, 90, 60):
        services.store_delays({instance.pk: {at: delay_ms}, "ins-00000000": {at: 1}})
    assert list(DelayedMinute.objects.values_list("instance_id", "delay_ms_max")) == [(instance.pk, 90)]


def test_delays_are_forgotten_after_the_longest_span(instance: Instance, now: datetime) -> None:
    old, fresh = minute_of(now - DELAYED_MINUTES_KEPT - timedelta(minutes=1)), minute_of(now)
    services.store_delays({instance.pk: {ms(old): 1, ms(fresh): 2}})
    assert services.delete_old_delays(now) == 1
    assert DelayedMinute.objects.get().minute == fresh


def test_the_longest_delay_of_several_brokers_counts() -> None:
    bodies = [{"instances": {"a": [[60_000, 5], [120_000, 9]]}}, {"instances": {"a": [[60_000, 7]], "b": [[0, 1]]}}]
    assert longest_delays(bodies) == {"a": {60_000: 7, 120_000: 9}, "b": {0: 1}}


def test_others_read_nothing_of_it(stranger: Member, browse: Any, instance: Instance) -> None:
    assert browse(stranger).get(reverse("page-traffic-history", args=[instance.pk])).status_code == 404
