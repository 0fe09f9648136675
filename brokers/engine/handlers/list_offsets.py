"""ListOffsets: where a partition begins, ends, or was at a time (LOG-25, LOG-26)."""

from __future__ import annotations

from collections import Counter

from brokers.engine.access.authorizer import Operation, decide
from brokers.engine.cluster.image import TopicImage
from brokers.engine.handlers.context import Call
from brokers.engine.handlers.list_offsets_old import SEGMENTS_VERSION, list_segments
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode, downgraded
from brokers.engine.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

ISOLATION_LEVELS = (0, 1)


def list_offsets(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """A partition named twice is refused with 42, as Kafka does (but not in version 0)."""
    if call.version == SEGMENTS_VERSION:
        return list_segments(call, request)
    named = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    topics = []
    for wanted in request.topics:
        topic = call.view.namespace.topics.get(wanted.name.encode())
        error = decide(call.view.state, topic, Operation.CONSUME, call.address)
        lines = []
        for partition in wanted.partitions:
            if named[wanted.name, partition.partition_index] > 1:
                lines.append(_refused(partition, int(ErrorCode.INVALID_REQUEST)))
            elif error or topic is None:
                lines.append(_refused(partition, error))
            else:
                lines.append(_look_up(call, request.isolation_level, topic, partition))
        topics.append(ListOffsetsTopicResponse(name=wanted.name, partitions=lines))
    return ListOffsetsResponse(topics=topics)


def _refused(partition: ListOffsetsPartition, error: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=error)


def _look_up(
    call: Call, isolation: int, topic: TopicImage, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    index = wanted.partition_index
    if isolation not in ISOLATION_LEVELS:
        return _refused(wanted, int(ErrorCode.UNKNOWN_SERVER_ERROR))
    if not 0 <= index < len(topic.partitions):
        return _refused(wanted, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    partition = call.engine.table.get(topic.name, index)
    if partition is None:
        return _refused(wanted, int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    code, timestamp, offset, leader_epoch = partition.list_offsets(
        wanted.timestamp,
        isolation=isolation,
        version=call.version,
        current_leader_epoch=wanted.current_leader_epoch,
    )
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=downgraded(code, ApiKey.LIST_OFFSETS, call.version),
        timestamp=timestamp,
        offset=offset,
        leader_epoch=leader_epoch,
    )
