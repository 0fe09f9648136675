"""Clients of a topic, joined from counters, connections and groups."""

from __future__ import annotations

import uuid

from brokers.engine.cluster.in_flight_creations import encode_topic_id
from brokers.provisioning.topic_documents import document_of, document_topic_id
from instances.clients.interfaces import BrokerTopicTraffic, ClientCounter, Connection, TopicTraffic
from instances.clients.topic_clients import (
    CONSUME,
    PRODUCE,
    TopicClient,
    add_connections,
    add_groups,
    clients_of,
    samples_of,
)
from instances.groups.interfaces import CommittedOffset, GroupDescription, GroupMember, GroupSummary
from instances.limits import CLIENT_ADDRESSES_SHOWN_MAX, CLIENT_GROUPS_SHOWN_MAX
from instances.models import DeletedTopic, TopicAllowList
from instances.topics import rates

TOPIC = "orders"


def traffic(now_ms: int, *counters: ClientCounter, brokers: int = 2) -> TopicTraffic:
    broker = BrokerTopicTraffic(now_ms=now_ms, alive_since_ms=0, counters=counters)
    return TopicTraffic(brokers=dict.fromkeys(range(brokers), broker), silent=())


def counter(client_id: str, moved_bytes: int, direction: str = PRODUCE, user: str = "anna") -> ClientCounter:
    return ClientCounter(user, client_id, direction, moved_bytes, 50)


def connection(client_id: str, address: str, user: str = "anna") -> Connection:
    return Connection("con-1", 1, address, user, client_id, "", "", "", 0, 1, False)


def member(client_id: str, address: str, *partitions: int) -> GroupMember:
    places = tuple((TOPIC, partition) for partition in partitions)
    return GroupMember(id=client_id, client_id=client_id, host=f"/{address}", instance_id=None, assignment=places)


def summary(*members: GroupMember, offsets: dict[int, int] | None = None) -> GroupSummary:
    described = GroupDescription(
        id="g", state="Stable", protocol_type="consumer", protocol="range", coordinator=1, members=members
    )
    committed = tuple(
        CommittedOffset(topic=TOPIC, partition=partition, offset=offset)
        for partition, offset in (offsets or {}).items()
    )
    return GroupSummary(description=described, offsets=committed)


def test_bytes_are_summed_over_brokers_and_rates_are_those_between_two_looks() -> None:
    before = samples_of(traffic(1_000, counter("till", 100), counter("till", 7, CONSUME)))
    now = traffic(11_000, counter("till", 1_100), counter("till", 7, CONSUME), counter("new", 50))
    measured = rates.rates_between(before, samples_of(now))
    clients = clients_of(now, measured, PRODUCE)
    assert {name: (client.total_bytes, client.rate_bps) for name, client in clients.items()} == {
        ("till", "anna"): (2_200, 200.0), ("new", "anna"): (100, 10.0),
    }  # fmt: skip
    assert clients_of(now, measured, CONSUME)["till", "anna"].rate_bps == 0.0
    assert clients_of(now, rates.Rates(), PRODUCE)["till", "anna"].rate_bps is None


def test_connections_are_counted_and_the_first_few_addresses_shown() -> None:
    clients = {("till", "anna"): TopicClient(client_id="till", user="anna")}
    many = [connection("till", f"10.0.0.{number % 9}") for number in range(20)]
    add_connections(clients, [*many, connection("till", "10.9.9.9", "bert"), connection("other", "10.8.8.8")])
    client = clients["till", "anna"]
    assert (client.connections, len(client.addresses)) == (20, CLIENT_ADDRESSES_SHOWN_MAX)


def test_a_lag_is_known_only_where_all_partitions_of_the_client_are() -> None:
    clients = {("reader", "anna"): TopicClient(client_id="reader", user="anna", last_seen_ms=1)}
    ends = {(TOPIC, 0): 10, (TOPIC, 1): 10}
    groups = {
        "known": summary(member("reader", "10.0.0.7", 0, 1), offsets={0: 4, 1: 12}),
        "unknown": summary(member("reader", "10.0.0.7", 0, 2), offsets={0: 4}),
        "silent": GroupSummary(description=None, offsets=None, trouble="no answer"),
        "elsewhere": summary(member("reader", "10.0.0.7")),
    }
    add_groups(clients, TOPIC, groups, ends)
    shares = [(share.group, share.partitions, share.lag) for share in clients["reader", "anna"].groups]
    assert shares == [("known", 2, 6), ("unknown", 2, None)]
    assert clients["reader", "anna"].lag == 6


def test_a_member_nobody_has_counted_is_a_client_without_a_user_and_groups_shown_are_few() -> None:
    clients: dict[tuple[str, str], TopicClient] = {}
    groups = {f"g{number}": summary(member("idle", "10.0.0.7", 0)) for number in range(CLIENT_GROUPS_SHOWN_MAX + 2)}
    add_groups(clients, TOPIC, groups, {})
    (client,) = clients.values()
    assert (client.user, client.addresses, client.last_seen_ms) == ("", ("10.0.0.7",), None)
    assert len(client.groups) == CLIENT_GROUPS_SHOWN_MAX


def test_the_document_of_a_deleted_topic_names_its_id_as_brokers_write_it_until_it_is_restored() -> None:
    topic_id = uuid.uuid4()
    assert document_topic_id(str(topic_id)) == encode_topic_id(topic_id.bytes)
    row, lists = DeletedTopic(topic_id=str(topic_id)), TopicAllowList(produce_ips=["10.0.0.1"])
    hidden = document_of(TOPIC, lists, row)
    assert (hidden.name, hidden.produce_ips, hidden.deleted_topic_id) == (
        TOPIC,
        ("10.0.0.1",),
        document_topic_id(str(topic_id)),
    )
    row.is_restored = True
    assert document_of(TOPIC, None, row).deleted_topic_id == ""
    assert not document_of(TOPIC, None, row).has_content
