"""Producers and consumers of a topic over REST."""

from __future__ import annotations

import time

import pytest
from django.core.cache import cache

from instances.clients import topic_clients
from instances.groups import lag_history
from instances.interfaces import BrokerUnresponsive
from instances.models import Instance
from tenants.choices import Role
from tenants.models import Member
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fake_connections import FakeConnections
from tests.testkit.fake_data_plane import FakeDataPlane
from tests.testkit.fake_groups import FakeGroups, member
from tests.testkit.fleet import make_running

pytestmark = pytest.mark.django_db

TOPIC = "orders"
OTHERS = 9_998


@pytest.fixture
def instance(owner: Member) -> Instance:
    return make_running(owner.tenant)


@pytest.fixture
def at(instance: Instance, data_plane: FakeDataPlane) -> str:
    data_plane.add(instance.pk, TOPIC)
    return f"/instances/{instance.pk}/topics/{TOPIC}"


def test_a_producer_is_listed_with_rate_address_and_last_activity(
    api: Api, at: str, instance: Instance, connections: FakeConnections
) -> None:
    connections.count(instance.pk, TOPIC, "till", 1_000)
    connections.count(instance.pk, TOPIC, "report", 77, direction="consume")
    connections.add(instance.pk, "till", address="10.0.0.8")
    connections.add(instance.pk, "till", address="10.0.0.7")
    connections.add(instance.pk, "till", user="somebody-else", address="10.9.9.9")
    (item,) = api.get(f"{at}/producers").json()["items"]
    assert item == {
        "client_id": "till", "user": "reports", "connections": 2, "addresses": ["10.0.0.8", "10.0.0.7"],
        "rate_bps": None, "total_bytes": 1_000, "last_seen": "2026-09-21T14:13:20Z",
    }  # fmt: skip
    connections.now_ms += 10_000
    connections.count(instance.pk, TOPIC, "till", 6_000)
    cache.delete(f"clients:{instance.pk}:of:{TOPIC}")
    answer = api.get(f"{at}/producers").json()
    assert (answer["items"][0]["rate_bps"], answer["rates_over_s"]) == (500.0, 10.0)
    assert answer["items"][0]["last_seen"] == "2026-09-21T14:13:30Z"


def test_a_consumer_is_listed_with_its_groups_and_the_lag_of_its_partitions(
    api: Api, at: str, instance: Instance, connections: FakeConnections, groups: FakeGroups
) -> None:
    places = [(TOPIC, partition) for partition in range(3)]
    groups.logs = dict.fromkeys(places, (0, 100))
    reader, idle = member("reader", places[0], places[1]), member("idle", places[2])
    groups.add(instance.pk, "mail", {places[0]: 90, places[1]: 70, places[2]: 100}, reader, idle)
    groups.add(instance.pk, "elsewhere", {("payments", 0): 1})
    now_ms = time.time_ns() // 1_000_000
    offsets = {"mail": dict.fromkeys(places, 90), "elsewhere": {("payments", 0): 1}}
    lag_history.record_samples(instance.pk, offsets, {**dict.fromkeys(places, 100), ("payments", 0): 5}, now_ms)
    connections.count(instance.pk, TOPIC, "reader", 500, direction="consume")
    connections.count(instance.pk, TOPIC, "alone", 400, direction="consume")
    found = {item["client_id"]: item for item in api.get(f"{at}/consumers?sort=-lag").json()["items"]}
    assert found["reader"]["groups"] == [{"group": "mail", "partitions": 2, "lag": 40}]
    assert found["alone"]["groups"] == []
    assert found["idle"]["groups"] == [{"group": "mail", "partitions": 1, "lag": 0}]
    assert (found["idle"]["user"], found["idle"]["addresses"], found["idle"]["last_seen"]) == ("", ["10.0.0.7"], None)
    assert not any("elsewhere" in names for names in groups.described_ids)


def test_two_users_of_one_client_id_are_distinguished_by_the_address_of_the_member(
    api: Api, at: str, instance: Instance, connections: FakeConnections, groups: FakeGroups
) -> None:
    place = (TOPIC, 0)
    groups.logs = {place: (0, 10)}
    groups.add(instance.pk, "mail", {place: 4}, member("same", place))
    lag_history.record_samples(instance.pk, {"mail": {place: 4}}, {place: 10}, time.time_ns() // 1_000_000)
    for user, address in (("anna", "10.0.0.7"), ("bert", "10.0.0.9")):
        connections.count(instance.pk, TOPIC, "same", 5, user=user, direction="consume")
        connections.add(instance.pk, "same", user=user, address=address)
    found = {item["user"]: item["groups"] for item in api.get(f"{at}/consumers").json()["items"]}
    assert found == {"anna": [{"group": "mail", "partitions": 1, "lag": 6}], "bert": []}


@pytest.mark.parametrize(
    ("tab", "sort"),
    [("producers", sort) for sort in topic_clients.SORTS] + [("consumers", sort) for sort in ("group", "-lag")],
)
def test_every_order_shows_each_client_once(
    tab: str, sort: str, api: Api, at: str, instance: Instance, connections: FakeConnections
) -> None:
    for number in range(11):
        for direction in ("produce", "consume"):
            connections.count(
                instance.pk, TOPIC, f"c{number % 4}", number % 3 * 100, user=f"u{number}", direction=direction
            )
    found: list[tuple[str, str]] = []
    token = ""
    while token is not None:
        answer = api.get(f"{at}/{tab}?sort={sort}&page_size=4" + (f"&page_token={token}" if token else "")).json()
        found += [(item["client_id"], item["user"]) for item in answer["items"]]
        token = answer["next_page_token"]
    assert len(set(found)) == len(found) == 11


def test_ten_thousand_clients_with_long_names_come_in_pages_and_more_are_said_to_be_cut(
    api: Api, at: str, instance: Instance, connections: FakeConnections
) -> None:
    connections.is_cut = True
    connections.count(instance.pk, TOPIC, "first", 5)
    (one,) = connections.counters[instance.pk, TOPIC]
    connections.counters[instance.pk, TOPIC] = [
        one._replace(client_id=f"{number}-{'y' * 240}", bytes=number) for number in range(OTHERS)
    ]
    began_s = time.process_time()
    answer = api.get(f"{at}/producers?sort=-bytes&contains=y").json()
    assert time.process_time() - began_s < 2.0
    assert (len(answer["items"]), answer["total"], answer["is_cut"]) == (50, OTHERS, True)
    assert answer["items"][0]["total_bytes"] == OTHERS - 1


def test_silent_brokers_are_named_and_none_at_all_is_an_error(
    api: Api, at: str, instance: Instance, connections: FakeConnections
) -> None:
    connections.silent = (BrokerUnresponsive(broker_id=2, reason="does not answer"),)
    assert_problem(api.get(f"{at}/producers"), 503, "unavailable")
    connections.add(instance.pk, "till")
    assert api.get(f"{at}/producers").json()["silent"] == [{"broker_id": 2, "reason": "does not answer"}]


def test_roles_without_the_permission_and_other_tenants_are_refused(
    api: Api, at: str, owner: Member, instance: Instance, connections: FakeConnections, groups: FakeGroups
) -> None:
    connections.count(instance.pk, TOPIC, "till", 5)
    assert Api.of(make_member(Role.VIEWER, owner.tenant)).get(f"{at}/producers").status_code == 200
    for tab in ("producers", "consumers"):
        assert_problem(Api.of(make_member(Role.FINANCE, owner.tenant)).get(f"{at}/{tab}"), 403, "permission_denied")
        assert_problem(Api.of(make_member()).get(f"{at}/{tab}"), 404, "not_found")
        assert_problem(api.get(f"/instances/{instance.pk}/topics/nothing/{tab}"), 404, "not_found")
        for query in ("sort=password", "page_size=100000", "contains=" + "x" * 300, "page_token=zz"):
            assert api.get(f"{at}/{tab}?{query}").status_code in (400, 422), query
    assert_problem(api.get(f"{at}/producers?sort=-lag"), 400, "invalid_request")


def test_a_token_without_the_groups_permission_sees_consumers_and_no_groups(
    at: str, owner: Member, instance: Instance, connections: FakeConnections, groups: FakeGroups
) -> None:
    place = (TOPIC, 0)
    groups.add(instance.pk, "secret-name", {place: 4}, member("reader", place))
    lag_history.record_samples(instance.pk, {"secret-name": {place: 4}}, {place: 10}, time.time_ns() // 1_000_000)
    connections.count(instance.pk, TOPIC, "reader", 5, direction="consume")
    answer = Api.of(owner, ["clients:read"]).get(f"{at}/consumers")
    assert answer.status_code == 200
    assert answer.json()["items"][0]["groups"] == []
