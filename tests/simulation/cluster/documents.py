"""Cache of parsed ZooKeeper documents, which the run reads after every step."""

from __future__ import annotations

from functools import lru_cache

from brokers.contract.documents import BrokerDocument, PartitionStateDocument, TopicDocument

REMEMBERED_MAX = 1_024


@lru_cache(REMEMBERED_MAX)
def state_of(data: bytes) -> PartitionStateDocument:
    return PartitionStateDocument.from_json(data)


@lru_cache(REMEMBERED_MAX)
def registration_of(data: bytes) -> BrokerDocument:
    return BrokerDocument.from_json(data)


@lru_cache(REMEMBERED_MAX)
def topic_of(data: bytes) -> TopicDocument:
    return TopicDocument.from_json(data)
