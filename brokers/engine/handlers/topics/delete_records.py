"""DeleteRecords: deletes all records below an offset, at once and for good (LOG-46).

The right to delete a topic includes its records, even in a frozen instance, because that frees storage. The response is
sent when the new log start is on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from brokers.engine.cluster.image import TopicImage
from brokers.engine.handlers.context import RequestContext
from brokers.engine.partitions.delayed_operations import DelayedDeletion
from brokers.engine.partitions.deletion import NO_LOW_WATERMARK, delete_before
from brokers.engine.partitions.partition import Partition
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

# Prefix of the cluster's own topics; only its own identity can name them, and their records must not be deleted.
INTERNAL_PREFIX: Final = "__"

_PartitionResults = list[tuple[Partition, DeleteRecordsPartitionResult]]
# Maximum wait for followers; a client with a longer timeout has to retry.
FOLLOWERS_MS_MAX: Final = 60_000


async def delete_records(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    topics = []
    unpersisted: _PartitionResults = []
    replicated: _PartitionResults = []
    for requested_topic in request.topics:
        topic, error = context.named_topic(requested_topic.name)
        if topic is not None and topic.instance_id is None and topic.name.startswith(INTERNAL_PREFIX):
            error = error or int(ErrorCode.INVALID_TOPIC_EXCEPTION)
        results = [
            _error_result(requested_partition, error)
            if topic is None or error
            else _delete(context, topic, requested_partition, unpersisted, replicated)
            for requested_partition in requested_topic.partitions
        ]
        topics.append(DeleteRecordsTopicResult(name=requested_topic.name, partitions=results))
    if unpersisted:
        await context.services.storage.durable_start_offsets.wait_until_durable(
            partition.log.root for partition, _ in unpersisted
        )
        for partition, result in unpersisted:
            if partition.room.is_full:
                # Storage is freed now, not in the next retention round.
                context.services.storage.table.apply_retention_to(partition, context.services.clock.now_ms())
            if partition.offline:
                result.low_watermark = NO_LOW_WATERMARK
                result.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)
    if replicated:
        await _wait_for_followers(context, replicated, request.timeout_ms)
    return DeleteRecordsResponse(topics=topics)


def _error_result(requested_partition: DeleteRecordsPartition, error: int) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=requested_partition.partition_index, low_watermark=NO_LOW_WATERMARK, error_code=error
    )


def _delete(
    context: RequestContext,
    topic: TopicImage,
    requested_partition: DeleteRecordsPartition,
    unpersisted: _PartitionResults,
    replicated: _PartitionResults,
) -> DeleteRecordsPartitionResult:
    partition = context.services.storage.find(topic, requested_partition.partition_index)
    if isinstance(partition, int):
        return _error_result(requested_partition, partition)
    error, low_watermark = delete_before(partition, requested_partition.offset)
    result = DeleteRecordsPartitionResult(
        partition_index=requested_partition.partition_index, low_watermark=low_watermark, error_code=error
    )
    # The log start may not be on disk even if this request did not move it: another request or a former leader may have
    # done so. Until it is on disk, segments that retention deleted may reappear after a power failure as well.
    if not error and (partition.log.durable_start_offset < low_watermark or partition.log.unflushed_deletions):
        unpersisted.append((partition, result))
    if not error and partition.leadership is not None:
        replicated.append((partition, result))
    return result


async def _wait_for_followers(context: RequestContext, replicated: _PartitionResults, timeout_ms: int) -> None:
    """Waits until every replica in sync has deleted the records: the next leader must not have them (LOG-46)."""
    waits: list[tuple[DelayedDeletion, asyncio.Event]] = []
    for partition, result in replicated:
        deleted = asyncio.Event()
        wait = DelayedDeletion(deleted.set, result.low_watermark)
        wait.watch(partition)
        waits.append((wait, deleted))
    try:
        # After the timeout each partition gets the result that it has reached.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(max(timeout_ms, 0), FOLLOWERS_MS_MAX) / 1000):
                for _, deleted in waits:
                    await deleted.wait()
    finally:
        for wait, _ in waits:
            wait.cancel()
    for partition, result in replicated:
        if result.error_code:
            continue
        if partition.offline:
            code = ErrorCode.KAFKA_STORAGE_ERROR  # the followers of an offline partition are unknown
        elif not partition.is_leader:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif partition.low_watermark < result.low_watermark:
            code = ErrorCode.REQUEST_TIMED_OUT
        else:
            continue
        result.low_watermark, result.error_code = NO_LOW_WATERMARK, int(code)
