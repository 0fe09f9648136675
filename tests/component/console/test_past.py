"""The throttle page: causes in the past, and each broker's share of the bandwidth."""

from __future__ import annotations

import html
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from instances import services
from instances.limits import THROTTLED_MINUTES_KEPT
from instances.models import Instance
from instances.services import ThrottledMinuteReport
from tenants.models import Member
from tests.component.console.fakes import FakeObservation, share, throttle

CAUSE = {
    "kind": "client_quota", "quota": "request_percentage", "level": 3, "entity": {"user": "etl"},
    "whole_limit_per_s": 25.0, "count": 4, "waited_ms": 100, "longest_ms": 60, "clients": [["etl", "flink-1", 3, 80]],
}  # fmt: skip


def page(ida: Client, instance: Instance, name: str = "page-throttle", **query: object) -> str:
    answer = ida.get(reverse(name, args=[instance.pk]), query)
    assert answer.status_code == 200
    return html.unescape(answer.content.decode())


@pytest.fixture
def tuesday(instance: Instance) -> datetime:
    at = timezone.now().astimezone(UTC).replace(second=0, microsecond=0) - timedelta(days=3, hours=1)
    refused = CAUSE | {"kind": "frozen", "quota": "frozen", "level": None, "entity": {}, "waited_ms": 0, "clients": []}
    at_ms = round(at.timestamp() * 1_000)
    services.store_throttled_minutes([ThrottledMinuteReport(instance.pk, at_ms, 2, 1, [CAUSE, refused])])
    return at


def test_a_week_tells_the_rule_who_waited_and_leads_to_the_minutes(
    ida: Client, instance: Instance, observation: FakeObservation, tuesday: datetime
) -> None:
    shown = page(ida, instance, span="week")
    assert "Request time quota of user etl" in shown
    assert "25 % of a broker's time" in shown
    assert "etl, flink-1" in shown
    assert "Instance is suspended" in shown
    hour = tuesday.replace(minute=0)
    until_ms = round((hour + timedelta(hours=1)).timestamp() * 1_000)
    assert f'href="?span=hour&until={until_ms}#past">{hour:%Y-%m-%d %H:%M}</a>' in shown
    assert f"{tuesday:%Y-%m-%d %H:%M}</td>" in page(ida, instance, span="hour", until=until_ms)


@pytest.mark.parametrize("query", [{}, {"span": "day"}, {"span": "no"}, {"until": "-1"}, {"until": "9" * 14}])
def test_a_span_without_waits_says_so(
    ida: Client, instance: Instance, observation: FakeObservation, query: dict[str, Any], tuesday: datetime
) -> None:
    assert "No client waited in this span" in page(ida, instance, **query)


def test_nobody_is_led_to_what_is_not_kept(ida: Client, instance: Instance, observation: FakeObservation) -> None:
    shown = page(ida, instance, span="week", until=1)
    assert ">Earlier<" not in shown
    assert ">Later<" in shown
    reached = timezone.now() - THROTTLED_MINUTES_KEPT
    assert f"{reached:%Y-%m-%d}" in shown


def test_others_read_nothing_of_it(
    stranger: Member, browse: Any, instance: Instance, observation: FakeObservation
) -> None:
    for name in ("page-throttle", "page-bandwidth"):
        assert browse(stranger).get(reverse(name, args=[instance.pk])).status_code == 404


def test_each_broker_has_a_line_with_its_share_and_what_is_not_known_is_not_made_up(
    ida: Client, instance: Instance, observation: FakeObservation
) -> None:
    observation.shares = {1: share(1), 2: None, 3: share(3, "no_answer")}
    shown = page(ida, instance, "page-bandwidth")
    assert "shared out by what clients want" in shown
    assert shown.count("6.7 MB/s") == 4
    assert "follows demand" in shown
    assert "by partitions led: the flow master does not answer" in shown
    assert "not known" in shown
    assert f"{instance.bandwidth_mb_s} MB/s" in shown


def test_before_any_broker_says_its_share_there_is_a_sentence(
    ida: Client, instance: Instance, observation: FakeObservation
) -> None:
    assert "No broker says yet how the bandwidth is shared out." in page(ida, instance, "page-bandwidth")


def test_a_client_quota_is_shown_whole_with_the_share_of_a_broker_beside_it(
    ida: Client, instance: Instance, observation: FakeObservation
) -> None:
    observation.entries = (throttle(limit_per_s=500_000.0, whole_limit_per_s=2_000_000.0),)
    shown = page(ida, instance, "page-why")
    assert "User reports may produce 2 MB/s" in shown
    assert "2: 35 ms (share now 0.5 MB/s)" in shown
    assert "share of this broker 0.5 MB/s" in page(ida, instance)


@pytest.mark.parametrize(
    ("kind", "quota", "words"),
    [
        ("capacity", "storage", "the storage of this instance is used up"),
        ("capacity", "disk_space", "a disk of these brokers is nearly full: 2"),
        ("frozen", "frozen", "Produce is refused while the instance is suspended: 10 times"),
    ],
)
def test_refused_produces_are_shown_as_refused_and_not_as_slow(
    ida: Client, instance: Instance, observation: FakeObservation, kind: str, quota: str, words: str
) -> None:
    observation.entries = (
        throttle(
            kind=kind, quota=quota, level=None, entity={}, limit_per_s=None, delay_ms_mean=0.0, delay_ms_p95=0.0,
            delay_ms_max=0.0, waited_ms_total=0.0,
        ),
    )  # fmt: skip
    shown = page(ida, instance, "page-why")
    assert words in shown
    assert "10 refused" in shown
    assert "refused" in page(ida, instance)
