"""Storage use of an instance by topic, with its forecast."""

from __future__ import annotations

from dataclasses import dataclass

from instances import access, interfaces
from instances.choices import StorageWhenFull
from instances.interfaces import BrokerUnresponsive, TopicSizes
from instances.metrics import storage_history
from instances.metrics.forecast import Forecast, forecast
from instances.models import Instance
from tenants.api import pages
from tenants.errors import Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStorage:
    """Storage use of one topic. `leader_bytes` is the size at the leaders, `stored_bytes` that of all replicas. On a
    Kafka cluster only the latter is known.
    """

    name: str
    partitions: int | None
    leader_bytes: int | None
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Storage use of an instance, without the partitions led by `silent` brokers. `used_bytes`, which is compared with
    the limit, is the sum over `topics` and `deleted_bytes`, the size of deleted topics that may be restored.
    """

    bought_bytes: int
    used_bytes: int
    deleted_bytes: int
    topics: tuple[TopicStorage, ...]
    forecast: Forecast
    silent: tuple[BrokerUnresponsive, ...]
    when_full: StorageWhenFull


def storage_of(instance: Instance) -> Storage:
    """Returns the storage use. Raises `Conflict` while the instance has no brokers, `Unavailable` if none answers."""
    access.require_reachable(instance)
    sizes = interfaces.observation.implementation.topic_sizes(instance.pk)
    is_on_kafka = interfaces.is_on_kafka.implementation(instance.pk)
    if sizes.silent and not sizes.topics and not sizes.has_stored_bytes:
        raise Unavailable("No broker of this instance answers.", retry_after_s=1)
    topics = by_topic_on_kafka(sizes) if is_on_kafka else by_topic(sizes)
    deleted_bytes = sum(sizes.hidden.values())
    used_bytes = sizes.stored_bytes if is_on_kafka else sum(topic.stored_bytes for topic in topics) + deleted_bytes
    when_full = instance.settings_in_force["storage_when_full"]
    samples = storage_history.samples_of(instance.pk)
    return Storage(
        bought_bytes=instance.storage_bytes,
        used_bytes=used_bytes,
        deleted_bytes=deleted_bytes,
        topics=topics,
        forecast=forecast(samples, used_bytes=used_bytes, bought_bytes=instance.storage_bytes),
        silent=() if sizes.has_stored_bytes else sizes.silent,
        when_full=StorageWhenFull.STOP if is_on_kafka else StorageWhenFull(when_full),
    )


def by_topic(sizes: TopicSizes) -> tuple[TopicStorage, ...]:
    """Returns the storage use of each topic, in the order of names. Pure."""
    return tuple(
        TopicStorage(
            name=name,
            partitions=len(sizes.partitions.get(name, ())),
            leader_bytes=leader_bytes,
            stored_bytes=sizes.stored_by_topic.get(name, leader_bytes),
        )
        for name, (leader_bytes, _messages) in sorted(sizes.topics.items())
    )


def by_topic_on_kafka(sizes: TopicSizes) -> tuple[TopicStorage, ...]:
    """Returns the storage use of each topic of an instance on a Kafka cluster, in the order of names. Pure."""
    return tuple(
        TopicStorage(name=name, partitions=None, leader_bytes=None, stored_bytes=stored_bytes)
        for name, stored_bytes in sorted(sizes.stored_by_topic.items())
    )


def topics_of(storage: Storage, *, contains: str = "") -> list[TopicStorage]:
    """Returns the topics whose names contain a text, regardless of case."""
    return [topic for topic in storage.topics if contains.lower() in topic.name.lower()]


def topic_page(
    instance: Instance, storage: Storage, *, contains: str, page_token: str | None, page_size: int
) -> tuple[list[TopicStorage], str | None]:
    """Returns one page of topics in the order of names, and the token of the next page."""
    return pages.page_of_items(
        topics_of(storage, contains=contains),
        key=lambda topic: topic.name,
        page_size=page_size,
        page_token=page_token,
        binding=f"storage {instance.pk} {contains}",
    )
