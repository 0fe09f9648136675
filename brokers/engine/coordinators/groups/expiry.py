"""Expiry of committed offsets (GRP-26). No I/O; the only effect is an update of `GroupOffsets.oldest_ms`."""

from __future__ import annotations

from brokers.contract.partitions import PartitionKey
from brokers.engine.coordinators.groups.committed import GroupOffsets
from brokers.engine.coordinators.groups.formats import NO_TIMESTAMP
from brokers.engine.coordinators.groups.group import Group, GroupState
from brokers.engine.coordinators.groups.subscriptions import decode_subscribed_topics, internal_topics

NO_TOPICS: frozenset[str] = frozenset()


def expired_partitions(group: Group, offsets: GroupOffsets, now_ms: int, retention_ms: int) -> list[PartitionKey]:
    """Returns the partitions whose committed offsets have expired, without those that have pending offsets."""
    subscribed_names: frozenset[str] | None = NO_TOPICS
    # Start of the retention time, if it is not the time of the commit.
    began_ms = NO_TIMESTAMP
    if group.protocol_type is None:
        pass  # a group that only commits offsets: each offset expires by the time of its commit
    elif group.state is GroupState.EMPTY:
        began_ms = group.state_timestamp_ms
    elif group.is_consumer and group.state is GroupState.STABLE:
        subscribed_names = subscribed_topics(group)
    else:
        subscribed_names = None
    if subscribed_names is None:
        return []
    earliest_began_ms = offsets.oldest_ms if began_ms == NO_TIMESTAMP else began_ms
    if not offsets.own_expiry_count and now_ms - earliest_began_ms < retention_ms:
        # The usual case: no offset can have expired, so none is examined.
        return []
    result = []
    oldest_ms = 1 << 62
    for topic, partitions in offsets.topics.items():
        is_subscribed = topic in subscribed_names
        for partition, entry in partitions.items():
            if entry.expire_timestamp_ms != NO_TIMESTAMP:
                is_expired = now_ms >= entry.expire_timestamp_ms
            else:
                oldest_ms = min(oldest_ms, entry.commit_timestamp_ms)
                is_expired = (
                    now_ms - (entry.commit_timestamp_ms if began_ms == NO_TIMESTAMP else began_ms) >= retention_ms
                )
            if is_expired and not is_subscribed and not (offsets.pending and offsets.is_pending(topic, partition)):
                result.append((topic, partition))
    offsets.oldest_ms = oldest_ms
    return result


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """Returns the internal names of the topics that a consumer group's members read; None if they are not known, so
    that it may be any topic (GRP-28).
    """
    names = None if group.subscriptions is None else decode_subscribed_topics(group.subscriptions)
    return None if names is None else internal_topics(group.id, names)
