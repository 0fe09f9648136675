""" "Why am I slow?": sentences that distinguish the limit that was bought from a broker's share."""

from __future__ import annotations

import html

import pytest
from django.test import Client
from django.urls import reverse

from instances.models import Instance
from tests.component.console.fakes import FakeObservation, share, throttle

BANDWIDTH = {"kind": "instance_bandwidth", "quota": "producer_byte_rate", "level": None, "entity": {}}


def panel(ida: Client, instance: Instance, page: str = "page-why") -> str:
    return html.unescape(ida.get(reverse(page, args=[instance.pk])).content.decode())


def test_the_panel_tells_what_was_bought_and_the_share_of_each_broker(
    ida: Client, instance: Instance, observation: FakeObservation
) -> None:
    observation.entries = (
        throttle(**BANDWIDTH, broker_id=1, limit_per_s=1_400_000.0),
        throttle(**BANDWIDTH, broker_id=3, limit_per_s=1_800_000.0),
    )
    observation.shares = {1: share(1, share_bytes_per_s=1_400_000), 3: share(3, share_bytes_per_s=1_800_000)}
    bought = f"{instance.bandwidth_mb_s} MB/s"
    page = panel(ida, instance)
    assert f"This instance has {bought} for producers, shared out over the brokers" in page
    assert "Now at its share: broker 1 (1.4 MB/s), broker 3 (1.8 MB/s)." in page
    assert f'<dt>Limit</dt><dd class="num">{bought}' in page
    assert "3: 35 ms (share now 1.8 MB/s)" in page
    assert "This instance has 1.4 MB/s" not in page
    assert "share of this broker 1.8 MB/s" in panel(ida, instance, "page-throttle")


def test_a_broker_with_the_whole_bandwidth_needs_no_word_about_shares(
    ida: Client, instance: Instance, observation: FakeObservation
) -> None:
    observation.entries = (throttle(**BANDWIDTH, limit_per_s=float(instance.bandwidth_bytes_per_s)),)
    page = panel(ida, instance)
    assert f"This instance has {instance.bandwidth_mb_s} MB/s for producers, so each produce waits 35 ms" in page


def test_requests_that_take_too_much_time_are_distinguished_from_bandwidth(
    ida: Client, instance: Instance, observation: FakeObservation
) -> None:
    observation.entries = (
        throttle(kind="request_time", quota="request_time", level=None, entity={}, broker_id=2, limit_per_s=None),
    )
    page = panel(ida, instance)
    assert "take more than a quarter of the time of these brokers: 2. Each waits 35 ms on average." in page
    assert '<dt>Limit</dt><dd class="num">a quarter of each broker\'s time' in page
    assert "Resize" not in page.partition("<dl>")[2]
    assert "a quarter of each broker's time" in panel(ida, instance, "page-throttle")


@pytest.mark.parametrize(
    ("kind", "words", "limit"),
    [
        ("connection_limit", "has as many as it may have to these brokers: 2.", "connections to one broker"),
        ("connection_rate", "these brokers accept them from one instance: 2.", "new connections a second"),
        ("connection_creation_rate", "faster than its limit lets in, at these brokers: 2.", "second of one address"),
        (
            "authentication",
            "Too many wrong passwords were sent to these brokers: 2.",
            "wrong passwords of a user or an address",
        ),
    ],
)
def test_the_panel_names_refused_and_waiting_connections(
    ida: Client, instance: Instance, observation: FakeObservation, kind: str, words: str, limit: str
) -> None:
    rule = "connection_rate" if kind == "connection_creation_rate" else kind
    observation.entries = (
        throttle(kind=rule, quota=kind, level=None, entity={}, broker_id=2, limit_per_s=None, user="", client_id=""),
    )
    page = panel(ida, instance)
    assert words in page
    assert limit in page.partition("<dt>Limit</dt>")[2].partition("</dd>")[0]
    assert limit in panel(ida, instance, "page-throttle")
