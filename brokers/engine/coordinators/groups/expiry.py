"""Expiry of committed offsets (GRP-26). No I/O; the only effect is an update of `GroupOffsets.oldest_ms`.

Offsets of topics that the members of a group read do not expire (GRP-28). Of their subscriptions only the common
beginning of all versions of the consumer protocol is decoded: an int16 version and the topics. The broker needs nothing
else (GRP-16).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as struct_error

from brokers.contract.partitions import PartitionKey
from brokers.engine.coordinators.groups.committed import GroupOffsets
from brokers.engine.coordinators.groups.formats import NO_TIMESTAMP
from brokers.engine.coordinators.groups.group import Group, GroupState
from instances import naming

_HEAD = Struct(">hi")
_LENGTH = Struct(">H")
NO_TOPICS: frozenset[str] = frozenset()


def decode_subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Returns the topics of all members as their clients name them, None if a subscription cannot be decoded."""
    result: set[str] = set()
    for subscription in subscriptions:
        names = _decode_topic_names(subscription)
        if names is None:
            return None
        result.update(names)
    return frozenset(result)


def internal_topics(group: str, names: Iterable[str]) -> frozenset[str]:
    """Returns the internal names of the topics `names`, under which offsets are stored. `group` is the group's internal
    name, from which the instance is known; a group of the cluster itself names internal topics.
    """
    instance_id, _ = naming.split_internal(group)
    if instance_id is None:
        return frozenset(names)
    return frozenset(naming.internal_topic(instance_id, name) for name in names)


def _decode_topic_names(subscription: bytes) -> list[str] | None:
    try:
        version, count = _HEAD.unpack_from(subscription, 0)
        position = _HEAD.size
        if version < 0 or not 0 <= count <= (len(subscription) - position) // _LENGTH.size:
            return None
        names = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(subscription, position)
            position += _LENGTH.size + length
            if position > len(subscription):
                return None
            names.append(str(subscription[position - length : position], "utf-8"))
    except (struct_error, UnicodeDecodeError):
        return None
    return names


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
