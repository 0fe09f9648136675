"""Record batches that a broker stores as they are sent."""

from __future__ import annotations

import time

from kafka.protocol.producer.produce import ProduceRequest
from kafka.record.memory_records import MemoryRecordsBuilder

from brokers.dataplane import admin_client, message_sender
from brokers.dataplane.topics import TIMEOUT_MS

BATCH_BYTES_MAX = 1 << 30


def send_batch(instance_id: str, topic: str, batch: bytes, version: int = message_sender.PRODUCE_VERSION) -> None:
    """Sends a batch verbatim to partition 0, like a producer with its own codec."""
    kind = ProduceRequest.TopicProduceData
    data = kind(name=topic, partition_data=[kind.PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(
        transactional_id=None, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[data], version=version
    )  # fmt: skip
    response = admin_client.send_as_instance(instance_id, request)
    assert not response.responses[0].partition_responses[0].error_code, response


def batch_of_zeros(size_bytes: int, codec: int) -> bytes:
    """Returns a batch of one record, which compresses to a thousandth."""
    builder = MemoryRecordsBuilder(2, codec, BATCH_BYTES_MAX)
    builder.append(timestamp=int(time.time() * 1000), key=b"bomb", value=bytes(size_bytes))
    builder.close()
    return bytes(builder.buffer())
