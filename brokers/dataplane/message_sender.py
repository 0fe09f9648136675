"""Sends messages of the console and the REST API: one batch per partition, in the given order."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.translation import gettext_noop
from kafka.partitioner.default import murmur2
from kafka.protocol.producer.produce import ProduceRequest
from kafka.record.memory_records import MemoryRecordsBuilder

from brokers.dataplane.admin_client import domain_error_of
from brokers.dataplane.message_source import NO_LEADER, TopicSource
from brokers.dataplane.scatter import pair_with_targets, scatter
from brokers.dataplane.topics import TIMEOUT_MS
from brokers.limits import ADMIN_CLIENT_ANSWER_TIMEOUT_S
from instances.messages.interfaces import NewMessage, SendResult
from tenants.errors import FieldError, Invalid, Message, OutcomeUnknown, Unavailable

PRODUCE_VERSION = 9
ALL_IN_SYNC = -1
MAGIC, UNCOMPRESSED = 2, 0
BATCH_BYTES_MAX = 1 << 30
# Errors that brokers return before storing anything, and errors that may hide a stored batch.
NOT_LEADER = frozenset({5, 6, 8, 9, 74, 75})
MAYBE_STORED = frozenset({7, 20})
NO_LEADER_CODE = "partition_without_leader"
_HASH_MASK = 0x7FFFFFFF


def send(source: TopicSource, messages: Sequence[NewMessage]) -> list[SendResult]:
    """Implements `instances.messages.interfaces.MessageAdminClient.send`. Raises `Invalid` for an unknown partition."""
    indexes_by_partition = _indexes_by_partition(source, messages)
    by_leader: dict[int, dict[int, list[int]]] = defaultdict(dict)
    for partition, indexes in indexes_by_partition.items():
        by_leader[source.leaders[partition]][partition] = indexes
    requests = {
        leader: _request(
            source.topic, {index: [messages[number] for number in indexes] for index, indexes in leader_indexes.items()}
        )
        for leader, leader_indexes in by_leader.items()
        if leader in source.targets
    }
    scatter_result = scatter(
        pair_with_targets(source.targets, requests), deadline_s=ADMIN_CLIENT_ANSWER_TIMEOUT_S, is_write=True
    )  # fmt: skip
    if not scatter_result.responses:
        if scatter_result.may_be_executed:
            raise OutcomeUnknown
        raise _no_leader()
    responses = {
        partition.index: partition
        for _, response in scatter_result.responses
        for topic in response.responses
        for partition in topic.partition_responses
    }
    results: list[SendResult | None] = [None] * len(messages)
    for partition, indexes in indexes_by_partition.items():
        was_sent = source.leaders[partition] in requests
        for position, number in enumerate(indexes):
            results[number] = _result(partition, responses.get(partition), position, was_sent)
    return [result for result in results if result is not None]


def _indexes_by_partition(source: TopicSource, messages: Sequence[NewMessage]) -> dict[int, list[int]]:
    """Returns the indexes of messages by partition, in order.

    Messages without key and partition go to one random partition, as with Kafka's sticky partitioner.
    """
    count = len(source.leaders)
    with_leader = sorted(index for index, leader in source.leaders.items() if leader != NO_LEADER) or sorted(
        source.leaders
    )
    sticky_partition = random.choice(with_leader)  # noqa: S311
    result: dict[int, list[int]] = defaultdict(list)
    for number, message in enumerate(messages):
        partition = message.partition
        if partition is None:
            partition = sticky_partition if message.key is None else (murmur2(message.key) & _HASH_MASK) % count
        elif partition not in source.leaders:
            detail = Message(gettext_noop("The topic has %(n)s partitions, from 0 on."), n=count)
            pointer = f"/messages/{number}/partition"
            raise Invalid(detail, errors=[FieldError(pointer=pointer, detail=detail, code="no_such_partition")])
        result[partition].append(number)
    return result


def _request(topic: str, batches: Mapping[int, Sequence[NewMessage]]) -> Any:
    topic_class = ProduceRequest.TopicProduceData
    data = [
        topic_class.PartitionProduceData(index=index, records=_batch(messages))
        for index, messages in sorted(batches.items())
    ]
    return ProduceRequest(
        transactional_id=None,
        acks=ALL_IN_SYNC,
        timeout_ms=TIMEOUT_MS,
        topic_data=[topic_class(name=topic, partition_data=data)],
        version=PRODUCE_VERSION,
    )


def _batch(messages: Sequence[NewMessage]) -> bytes:
    builder = MemoryRecordsBuilder(MAGIC, UNCOMPRESSED, BATCH_BYTES_MAX)
    now_ms = int(time.time() * 1000)
    for message in messages:
        timestamp_ms = now_ms if message.timestamp_ms is None else message.timestamp_ms
        builder.append(timestamp=timestamp_ms, key=message.key, value=message.value, headers=list(message.headers))
    builder.close()
    return bytes(builder.buffer())


def _result(partition: int, response: Any, position: int, was_sent: bool) -> SendResult:
    if response is not None and not response.error_code:
        return SendResult(partition=partition, offset=int(response.base_offset) + position)
    if (response is None and was_sent) or (response is not None and response.error_code in MAYBE_STORED):
        return SendResult(partition=partition, error=OutcomeUnknown())
    if response is None or response.error_code in NOT_LEADER:
        return SendResult(partition=partition, error=_no_leader())
    return SendResult(partition=partition, error=domain_error_of(response.error_code, response.error_message))


def _no_leader() -> Unavailable:
    return Unavailable(
        "No broker leads the partition at the moment. Nothing was stored.", code=NO_LEADER_CODE, retry_after_s=1
    )
