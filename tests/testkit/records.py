"""Produce and fetch requests, for tests that speak the protocol themselves."""

from __future__ import annotations

import time
from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import UUID_ZERO
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from brokers.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from brokers.engine.records.builder import Record, build_batch, read_records
from tests.testkit.wire import WireClient

PRODUCE_VERSION, FETCH_VERSION = 9, 12
NOW_MS = 1_600_000_000_000


def batch(*values: bytes, **more: Any) -> bytes:
    return bytes(build_batch([Record(NOW_MS, None, value) for value in values], **more))


def batch_of_now(*values: bytes) -> bytes:
    """Returns a batch that no retention deletes."""
    now_ms = int(time.time() * 1000)
    return bytes(build_batch([Record(now_ms, None, value) for value in values]))


def produce_request(
    topic: str, records: bytes | None, *, partition: int = 0, acks: int = 1, transactional_id: str | None = None
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


async def produce(
    client: WireClient, topic: str, records: bytes | None, *, version: int = PRODUCE_VERSION, **more: Any
) -> Any:
    """Produces, and returns the answer of the one partition."""
    answer = await client.call(ApiKey.PRODUCE, version, produce_request(topic, records, **more))
    return answer.responses[0].partition_responses[0]


def fetch_request(
    topic: str,
    offset: int = 0,
    *,
    topic_id: bytes = UUID_ZERO,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50_000_000,
    partition_max_bytes: int = 1_000_000,
    isolation: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    replica_id: int = -1,
    leader_epoch: int = -1,
    rack: str = "",
) -> FetchRequest:
    fetch_partition = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
        current_leader_epoch=leader_epoch,
    )
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[fetch_partition])],
        forgotten_topics_data=[],
        rack_id=rack,
    )


async def fetch(client: WireClient, topic: str, offset: int = 0, *, version: int = FETCH_VERSION, **more: Any) -> Any:
    """Fetches, and returns the answer of the one partition."""
    answer = await client.call(ApiKey.FETCH, version, fetch_request(topic, offset, **more))
    assert answer.error_code == 0, answer
    return answer.responses[0].partitions[0]


def values(records: bytes | None) -> list[bytes | None]:
    """Returns the values of all records in all batches."""
    result: list[bytes | None] = []
    position = 0
    data = records or b""
    while position < len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        result += [record.value for _, record in read_records(data[position : position + size])]
        position += size
    return result
