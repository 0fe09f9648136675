"""ListOffsets 0: where the segments of a partition begin, newest first (LOG-29)."""

from __future__ import annotations

from typing import Final

from brokers.engine.access.authorizer import Operation, decide
from brokers.engine.cluster.image import TopicImage
from brokers.engine.handlers.context import Call
from brokers.engine.partitions.old_readers import segment_offsets
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode, downgraded
from brokers.engine.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

SEGMENTS_VERSION: Final = 0


def list_segments(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    topics = []
    for wanted in request.topics:
        topic = call.view.namespace.topics.get(wanted.name.encode())
        error = decide(call.view.state, topic, Operation.CONSUME, call.address)
        lines = [
            _line(partition.partition_index, error) if error or topic is None else _segments(call, topic, partition)
            for partition in wanted.partitions
        ]
        topics.append(ListOffsetsTopicResponse(name=wanted.name, partitions=lines))
    return ListOffsetsResponse(topics=topics)


def _line(index: int, error: int, offsets: list[int] | None = None) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=error, old_style_offsets=offsets or [])


def _segments(call: Call, topic: TopicImage, wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    index = wanted.partition_index
    if not 0 <= index < len(topic.partitions):
        return _line(index, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    partition = call.engine.table.get(topic.name, index)
    if partition is None:
        return _line(index, int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    if wanted.max_num_offsets < 0:
        return _line(index, int(ErrorCode.INVALID_REQUEST))
    code, offsets = segment_offsets(partition, wanted.timestamp, wanted.max_num_offsets, call.engine.clock.now_ms())
    return _line(index, downgraded(code, ApiKey.LIST_OFFSETS, call.version), offsets)
