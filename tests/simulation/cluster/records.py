"""Batches as the simulator identifies them: by offsets, leader epoch and the checksum of their contents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import encode_request
from brokers.engine.protocol.headers import encode_request_frame
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from brokers.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from brokers.engine.protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from brokers.engine.records import batch as layout
from brokers.engine.records.builder import Record, build_batch

TOPIC = "orders"
# Version 13 fetches a topic by its id.
PRODUCE_VERSION, FETCH_VERSION, FETCH_BY_ID_VERSION, DELETE_RECORDS_VERSION = 9, 12, 13, 2


class Topic(NamedTuple):
    """A topic by name and id; without an id there is only one of this name."""

    name: str
    id: bytes | None = None


ORDERS = Topic(TOPIC)


class StoredBatch(NamedTuple):
    """A batch in a log; `crc` covers everything except its offsets and its leader epoch."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    producer_id: int
    base_sequence: int

    def __str__(self) -> str:
        whose = f" producer {self.producer_id} #{self.base_sequence}" if self.producer_id >= 0 else ""
        return f"{self.base_offset}-{self.last_offset} of epoch {self.leader_epoch} crc {self.crc:08x}{whose}"


def parse(data: bytes | memoryview) -> list[StoredBatch]:
    """Parses the complete batches at the start of `data`."""
    result, position = [], 0
    while position + layout.HEADER_BYTES <= len(data):
        # fmt: off
        (base_offset, length, epoch, _, crc, _, last_delta, _, _, producer_id, _, sequence, _
         ) = layout.HEADER.unpack_from(data, position)
        # fmt: on
        position += length + layout.LOG_OVERHEAD_BYTES
        if position > len(data):
            break
        result.append(StoredBatch(base_offset, base_offset + last_delta, epoch, crc, producer_id, sequence))
    return result


def build_numbered_batch(values: Sequence[bytes], now_ms: int, producer_id: int, sequence: int) -> bytes:
    records = [Record(now_ms, None, value) for value in values]
    return bytes(
        build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
        )
    )


def crc_of(batch: bytes) -> int:
    return parse(batch)[0].crc


def produce_frame(correlation_id: int, topic: str, index: int, records: bytes, acks: int, timeout_ms: int) -> bytes:
    data = [PartitionProduceData(index=index, records=records)]
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(topic, data)])
    body = encode_request(ApiKey.PRODUCE, PRODUCE_VERSION, request)
    return encode_request_frame(ApiKey.PRODUCE, PRODUCE_VERSION, correlation_id, "producer", body)


def fetch_frame(correlation_id: int, topic: Topic, index: int, offset: int, leader_epoch: int) -> bytes:
    wanted = FetchPartition(
        partition=index, fetch_offset=offset, current_leader_epoch=leader_epoch, partition_max_bytes=1 << 20
    )
    version = fetch_version(topic)
    of_topic = FetchTopic(topic=topic.name) if topic.id is None else FetchTopic(topic_id=topic.id)
    of_topic.partitions = [wanted]
    request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[of_topic])
    body = encode_request(ApiKey.FETCH, version, request)
    return encode_request_frame(ApiKey.FETCH, version, correlation_id, "consumer", body)


def fetch_version(topic: Topic) -> int:
    return FETCH_VERSION if topic.id is None else FETCH_BY_ID_VERSION


def delete_records_frame(correlation_id: int, topic: str, index: int, offset: int, timeout_ms: int) -> bytes:
    wanted = DeleteRecordsPartition(partition_index=index, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=timeout_ms)
    body = encode_request(ApiKey.DELETE_RECORDS, DELETE_RECORDS_VERSION, request)
    return encode_request_frame(ApiKey.DELETE_RECORDS, DELETE_RECORDS_VERSION, correlation_id, "deleter", body)
