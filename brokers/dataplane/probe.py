"""Test message of a new instance: produced to a temporary topic and read back, as the instance's owner.

It uses the internal listener, where bytes are not metered, so the tenant does not pay for it.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

from kafka.protocol.admin.topics import CreateTopicsRequest
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.producer.produce import ProduceRequest
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from brokers.dataplane.admin_client import require_ok, send_as_instance
from brokers.dataplane.topics import CREATE_TOPICS_VERSION, TIMEOUT_MS, delete_topics_request, metadata_request
from brokers.limits import PROBE_DEADLINE_S
from tenants.errors import DomainError, NotFound

PROBE_TOPIC = "penstock-probe"
PRODUCE_VERSION = 9
FETCH_VERSION = 11
RETRY_INTERVAL_S = 0.01
ALREADY_EXISTS = 36
# Retriable errors between the creation of the topic and the leader's knowledge of it.
RETRIABLE_ERRORS = frozenset({3, 5, 6, 74, 75, 100})


class ProbeFailed(Exception):
    """The first message could not be written or read back; the text names the step."""


def first_message(instance_id: str) -> float:
    """Produces one record and reads it back; returns the milliseconds it took. Raises `ProbeFailed`."""
    started_s = time.monotonic()
    deadline_s = started_s + PROBE_DEADLINE_S
    value = uuid.uuid4().bytes
    try:
        _create_topic(instance_id)
        leader = _leader(instance_id, deadline_s)
        offset = _produce(instance_id, leader, value, deadline_s)
        _fetch(instance_id, leader, offset, value, deadline_s)
    except DomainError as error:
        raise ProbeFailed(error.detail or error.title) from error
    return (time.monotonic() - started_s) * 1000


def clean_up(instance_id: str) -> None:
    """Deletes the probe's topic; a missing topic is not an error."""
    (result,) = send_as_instance(instance_id, delete_topics_request([PROBE_TOPIC])).responses
    try:
        require_ok(result.error_code)
    except NotFound:
        return


def _create_topic(instance_id: str) -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        name=PROBE_TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(
        topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False, version=CREATE_TOPICS_VERSION
    )
    (result,) = send_as_instance(instance_id, request).topics
    if result.error_code != ALREADY_EXISTS:
        require_ok(result.error_code, result.error_message)


def _leader(instance_id: str, deadline_s: float) -> int:
    while True:
        (topic,) = send_as_instance(instance_id, metadata_request([PROBE_TOPIC])).topics
        if not topic.error_code and topic.partitions and topic.partitions[0].leader_id >= 0:
            return int(topic.partitions[0].leader_id)
        _wait_to_retry(topic.error_code, deadline_s, "its topic has no leader")


def _produce(instance_id: str, leader: int, value: bytes, deadline_s: float) -> int:
    batch = MemoryRecordsBuilder(2, 0, 1 << 12)
    batch.append(timestamp=int(time.time() * 1000), key=None, value=value)
    batch.close()
    topic_class = ProduceRequest.TopicProduceData
    while True:
        data = topic_class(
            name=PROBE_TOPIC, partition_data=[topic_class.PartitionProduceData(index=0, records=bytes(batch.buffer()))]
        )
        request = ProduceRequest(
            transactional_id=None, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[data], version=PRODUCE_VERSION
        )
        response = send_as_instance(instance_id, request, broker=leader)
        (partition,) = response.responses[0].partition_responses
        if not partition.error_code:
            return int(partition.base_offset)
        _wait_to_retry(partition.error_code, deadline_s, "the first message was refused")


def _fetch(instance_id: str, leader: int, offset: int, value: bytes, deadline_s: float) -> None:
    while True:
        response = send_as_instance(instance_id, _fetch_request(offset), broker=leader)
        (partition,) = response.responses[0].partitions
        records = bytes(partition.records or b"")
        if not partition.error_code and any(value == record.value for record in _records(records)):
            return
        _wait_to_retry(partition.error_code, deadline_s, "the first message did not come back")


def _fetch_request(offset: int) -> Any:
    topic_class = FetchRequest.FetchTopic
    partition = topic_class.FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=1 << 16,
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[topic_class(topic=PROBE_TOPIC, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
        version=FETCH_VERSION,
    )


def _records(raw: bytes) -> list[Any]:
    result: list[Any] = []
    records = MemoryRecords(raw)
    while records.has_next():
        result.extend(records.next_batch())
    return result


def _wait_to_retry(error_code: int, deadline_s: float, failure_text: str) -> None:
    """Sleeps before the next attempt. Raises the domain error of a final error code, and `ProbeFailed` after the
    deadline.
    """
    if error_code and error_code not in RETRIABLE_ERRORS:
        require_ok(error_code)
    if time.monotonic() >= deadline_s:
        raise ProbeFailed(f"{failure_text} (error {error_code})" if error_code else failure_text)
    time.sleep(RETRY_INTERVAL_S)
