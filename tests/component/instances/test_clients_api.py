"""Connections of clients over REST: searched, sorted, paged and closed."""

from __future__ import annotations

import gc
import time
from typing import Any

import pytest

from instances.clients import listing
from instances.interfaces import BrokerUnresponsive
from instances.limits import CONNECTIONS_LISTED_MAX
from instances.models import Instance
from tenants.choices import Role
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fake_connections import FakeConnections
from tests.testkit.fleet import make_running

pytestmark = pytest.mark.django_db

PAGE_P95_S = 0.2
LOOKS = 20


@pytest.fixture
def instance(owner: Member) -> Instance:
    return make_running(owner.tenant)


@pytest.fixture
def at(instance: Instance) -> str:
    return f"/instances/{instance.pk}/clients"


def test_a_connection_is_described_with_all_that_brokers_know(
    api: Api, at: str, instance: Instance, connections: FakeConnections
) -> None:
    connections.add(instance.pk, "etl", requests=7)
    (item,) = api.get(at).json()["items"]
    assert item == {
        "id": "con-1-abc-1", "client_id": "etl", "software": "librdkafka", "software_version": "2.5.0",
        "user": "reports", "is_signing_in": False, "address": "10.0.0.7", "route": "default", "broker_id": 1,
        "since": "2026-09-21T14:13:20.001000Z", "requests": 7,
    }  # fmt: skip
    assert api.get(f"{at}/con-1-abc-1").json() == item


@pytest.mark.parametrize("sort", listing.SORTS)
def test_every_order_shows_each_connection_once(
    sort: str, api: Api, at: str, instance: Instance, connections: FakeConnections
) -> None:
    for number in range(11):
        connections.add(
            instance.pk, f"c{number % 3}", user=f"u{number % 2}", address=f"10.0.0.{number % 4}", broker_id=number % 2,
            requests=number % 5, software="" if number % 3 else "sarama",
        )  # fmt: skip
    found: list[dict[str, Any]] = []
    token = ""
    while token is not None:
        answer = api.get(f"{at}?sort={sort}&page_size=4" + (f"&page_token={token}" if token else "")).json()
        found += answer["items"]
        token = answer["next_page_token"]
    assert len({item["id"] for item in found}) == len(found) == 11
    field = {"broker": "broker_id"}.get(sort.removeprefix("-"), sort.removeprefix("-"))
    values = [item[field] for item in found]
    assert values == sorted(values, reverse=sort.startswith("-"))


def test_words_are_looked_for_in_client_user_address_and_software(
    api: Api, at: str, instance: Instance, connections: FakeConnections
) -> None:
    connections.add(instance.pk, "ETL", user="anna", address="192.0.2.1", software="sarama")
    connections.add(instance.pk, "web", user="bert", address="192.0.2.2", software="franz-go")
    for words, expected in (("etl", ["ETL"]), ("BERT", ["web"]), ("192.0.2", ["ETL", "web"]), ("franz", ["web"])):
        found = [item["client_id"] for item in api.get(f"{at}?contains={words}&sort=client_id").json()["items"]]
        assert found == expected
    assert api.get(f"{at}?contains=nobody").json() == {
        "items": [], "next_page_token": None, "total": 0, "is_cut": False, "silent": [],
    }  # fmt: skip


def test_a_closed_connection_is_gone_and_the_audit_log_says_whose_it_was(
    api: Api, at: str, instance: Instance, connections: FakeConnections
) -> None:
    connections.add(instance.pk, "etl")
    assert len(api.get(at).json()["items"]) == 1
    assert api.delete(f"{at}/con-1-abc-1").status_code == 204
    assert api.get(at).json()["items"] == []
    entry = AuditEntry.objects.get(action="connection.closed")
    assert (entry.target_type, entry.target_id) == ("connection", f"{instance.pk}/con-1-abc-1")
    assert (entry.before["client_id"], entry.before["user"], entry.before["address"]) == ("etl", "reports", "10.0.0.7")
    assert_problem(api.delete(f"{at}/con-1-abc-1"), 404, "not_found")


def test_where_a_broker_does_not_say_the_row_is_kept_in_doubt(
    api: Api, at: str, instance: Instance, connections: FakeConnections
) -> None:
    connections.add(instance.pk, "etl")
    connections.is_lost = True
    assert_problem(api.delete(f"{at}/con-1-abc-1"), 503, "outcome_unknown")
    assert AuditEntry.objects.get(action="connection.closed").after == {"outcome": "unknown"}


def test_silent_brokers_are_named_and_none_at_all_is_an_error(
    api: Api, at: str, instance: Instance, connections: FakeConnections
) -> None:
    connections.silent = (BrokerUnresponsive(broker_id=2, reason="does not answer"),)
    assert_problem(api.get(at), 503, "unavailable")
    connections.add(instance.pk, "etl")
    assert api.get(at).json()["silent"] == [{"broker_id": 2, "reason": "does not answer"}]


def test_ten_thousand_connections_are_listed_quickly_and_more_are_said_to_be_cut(
    api: Api, at: str, instance: Instance, connections: FakeConnections
) -> None:
    for number in range(CONNECTIONS_LISTED_MAX + 1):
        connections.add(instance.pk, f"client-{number % 300}-{'x' * 100}", address=f"10.{number % 200}.0.1")
    took_s = []
    gc.freeze()  # what the other tests have left is in no web worker
    for look in range(LOOKS):
        began_s = time.process_time()
        answer = api.get(f"{at}?sort={listing.SORTS[look % len(listing.SORTS)]}&contains=10.1").json()
        took_s.append(time.process_time() - began_s)
        assert answer["is_cut"] is True
    gc.unfreeze()
    assert sorted(took_s)[int(LOOKS * 0.95) - 1] <= PAGE_P95_S, sorted(took_s)


def test_roles_without_the_permission_and_other_tenants_are_refused(
    api: Api, at: str, owner: Member, instance: Instance, connections: FakeConnections
) -> None:
    connections.add(instance.pk, "etl")
    viewer = Api.of(make_member(Role.VIEWER, owner.tenant))
    assert viewer.get(at).status_code == 200
    assert_problem(viewer.delete(f"{at}/con-1-abc-1"), 403, "permission_denied")
    finance = Api.of(make_member(Role.FINANCE, owner.tenant))
    assert_problem(finance.get(at), 403, "permission_denied")
    stranger = Api.of(make_member())
    for call in (stranger.get(at), stranger.get(f"{at}/con-1-abc-1"), stranger.delete(f"{at}/con-1-abc-1")):
        assert_problem(call, 404, "not_found")
    assert len(connections.connections_by_instance[instance.pk]) == 1
