"""Producers and consumers of one topic: counters of brokers by user and client id, with connections and groups.

A rate is the difference of two samples of the brokers' counters. The connections of a client are all open ones of its
user and client id, because brokers do not count by connection. A member of a group is identified by its client id and
its address.
"""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.core.cache import cache

from instances.access import require_reachable
from instances.clients import listing
from instances.clients.interfaces import (
    BrokerTopicTraffic,
    ClientCounter,
    Connection,
    TopicTraffic,
    topic_traffic,
)
from instances.groups import lag_history
from instances.groups.interfaces import GroupSummary, Partition, group_admin_client
from instances.interfaces import BrokerUnresponsive
from instances.limits import (
    CLIENT_ADDRESSES_SHOWN_MAX,
    CLIENT_GROUPS_QUERIED_MAX,
    CLIENT_GROUPS_SHOWN_MAX,
    CONNECTIONS_KEPT_S,
)
from instances.models import Instance
from instances.sorted_pages import sorted_page, sorts_of
from instances.topics import rates
from instances.topics.presence import describe_topic
from tenants.errors import Unavailable

PRODUCE, CONSUME = "produce", "consume"
# Identifies a client: client id and user.
ClientKey = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShare:
    """Partitions of a topic that a client reads for a group. `lag` is in messages; None if it is unknown."""

    group: str
    partitions: int
    lag: int | None


@dataclass(slots=True, kw_only=True)
class TopicClient:
    """A user and client id that used a topic since the brokers' start, or to which a group assigned partitions.

    `rate_bps` is None without a second sample, `last_seen_ms` without traffic. `connections` is the number of open
    connections; `addresses` has the first few of their addresses.
    """

    client_id: str
    user: str
    total_bytes: int = 0
    rate_bps: float | None = None
    last_seen_ms: int | None = None
    connections: int = 0
    addresses: tuple[str, ...] = ()
    groups: list[GroupShare] = field(default_factory=list)

    @property
    def name(self) -> str:
        return json.dumps([self.client_id, self.user])

    @property
    def lag(self) -> int | None:
        lags = [share.lag for share in self.groups if share.lag is not None]
        return sum(lags) if lags else None


COLUMNS: Mapping[str, Callable[[TopicClient], Any]] = {
    "client_id": lambda client: client.client_id,
    "user": lambda client: client.user,
    "address": lambda client: client.addresses[0] if client.addresses else None,
    "rate": lambda client: client.rate_bps,
    "bytes": lambda client: client.total_bytes,
    "last_seen": lambda client: client.last_seen_ms,
}
SORTS = sorts_of(tuple(COLUMNS))
CONSUMER_COLUMNS = {
    **COLUMNS,
    "group": lambda client: client.groups[0].group if client.groups else None,
    "lag": lambda client: client.lag,
}
CONSUMER_SORTS = sorts_of(tuple(CONSUMER_COLUMNS))
DEFAULT_SORT = "-last_seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicClientPage(listing.ClientPage[TopicClient]):
    """Page of a topic's clients. `rates_over_s` is the span of the rates, None while there are none."""

    rates_over_s: float | None


def topic_client_page(
    instance: Instance,
    topic: str,
    direction: str,
    *,
    with_groups: bool = False,
    contains: str = "",
    sort: str = DEFAULT_SORT,
    page_token: str = "",
    page_size: int = 50,
) -> TopicClientPage:
    """Returns one page of the clients that produce or consume; `contains` is searched in client id, user and address.

    Raises `NotFound` for an unknown topic, `Conflict` while the instance has no brokers, and `Unavailable` if none
    answers.
    """
    require_reachable(instance)
    describe_topic(instance, topic)
    traffic = _traffic(instance, topic)
    traffic_rates = rates.sample_rates(f"clients:{instance.pk}:of:{topic}:looks", samples_of(traffic))
    connection_list = listing.current_connections(instance)
    clients = clients_of(traffic, traffic_rates, direction)
    add_connections(clients, connection_list.connections)
    if direction == CONSUME and with_groups:
        groups, ends = _groups(instance, topic)
        add_groups(clients, topic, groups, ends)
    search_text = contains.lower()
    rows = [client for client in clients.values() if not search_text or _matches(client, search_text)]
    page = sorted_page(
        rows,
        column=CONSUMER_COLUMNS[sort.removeprefix("-")],
        name=lambda client: client.name,
        is_descending=sort.startswith("-"),
        page_token=page_token,
        page_size=page_size,
        binding=f"topic clients {instance.pk} {topic} {direction} {contains} {sort}",
    )
    return TopicClientPage(
        page=page,
        total=len(rows),
        rates_over_s=traffic_rates.over_s,
        silent=traffic.silent,
        is_cut=any(broker.is_cut for broker in traffic.brokers.values()),
        here_token=page_token,
    )


def samples_of(traffic: TopicTraffic) -> dict[int, rates.CounterSample]:
    """Returns a sample of the counters by client for the computation of rates. Pure."""
    samples = {}
    for number, broker in traffic.brokers.items():
        counters: dict[str, tuple[int, int]] = {}
        for counter in broker.counters:
            name = json.dumps([counter.client_id, counter.user])
            produced, consumed = counters.get(name, (0, 0))
            if counter.direction == PRODUCE:
                counters[name] = (counter.bytes, consumed)
            else:
                counters[name] = (produced, counter.bytes)
        samples[number] = rates.CounterSample(broker.now_ms, broker.alive_since_ms, counters)
    return samples


def clients_of(traffic: TopicTraffic, traffic_rates: rates.Rates, direction: str) -> dict[ClientKey, TopicClient]:
    """Returns the clients with their bytes summed over brokers. Pure."""
    clients: dict[ClientKey, TopicClient] = {}
    for broker in traffic.brokers.values():
        for counter in broker.counters:
            if counter.direction != direction:
                continue
            key = (counter.client_id, counter.user)
            client = clients.setdefault(key, TopicClient(client_id=counter.client_id, user=counter.user))
            client.total_bytes += counter.bytes
            client.last_seen_ms = max(client.last_seen_ms or 0, counter.moved_ms)
    for client in clients.values():
        client.rate_bps = traffic_rates.of(client.name)[direction == CONSUME]
    return clients


def add_connections(clients: Mapping[ClientKey, TopicClient], connections: Iterable[Connection]) -> None:
    """Counts the open connections of each client, with the first few addresses. Pure."""
    for connection in connections:
        client = clients.get((connection.client_id, connection.user))
        if client is None:
            continue
        client.connections += 1
        is_new = connection.address not in client.addresses
        if is_new and len(client.addresses) < CLIENT_ADDRESSES_SHOWN_MAX:
            client.addresses = (*client.addresses, connection.address)


def add_groups(
    clients: dict[ClientKey, TopicClient], topic: str, groups: Mapping[str, GroupSummary], ends: Mapping[Partition, int]
) -> None:
    """Adds the groups whose members read `topic` to their clients. A member without a counter becomes a client with an
    unknown user. Pure.
    """
    lags_by_share: dict[tuple[ClientKey, str], list[int | None]] = {}
    for group, summary in groups.items():
        committed = {offset.topic_partition: offset.offset for offset in summary.offsets or ()}
        for member in summary.description.members if summary.description else ():
            partitions = [partition for partition in member.assignment or () if partition[0] == topic]
            if not partitions:
                continue
            client = _client_of(clients, member.client_id, member.host.removeprefix("/"))
            lags = lags_by_share.setdefault(((client.client_id, client.user), group), [])
            lags += [
                max(0, ends[partition] - committed[partition]) if partition in ends and partition in committed else None
                for partition in partitions
            ]
    for (client_key, group), lags in sorted(lags_by_share.items()):
        known_lags = [lag for lag in lags if lag is not None]
        share = GroupShare(
            group=group, partitions=len(lags), lag=sum(known_lags) if len(known_lags) == len(lags) else None
        )
        if len(clients[client_key].groups) < CLIENT_GROUPS_SHOWN_MAX:
            clients[client_key].groups.append(share)


def _client_of(clients: dict[ClientKey, TopicClient], client_id: str, address: str) -> TopicClient:
    """Returns the only client with this id and address, or with this id; else a new client with an unknown user."""
    same_id = [client for client in clients.values() if client.client_id == client_id and client.last_seen_ms]
    same_address = [client for client in same_id if address in client.addresses]
    if len(same_address) == 1 or len(same_id) == 1:
        return (same_address if len(same_address) == 1 else same_id)[0]
    return clients.setdefault((client_id, ""), TopicClient(client_id=client_id, user="", addresses=(address,)))


def _groups(instance: Instance, topic: str) -> tuple[Mapping[str, GroupSummary], Mapping[Partition, int]]:
    """Returns the groups that had offsets in `topic` when they were last sampled, largest lag first, and the log ends
    of the partitions in which they have offsets.
    """
    sampled = lag_history.latest_lags(instance.pk, time.time_ns() // 1_000_000)
    by_lag = sorted((-by_topic[topic], group) for group, (_at_ms, by_topic) in sampled.items() if topic in by_topic)
    group_ids = [group for _lag, group in by_lag[:CLIENT_GROUPS_QUERIED_MAX]]
    if not group_ids:
        return {}, {}
    summaries = group_admin_client.implementation.describe(instance.pk, group_ids)
    partitions = {
        offset.topic_partition
        for summary in summaries.values()
        for offset in summary.offsets or ()
        if offset.topic == topic
    }
    return summaries, group_admin_client.implementation.bounds(instance.pk, partitions)


def _traffic(instance: Instance, topic: str) -> TopicTraffic:
    """Returns the counters of all brokers, cached for `CONNECTIONS_KEPT_S`. Raises `Unavailable` if none answers."""
    key = f"clients:{instance.pk}:of:{topic}"
    cached = cache.get(key)
    if cached is not None:
        return _decoded(cached)
    traffic = topic_traffic.implementation(instance.pk, topic)
    if not traffic.brokers:
        raise Unavailable("No broker of the instance answers at the moment. Nothing is lost.", retry_after_s=1)
    cache.set(key, _encoded(traffic), CONNECTIONS_KEPT_S)
    return traffic


def _encoded(traffic: TopicTraffic) -> str:
    brokers = {
        number: [broker.now_ms, broker.alive_since_ms, broker.is_cut, broker.counters]
        for number, broker in traffic.brokers.items()
    }
    body = [brokers, [(broker.broker_id, broker.reason) for broker in traffic.silent]]
    return base64.b64encode(zlib.compress(json.dumps(body, separators=(",", ":")).encode(), 1)).decode()


def _decoded(cached: str) -> TopicTraffic:
    brokers, silent = json.loads(zlib.decompress(base64.b64decode(cached)))
    return TopicTraffic(
        brokers={
            int(number): BrokerTopicTraffic(
                now_ms=now_ms,
                alive_since_ms=alive_since_ms,
                is_cut=is_cut,
                counters=tuple(map(ClientCounter._make, counters)),
            )
            for number, (now_ms, alive_since_ms, is_cut, counters) in brokers.items()
        },
        silent=tuple(BrokerUnresponsive(broker_id=number, reason=reason) for number, reason in silent),
    )


def _matches(client: TopicClient, search_text: str) -> bool:
    return any(search_text in text.lower() for text in (client.client_id, client.user, *client.addresses))
