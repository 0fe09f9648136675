"""DescribeProducers: the producers with a producer id of a partition, and the start of their open transactions.

Only the partition's leader answers.
"""

from __future__ import annotations

from typing import Final

from brokers.engine.cluster.image import TopicImage
from brokers.engine.handlers.context import Call
from brokers.engine.partitions.producers import known_producers
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.producers import (
    ActiveProducer,
    DescribeProducersPartitionResult,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResult,
)
from brokers.engine.scheduling.time_slice import TimeSlice
from instances import naming

# Maximum number of producers in one response, apart from the rest of its last partition; clients split their requests.
PRODUCERS_PER_ANSWER_MAX: Final = 40_000

# Kafka's messages, which its clients show.
_MESSAGES: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The request attempted to perform an operation on an invalid topic.",
    ErrorCode.INVALID_REQUEST: "Too many producers for one answer: ask about fewer partitions.",
}


async def describe_producers(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    time_slice = TimeSlice()
    topics = []
    described = 0
    for wanted in request.topics:
        topic = call.view.namespace.topics.get(wanted.name.encode())
        error = _error(call, wanted.name, topic)
        partitions = []
        for index in wanted.partition_indexes:
            if error or topic is None:
                partitions.append(_refused(index, error))
            elif described >= PRODUCERS_PER_ANSWER_MAX:
                partitions.append(_refused(index, int(ErrorCode.INVALID_REQUEST)))
            else:
                partitions.append(_partition(call, topic, index))
                described += len(partitions[-1].active_producers)
            await time_slice.pause()
        topics.append(DescribeProducersTopicResult(name=wanted.name, partitions=partitions))
        await time_slice.pause()  # a topic may have no partitions
    return DescribeProducersResponse(topics=topics)


def settings_described(response: DescribeProducersResponse) -> int:
    """Returns the length of a response in topics, partitions and producers."""
    lines = [partition for topic in response.topics for partition in topic.partitions]
    return len(response.topics) + sum(len(partition.active_producers) + 1 for partition in lines)


def _error(call: Call, name: str, topic: TopicImage | None) -> int:
    refusal = call.refusal(topic, name)
    if refusal == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not naming.is_valid_topic_name(name):
        return int(ErrorCode.INVALID_TOPIC_EXCEPTION)
    return refusal


def _refused(index: int, code: int) -> DescribeProducersPartitionResult:
    message = _MESSAGES.get(ErrorCode(code))
    return DescribeProducersPartitionResult(partition_index=index, error_code=code, error_message=message)


def _partition(call: Call, topic: TopicImage, index: int) -> DescribeProducersPartitionResult:
    result = DescribeProducersPartitionResult(partition_index=index)
    partition = call.services.storage.table.get(topic.name, index)
    if not 0 <= index < len(topic.partitions):
        result.error_code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    elif partition is None or not partition.is_leader:
        result.error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    elif partition.offline:
        result.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)
    else:
        result.active_producers = [
            ActiveProducer(
                producer_id=known.producer_id,
                producer_epoch=known.epoch,
                last_sequence=known.last_sequence,
                last_timestamp=known.last_timestamp_ms,
                coordinator_epoch=known.coordinator_epoch,
                current_txn_start_offset=known.transaction_first_offset,
            )
            for known in known_producers(partition)
        ]
    return result
