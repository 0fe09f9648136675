"""Reports of brokers about topics, as interfaces that `brokers` implements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from instances.interfaces import BrokerUnresponsive, RefusedTopic
from tenants.interfaces import Interface


class ReportedTopic(NamedTuple):
    """A topic as one broker reports it. The fields after `led_partitions` count only the partitions that the broker
    leads; traffic is cumulative since its start. Gateways do not know the number of messages.
    """

    name: str
    topic_id: str
    partition_count: int
    replication_factor: int
    retention_ms: int
    cleanup_policy: str
    led_partitions: int
    size_bytes: int
    message_count: int | None
    produced_bytes: int
    consumed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTopics:
    """Report of one broker about all topics of an instance. Instants in ms since the epoch, by the broker's clock."""

    now_ms: int
    alive_since_ms: int
    topics: Sequence[ReportedTopic]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """Reports by broker id, and the brokers that did not answer."""

    brokers: Mapping[int, BrokerTopics]
    silent: tuple[BrokerUnresponsive, ...]
    refused: tuple[RefusedTopic, ...] = ()


# Takes the instance id; returns every topic as the brokers report it now. Brokers that do not answer are in `silent`.
topic_report: Interface[Callable[[str], TopicReport]] = Interface("instances.topics.interfaces.topic_report")
# Takes the instance id: updates the cached table of topics soon; losing the call is harmless.
refresh_topics: Interface[Callable[[str], Any]] = Interface("instances.topics.interfaces.refresh_topics")
