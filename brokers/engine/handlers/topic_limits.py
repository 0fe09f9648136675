"""Byte limits in a topic's settings, which apply to all its producers or all its consumers on this broker."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final

from brokers.contract.partitions import NO_LEADER
from brokers.engine.access.authorizer import Operation
from brokers.engine.cluster.image import TopicImage
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.partitions.topic_settings import CONSUME_BYTE_RATE, NO_LIMIT, PRODUCE_BYTE_RATE
from brokers.engine.throttling.accounting import InstanceAccounting
from brokers.engine.throttling.charging import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, Limiter, Quota

_KEYS: Final[dict[Operation, tuple[str, Quota]]] = {
    Operation.PRODUCE: (PRODUCE_BYTE_RATE, PRODUCER_BYTE_RATE),
    Operation.CONSUME: (CONSUME_BYTE_RATE, CONSUMER_BYTE_RATE),
}


def limiter_of(
    services: BrokerServices, accounting: InstanceAccounting, topic: TopicImage, operation: Operation
) -> Limiter | None:
    """Returns the topic's limiter; None if it has no limit, or no partition that this broker leads."""
    key, quota = _KEYS[operation]
    value = topic.config.get(key) or services.metadata.topic_defaults.get(key)
    if value is None or value == NO_LIMIT:
        return None
    limit_bps = _limit_bps(value)
    if limit_bps < 1:
        return None
    now_ms = services.clock.monotonic_ms()
    return accounting.topic_quotas.limiter(
        topic.name, quota, limit_bps, topic, partial(_leaders, topic), services.broker_id, now_ms
    )


def _limit_bps(value: str) -> int:
    """Returns the limit; 0 if the value in ZooKeeper is no number (QUO-75)."""
    try:
        return int(value)
    except ValueError:
        return 0


def _leaders(topic: TopicImage) -> Counter[int]:
    leaders = Counter(partition.leader for partition in topic.partitions)
    leaders.pop(NO_LEADER, None)
    return leaders
