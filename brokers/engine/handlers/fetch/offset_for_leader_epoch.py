"""OffsetForLeaderEpoch: end offset of a leader epoch, from which a reader sees if the log that it read was truncated
since (LOG-31, LOG-32, KIP-320).
"""

from __future__ import annotations

from brokers.engine.cluster.image import TopicImage
from brokers.engine.handlers.context import Call
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.list_offsets import (
    LeaderEpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def offset_for_leader_epoch(call: Call, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    """Answers the request from memory, as leader only. The requesting `replica_id` makes no difference."""
    topics = []
    for wanted in request.topics:
        topic = call.view.namespace.topics.get(wanted.topic.encode())
        error = call.refusal(topic, wanted.topic)
        lines = [
            _refused(line, error) if topic is None or error else _line(call, topic, line) for line in wanted.partitions
        ]
        topics.append(OffsetForLeaderTopicResult(topic=wanted.topic, partitions=lines))
    return OffsetForLeaderEpochResponse(topics=topics)


def _refused(line: OffsetForLeaderPartition, error: int) -> LeaderEpochEndOffset:
    return LeaderEpochEndOffset(error_code=int(error), partition=line.partition)


def _line(call: Call, topic: TopicImage, line: OffsetForLeaderPartition) -> LeaderEpochEndOffset:
    if not 0 <= line.partition < len(topic.partitions):
        return _refused(line, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = call.services.storage.table.get(topic.name, line.partition)
    if partition is None:
        return _refused(line, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    error, epoch, end_offset = partition.end_offset_for_epoch(line.leader_epoch, line.current_leader_epoch)
    return LeaderEpochEndOffset(error_code=error, partition=line.partition, leader_epoch=epoch, end_offset=end_offset)
