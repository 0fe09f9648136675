"""ListOffsets version 0: base offsets of a partition's segments, newest first (LOG-29)."""

from __future__ import annotations

from typing import Final

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
# Maximum number of segments that one response reads, apart from the rest of its last partition: each may need the disk.
SEGMENTS_PER_ANSWER_MAX: Final = 20_000


def list_segments(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    topics = []
    looked_at = 0
    for wanted in request.topics:
        topic = call.view.namespace.topics.get(wanted.name.encode())
        error = call.refusal(topic, wanted.name)
        lines = []
        for partition in wanted.partitions:
            if error or topic is None:
                lines.append(_line(partition.partition_index, error))
            elif looked_at >= SEGMENTS_PER_ANSWER_MAX:
                lines.append(_line(partition.partition_index, int(ErrorCode.INVALID_REQUEST)))
            else:
                lines.append(_segments(call, topic, partition))
                looked_at += _count(call, topic, partition)
        topics.append(ListOffsetsTopicResponse(name=wanted.name, partitions=lines))
    return ListOffsetsResponse(topics=topics)


def _line(index: int, error: int, offsets: list[int] | None = None) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=error, old_style_offsets=offsets or [])


def _count(call: Call, topic: TopicImage, wanted: ListOffsetsPartition) -> int:
    partition = call.services.storage.table.get(topic.name, wanted.partition_index)
    return 0 if partition is None else len(partition.log.segments)


def _segments(call: Call, topic: TopicImage, wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    index = wanted.partition_index
    if not 0 <= index < len(topic.partitions):
        return _line(index, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    partition = call.services.storage.table.get(topic.name, index)
    if partition is None:
        return _line(index, int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    if wanted.max_num_offsets < 0:
        return _line(index, int(ErrorCode.INVALID_REQUEST))
    code, offsets = segment_offsets(partition, wanted.timestamp, wanted.max_num_offsets, call.services.clock.now_ms())
    return _line(index, downgraded(code, ApiKey.LIST_OFFSETS, call.version), offsets)
