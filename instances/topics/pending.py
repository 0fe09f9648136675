"""Topics that were created or restored a moment ago, and that brokers may not show yet.

They are entries in the cache, which may be lost: without its entry, such a topic is not found until brokers show it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from django.core.cache import cache

from instances.choices import TopicState
from instances.limits import PENDING_TOPIC_SHOWN_S, PENDING_TOPICS_KEPT_MAX
from instances.models import DeletedTopic, Instance

MS_PER_S = 1_000


class PendingTopic(NamedTuple):
    """A topic that brokers do not show yet. `replication_factor` is None if it is unknown."""

    name: str
    state: str
    topic_id: str
    partition_count: int
    replication_factor: int | None
    at_ms: int


def add(instance_id: str, topic: PendingTopic) -> None:
    """Stores a topic for a while. Beyond `PENDING_TOPICS_KEPT_MAX` the oldest is removed."""
    stored = {**_read(instance_id), topic.name: topic}
    latest = sorted(stored.values(), key=lambda entry: entry.at_ms)[-PENDING_TOPICS_KEPT_MAX:]
    _write(instance_id, latest)


def remove(instance_id: str, names: Iterable[str]) -> None:
    """Removes topics that were deleted."""
    stored = _read(instance_id)
    removed = stored.keys() & set(names)
    if removed:
        _write(instance_id, [entry for name, entry in stored.items() if name not in removed])


def pending_topics(instance: Instance, *, now_ms: int | None = None) -> Mapping[str, PendingTopic]:
    """Returns topics by name that brokers may not show yet, including restored ones that are not yet published."""
    oldest_ms = (current_ms() if now_ms is None else now_ms) - PENDING_TOPIC_SHOWN_S * MS_PER_S
    rows = DeletedTopic.objects.filter(instance=instance, is_restored=True)
    result = {
        row.topic: PendingTopic(row.topic, TopicState.BEING_RESTORED.value, row.topic_id, row.partitions, None, 0)
        for row in rows
    }
    result.update({name: entry for name, entry in _read(instance.pk).items() if entry.at_ms >= oldest_ms})
    return result


def current_ms() -> int:
    return time.time_ns() // 1_000_000


def _read(instance_id: str) -> dict[str, PendingTopic]:
    return {entry[0]: PendingTopic(*entry) for entry in cache.get(_key(instance_id)) or ()}


def _write(instance_id: str, entries: Iterable[PendingTopic]) -> None:
    cache.set(_key(instance_id), [tuple(entry) for entry in entries], PENDING_TOPIC_SHOWN_S)


def _key(instance_id: str) -> str:
    return f"topics:{instance_id}:pending"
