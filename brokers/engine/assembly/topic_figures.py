"""Figures of an instance's topics for the control plane, in pages: making a page takes one turn of the event loop.

Every broker lists all topics; sizes and offsets are those of the partitions that it leads. Clients of one topic are
listed by user and client id, from the usage counters of metering; empty fetches are not counted. Traffic is cumulative
since the start of the process, so the difference of two reports is a rate.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from brokers.contract.usage import DIRECTIONS, OTHER
from brokers.engine.cluster.image import TopicImage
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.partitions.topic_settings import SETTINGS
from brokers.engine.throttling.accounting import InstanceAccounting
from brokers.engine.throttling.usage import UsageCounter

# A page ends with the topic that reaches this weight; a topic weighs `TOPIC_WEIGHT`, and one for each partition.
WEIGHT_PER_PAGE_MAX: Final = 2_000
TOPIC_WEIGHT: Final = 4
# Maximum number of usage counters added up for one page; the traffic in further counters is omitted.
COUNTERS_SUMMED_MAX: Final = 10_100
_RETENTION: Final = "retention.ms"
_CLEANUP: Final = "cleanup.policy"

# Name, id, partitions, replication factor, retention.ms, cleanup.policy, and for the partitions led here: their number,
# bytes, messages, bytes produced and consumed.
TopicRow = list[Any]
CLIENTS_PER_PAGE: Final = 250
# User, client id, direction, bytes, and the time of the last bytes in ms since the epoch, to within one usage report.
ClientRow = list[Any]


def topic_figures(services: BrokerServices, instance_id: str, started_at_ms: int, *, after: str) -> dict[str, Any]:
    """Returns a page of the topics with names after `after`, in order; `next` is its last name if there are more."""
    instance = services.metadata.current.image.instances[instance_id]
    rows: list[TopicRow] = []
    weight, next_page_start = 0, None
    names = instance.sorted_names
    for name in islice(names, bisect_right(names, after), None):
        topic = instance.topics[name.encode()]
        rows.append(_topic_row(services, topic))
        weight += TOPIC_WEIGHT + len(topic.partitions)
        if weight >= WEIGHT_PER_PAGE_MAX:
            next_page_start = name if name != names[-1] else None
            break
    _add_traffic(services, instance_id, rows)
    return {
        "now_ms": services.clock.now_ms(),
        "alive_since_ms": started_at_ms,
        "topics": rows,
        "next": next_page_start,
        "refused_topics": [] if after else _refused_topics(services, instance_id),
    }


def _refused_topics(services: BrokerServices, instance_id: str) -> list[dict[str, Any]]:
    """Returns the topics whose automatic creation failed on this broker; they are on the first page only."""
    accounting = services.accounting.accountings.get(instance_id)
    return [] if accounting is None else accounting.refused_topics.as_json(services.clock.now_ms())


def _topic_row(services: BrokerServices, topic: TopicImage) -> TopicRow:
    led_count = size_bytes = messages = replicas = 0
    for assigned in topic.partitions:
        replicas = max(replicas, len(assigned.target))
        partition = services.storage.table.get(topic.name, assigned.index)
        if partition is not None and partition.is_leader and not partition.offline:
            led_count += 1
            size_bytes += partition.size_bytes
            messages += partition.high_watermark - partition.log_start_offset
    return [
        topic.user_name, topic.topic_id.hex(), len(topic.partitions), replicas,
        int(_effective_setting(services, topic, _RETENTION)), _effective_setting(services, topic, _CLEANUP),
        led_count, size_bytes, messages, 0, 0,
    ]  # fmt: skip


def _effective_setting(services: BrokerServices, topic: TopicImage, name: str) -> str:
    return topic.config.get(name) or services.metadata.topic_defaults.get(name) or SETTINGS[name].default


def replica_figures(
    services: BrokerServices, instance_id: str, started_at_ms: int, replicas_by_topic: Mapping[str, Mapping[int, int]]
) -> dict[str, Any]:
    """Returns the figures of a gateway, which does not know the topics of its instances: the size of each replica on
    its upstream broker, and by topic the bytes produced and consumed.
    """
    traffic: dict[str, list[int]] = {}
    accounting = services.accounting.accountings.get(instance_id)
    for counter in () if accounting is None else islice(accounting.usage.counters(), COUNTERS_SUMMED_MAX):
        topic, _, _, direction = counter.key
        traffic.setdefault(topic, [0, 0])[0 if direction == "produce" else 1] += counter.bytes
    return {
        "now_ms": services.clock.now_ms(),
        "alive_since_ms": started_at_ms,
        "replicas": {topic: list(sizes.items()) for topic, sizes in replicas_by_topic.items()},
        "traffic": traffic,
        "next": None,
        "refused_topics": [],
    }


def _add_traffic(services: BrokerServices, instance_id: str, rows: list[TopicRow]) -> None:
    accounting = services.accounting.accountings.get(instance_id)
    if accounting is None:
        return
    rows_by_name = {row[0]: row for row in rows}
    for counter in islice(accounting.usage.counters(), COUNTERS_SUMMED_MAX):
        topic, _, _, direction = counter.key
        row = rows_by_name.get(topic)
        if row is not None:
            row[-2 if direction == "produce" else -1] += counter.bytes


def topic_clients(
    accounting: InstanceAccounting | None, topic: str, *, after: int, started_at_ms: int, now_ms: int
) -> dict[str, Any]:
    """Returns the counters of `topic` after the first `after` counters of the instance. `next` is the start of the next
    page, None at the end. Counters are only ever added, so no row is repeated or omitted between two pages.

    `is_cut`: the instance has more clients than are counted separately, possibly some of this topic.
    """
    rows: list[ClientRow] = []
    next_page_start = None
    is_cut = False
    counters = () if accounting is None else accounting.usage.counters()
    for number, counter in enumerate(islice(counters, after, None), after):
        counted_topic, _user, _client_id, direction = counter.key
        if direction not in DIRECTIONS:
            continue
        if counted_topic == OTHER:
            is_cut = True
        elif counted_topic == topic and counter.requests:
            if len(rows) == CLIENTS_PER_PAGE:
                next_page_start = number
                break
            rows.append(_client_row(counter, now_ms))
    return {
        "now_ms": now_ms,
        "alive_since_ms": started_at_ms,
        "clients": rows,
        "is_cut": is_cut,
        "next": next_page_start,
    }


def _client_row(counter: UsageCounter, now_ms: int) -> ClientRow:
    _topic, user, client_id, direction = counter.key
    return [user, client_id, direction, counter.bytes, counter.changed_ms if counter.is_reported else now_ms]
