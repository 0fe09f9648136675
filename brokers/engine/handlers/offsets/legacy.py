"""Version 0 of OffsetCommit and OffsetFetch: offsets in ZooKeeper, without groups and leaders (GRP-40, DEC-10).

Any broker answers. Only the requesting connection waits for ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from brokers.contract.partitions import PartitionKey
from brokers.engine.cluster.errors import ClusterError
from brokers.engine.coordinators.groups.offsets import NO_OFFSET, FetchedOffset
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.zookeeper_change import zookeeper_change
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.offsets import OffsetCommitRequestPartition
from brokers.engine.scheduling.time_slice import TimeSlice

# Maximum number of partitions of one request.
PARTITIONS_MAX: Final = 10_000
# Number of partitions whose commit costs as much as one change of a topic's configuration.
PARTITIONS_PER_CHANGE: Final = 10

RequestedTopics = Sequence[tuple[str, Sequence[int]]]


async def commit(
    context: RequestContext, group_id: str, topic_partitions: Sequence[tuple[str, OffsetCommitRequestPartition]]
) -> list[int]:
    """Commits offsets. Returns an error code for each partition."""
    services = context.services
    if not group_id or len(topic_partitions) > PARTITIONS_MAX:
        code = ErrorCode.INVALID_REQUEST if group_id else ErrorCode.INVALID_GROUP_ID
        return [int(code)] * len(topic_partitions)
    metadata_chars_max = services.coordination.settings.groups.metadata_bytes_max
    codes = [
        int(ErrorCode.OFFSET_METADATA_TOO_LARGE) if len(partition.committed_metadata or "") > metadata_chars_max else 0
        for _, partition in topic_partitions
    ]
    offsets = {
        (topic, partition.partition_index): partition.committed_offset
        for (topic, partition), code in zip(topic_partitions, codes, strict=True)
        if not code
    }
    try:
        async with zookeeper_change(context, 1 + len(offsets) // PARTITIONS_PER_CHANGE):
            await services.metadata.store.write_legacy_offsets(group_id, offsets)
    except ClusterError as failure:
        return [code or failure.wire_code for code in codes]
    return codes


async def fetch(
    context: RequestContext, group_id: str, requested_topics: RequestedTopics
) -> list[tuple[str, list[FetchedOffset]]]:
    """Returns offsets by the client's topic names; a partition without one has UNKNOWN_TOPIC_OR_PARTITION."""
    if sum(len(indexes) for _, indexes in requested_topics) > PARTITIONS_MAX:
        return await error_for_all(requested_topics, int(ErrorCode.INVALID_REQUEST))
    keys, error_codes = await _readable_partitions(context, requested_topics)
    result: dict[PartitionKey, int | None] = {}
    failure_code = 0
    if keys and group_id:
        try:
            offsets = await context.services.metadata.store.read_legacy_offsets(group_id, list(keys.values()))
        except ClusterError as failure:
            failure_code = failure.wire_code
        else:
            result = dict(zip(keys, offsets, strict=True))
    topics = []
    time_slice = TimeSlice()
    for name, indexes in requested_topics:
        await time_slice.pause()
        results = []
        for index in indexes:
            await time_slice.pause()
            offset = result.get((name, index))
            code = error_codes.get((name, index)) or failure_code or int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            results.append(_without_offset(index, code) if offset is None else FetchedOffset(index, offset, -1, ""))
        topics.append((name, results))
    return topics


async def error_for_all(requested_topics: RequestedTopics, code: int) -> list[tuple[str, list[FetchedOffset]]]:
    """Returns the same error for every partition."""
    time_slice = TimeSlice()
    topics = []
    for name, indexes in requested_topics:
        await time_slice.pause()
        results = []
        for index in indexes:
            await time_slice.pause()
            results.append(_without_offset(index, code))
        topics.append((name, results))
    return topics


async def _readable_partitions(
    context: RequestContext, requested_topics: RequestedTopics
) -> tuple[dict[PartitionKey, PartitionKey], dict[PartitionKey, int]]:
    """Returns the keys of partitions that may be read, by the client's names, and the error codes of the others."""
    keys: dict[PartitionKey, PartitionKey] = {}
    error_codes: dict[PartitionKey, int] = {}
    time_slice = TimeSlice()
    for name, indexes in requested_topics:
        await time_slice.pause()
        topic, error = context.named_topic(name)
        for index in indexes:
            await time_slice.pause()
            if topic is not None and not error and 0 <= index < len(topic.partitions):
                keys[name, index] = (topic.name, index)
            else:
                error_codes[name, index] = error or int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return keys, error_codes


def _without_offset(index: int, code: int) -> FetchedOffset:
    return FetchedOffset(index, NO_OFFSET, -1, "", code)
