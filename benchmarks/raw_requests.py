"""Frames that floods send, and readers of their responses: frames are built once, responses are read at
fixed offsets.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import decode_response, encode_request
from brokers.engine.protocol.headers import decode_response_header, encode_request_frame
from brokers.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from brokers.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from brokers.engine.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from brokers.engine.records.builder import Record, build_batch

Target = tuple[str, int]

# The last versions whose responses have every field at a fixed offset.
PRODUCE, METADATA, CREATE, DELETE = 7, 8, 4, 3
TIMEOUT_MS = 10_000
LEADERS_S = 30
# Bytes of a batch of one record that are not its value.
BATCH_OVERHEAD_BYTES = 80
API_VERSIONS = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"


def _frame(api_key: ApiKey, version: int, client_id: str, message: Any) -> bytes:
    return encode_request_frame(api_key, version, 1, client_id, encode_request(api_key, version, message))


def produce(client_id: str, topic: str, partition: int, batch_bytes: int) -> bytes:
    """Returns a produce of one record of about `batch_bytes`, to be acknowledged by the leader."""
    record = Record(time.time_ns() // 1_000_000, None, bytes(max(1, batch_bytes - BATCH_OVERHEAD_BYTES)))
    data = PartitionProduceData(index=partition, records=bytes(build_batch([record])))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=TIMEOUT_MS, topic_data=topics)
    return _frame(ApiKey.PRODUCE, PRODUCE, client_id, request)


def metadata(client_id: str) -> bytes:
    """Returns a metadata request for all topics."""
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    return _frame(ApiKey.METADATA, METADATA, client_id, request)


def create_topic(client_id: str, name: str) -> bytes:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return _frame(ApiKey.CREATE_TOPICS, CREATE, client_id, CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))


def delete_topic(client_id: str, name: str) -> bytes:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS)
    return _frame(ApiKey.DELETE_TOPICS, DELETE, client_id, request)


def read_produced(topic: str) -> Callable[[bytes], tuple[int, int]]:
    """Returns the reader of a produce response for one partition: correlation id, topics, the name, partitions, index,
    error, …, throttle time.
    """
    error_at = 4 + 4 + 2 + len(topic.encode()) + 4 + 4

    def read(answer: bytes) -> tuple[int, int]:
        return int.from_bytes(answer[error_at : error_at + 2], "big", signed=True), int.from_bytes(answer[-4:], "big")

    return read


def read_throttled(answer: bytes) -> tuple[int, int]:
    """Reads the throttle time after the correlation id; there is no error field."""
    return 0, int.from_bytes(answer[4:8], "big")


def read_mutation(answer: bytes) -> tuple[int, int]:
    """Reads a response for one topic: correlation id, throttle time, topics, the name, its error."""
    name_bytes = int.from_bytes(answer[12:14], "big")
    error_at = 14 + name_bytes
    return int.from_bytes(answer[error_at : error_at + 2], "big", signed=True), int.from_bytes(answer[4:8], "big")


def read_api_versions(answer: bytes) -> tuple[int, int]:
    """Reads an ApiVersions response of version 0: correlation id, error."""
    return int.from_bytes(answer[4:6], "big", signed=True), 0


def call_once(target: Target, api_key: ApiKey, version: int, message: Any) -> Any:
    """Sends one request over a connection of its own; returns the response."""
    with socket.create_connection(target, TIMEOUT_MS / 1000) as connection, connection.makefile("rb") as answers:
        connection.sendall(_frame(api_key, version, "benchmark", message))
        answer = answers.read(int.from_bytes(answers.read(4), "big"))
    _, position = decode_response_header(api_key, version, answer, 0, len(answer))
    return decode_response(api_key, version, answer, position, len(answer))


def leaders_of(target: Target, topic: str) -> list[Target]:
    """Waits until all partitions have leaders; returns the leaders' addresses by partition number."""
    deadline_s = time.monotonic() + LEADERS_S
    while time.monotonic() < deadline_s:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        response = call_once(target, ApiKey.METADATA, METADATA, request)
        addresses_by_id = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        partitions = sorted(response.topics[0].partitions, key=lambda partition: partition.partition_index)
        if partitions and all(partition.leader_id in addresses_by_id for partition in partitions):
            return [addresses_by_id[partition.leader_id] for partition in partitions]
        time.sleep(0.05)
    raise SystemExit(f"{topic} has no leaders after {LEADERS_S} s")
