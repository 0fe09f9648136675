"""Which committed offsets nobody needs any more (GRP-26). Pure: groups and a time in, partitions out."""

from __future__ import annotations

from brokers.contract.partitions import PartitionKey
from brokers.engine.coordinators.groups.committed import GroupOffsets
from brokers.engine.coordinators.groups.formats import NO_TIMESTAMP
from brokers.engine.coordinators.groups.group import Group, State
from brokers.engine.coordinators.groups.subscriptions import stored_topics, subscribed_topics

NOTHING: frozenset[str] = frozenset()


def expired(group: Group, held: GroupOffsets, now_ms: int, retention_ms: int) -> list[PartitionKey]:
    """The partitions whose offsets have outlived their time; what an open transaction holds is not among them."""
    wanted: frozenset[str] | None = NOTHING
    # When the time of an offset began, if not with its commit.
    began_ms = NO_TIMESTAMP
    if group.protocol_type is None:
        pass
    elif group.state is State.EMPTY:
        began_ms = group.state_timestamp_ms
    elif group.is_consumer and group.state is State.STABLE:
        wanted = subscribed(group)
    else:
        wanted = None
    if wanted is None:
        return []
    began_at_least_ms = held.oldest_ms if began_ms == NO_TIMESTAMP else began_ms
    if not held.expiring and now_ms - began_at_least_ms < retention_ms:
        # The usual case, in which nothing has to be looked at.
        return []
    result = []
    oldest_ms = 1 << 62
    for topic, partitions in held.topics.items():
        kept = topic in wanted
        for partition, entry in partitions.items():
            if entry.expire_timestamp_ms != NO_TIMESTAMP:
                over = now_ms >= entry.expire_timestamp_ms
            else:
                oldest_ms = min(oldest_ms, entry.commit_timestamp_ms)
                over = now_ms - (entry.commit_timestamp_ms if began_ms == NO_TIMESTAMP else began_ms) >= retention_ms
            if over and not kept and not (held.pending and held.is_pending(topic, partition)):
                result.append((topic, partition))
    held.oldest_ms = oldest_ms
    return result


def subscribed(group: Group) -> frozenset[str] | None:
    """The internal names of what the members of a group of consumers read; None: that is not known, so it may be
    anything (GRP-28).
    """
    names = None if group.subscriptions is None else subscribed_topics(group.subscriptions)
    return None if names is None else stored_topics(group.id, names)
