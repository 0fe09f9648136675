"""Tabs of a topic with its producers and consumers: hostile names, empty states, and permissions."""

from __future__ import annotations

import time
from collections.abc import Callable
from html import unescape

from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from instances.groups import lag_history
from instances.interfaces import BrokerUnresponsive
from instances.models import Instance
from tenants.models import Member
from tests.testkit.fake_connections import FakeConnections
from tests.testkit.fake_groups import FakeGroups, member

TOPIC = "orders.created"
HOSTILE = "<script>alert(1)</script>\"'&"


def place(instance: Instance, tab: str) -> str:
    return reverse(f"page-topic-{tab}", args=[instance.pk, TOPIC])


def shown(client: Client, at: str, status: int = 200, **headers: str) -> str:
    response = client.get(at, headers=headers)
    assert response.status_code == status
    return response.content.decode()


def test_producers_are_shown_with_address_and_hostile_names_stay_text(
    ida: Client, instance: Instance, connections: FakeConnections
) -> None:
    connections.count(instance.pk, TOPIC, HOSTILE, 1_000, user=HOSTILE)
    connections.count(instance.pk, TOPIC, "", 5, user="")
    connections.add(instance.pk, HOSTILE, user=HOSTILE, address="192.0.2.9")
    page = shown(ida, place(instance, "producers"))
    assert "192.0.2.9" in page
    assert "<script>alert" not in page
    assert HOSTILE in unescape(page)
    rows = shown(ida, f"{place(instance, 'producers')}?sort=-rate&q=192.0.2", **{"HX-Request": "true"})
    assert "<html" not in rows
    assert rows.count("<tr>") == 2, "a head and one row"


def test_consumers_are_shown_with_group_and_lag_for_those_who_see_groups(
    ida: Client, instance: Instance, connections: FakeConnections, groups: FakeGroups
) -> None:
    spot = (TOPIC, 0)
    groups.logs = {spot: (0, 1_234)}
    groups.add(instance.pk, "mail", {spot: 0}, member("reader", spot))
    lag_history.record_samples(instance.pk, {"mail": {spot: 0}}, {spot: 1_234}, time.time_ns() // 1_000_000)
    connections.count(instance.pk, TOPIC, "reader", 5, direction="consume")
    page = shown(ida, f"{place(instance, 'consumers')}?sort=-lag")
    assert "1,234" in page
    assert "?group=mail" in page


def test_empty_states_and_troubles_say_why(ida: Client, instance: Instance, connections: FakeConnections) -> None:
    assert "Nothing was produced since" in shown(ida, place(instance, "producers"))
    assert "Nothing was consumed since" in shown(ida, place(instance, "consumers"))
    assert "No client matches “nobody”" in shown(ida, f"{place(instance, 'producers')}?q=nobody&sort=nonsense")
    connections.silent = (BrokerUnresponsive(broker_id=1, reason="does not answer"),)
    cache.clear()
    assert "No broker of the instance answers at the moment" in shown(ida, place(instance, "producers"))


def test_members_without_the_right_and_strangers_see_nothing(
    instance: Instance, join: Callable[[str], Member], browse: Callable[[Member], Client], stranger: Member
) -> None:
    finance, foreign = browse(join("finance")), browse(stranger)
    for tab in ("producers", "consumers"):
        shown(finance, place(instance, tab), 403)
        shown(foreign, place(instance, tab), 404)
