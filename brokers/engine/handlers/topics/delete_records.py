"""DeleteRecords: a topic's owner gives up everything below an offset, at once and for good (LOG-46).

Who may delete a topic may delete its records, in a frozen instance too, because that makes room. The answer goes out
when the start is on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from brokers.engine.cluster.image import TopicImage
from brokers.engine.handlers.context import Call
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

# The cluster's own topics; only its own identity can name them, and their records are somebody's accounts.
INTERNAL_PREFIX: Final = "__"

_Done = list[tuple[Partition, DeleteRecordsPartitionResult]]
# Whoever may wait longer than this for followers would better ask again.
FOLLOWERS_MS_MAX: Final = 60_000


async def delete_records(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    topics = []
    done: _Done = []
    followed: _Done = []
    for wanted in request.topics:
        topic = call.view.namespace.topics.get(wanted.name.encode())
        error = call.refusal(topic, wanted.name)
        if topic is not None and topic.instance_id is None and topic.name.startswith(INTERNAL_PREFIX):
            error = error or int(ErrorCode.INVALID_TOPIC_EXCEPTION)
        lines = [
            _refused(line, error) if topic is None or error else _delete(call, topic, line, done, followed)
            for line in wanted.partitions
        ]
        topics.append(DeleteRecordsTopicResult(name=wanted.name, partitions=lines))
    if done:
        await call.services.storage.starts.kept(partition.log.root for partition, _ in done)
        for partition, result in done:
            if partition.room.is_full:
                # Whoever waits for room does not wait for the next round of retention.
                call.services.storage.table.apply_retention_to(partition, call.services.clock.now_ms())
            if partition.offline:
                result.low_watermark = NO_LOW_WATERMARK
                result.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)
    if followed:
        await _until_followers_deleted(call, followed, request.timeout_ms)
    return DeleteRecordsResponse(topics=topics)


def _refused(line: DeleteRecordsPartition, error: int) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=line.partition_index, low_watermark=NO_LOW_WATERMARK, error_code=int(error)
    )


def _delete(
    call: Call, topic: TopicImage, line: DeleteRecordsPartition, done: _Done, followed: _Done
) -> DeleteRecordsPartitionResult:
    index = line.partition_index
    if not 0 <= index < len(topic.partitions):
        return _refused(line, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = call.services.storage.table.get(topic.name, index)
    if partition is None:
        return _refused(line, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    error, low_watermark = delete_before(partition, line.offset)
    result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=error)
    # Whoever moved it: another request, or this broker while it followed. A power cut may undo what retention deleted.
    if not error and (partition.log.kept_start_offset < low_watermark or partition.log.trims):
        done.append((partition, result))
    if not error and partition.leadership is not None:
        followed.append((partition, result))
    return result


async def _until_followers_deleted(call: Call, followed: _Done, timeout_ms: int) -> None:
    """Every replica in sync has to have deleted, or the next leader would have the records back (LOG-46)."""
    waits: list[tuple[DelayedDeletion, asyncio.Event]] = []
    for partition, result in followed:
        gone = asyncio.Event()
        wait = DelayedDeletion(gone.set, result.low_watermark)
        wait.watch(partition)
        waits.append((wait, gone))
    try:
        # When the time is over each partition is told below how far it came.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(max(timeout_ms, 0), FOLLOWERS_MS_MAX) / 1000):
                for _, gone in waits:
                    await gone.wait()
    finally:
        for wait, _ in waits:
            wait.cancel()
    for partition, result in followed:
        if result.error_code:
            continue
        if partition.offline:
            code = ErrorCode.KAFKA_STORAGE_ERROR  # who was waited for is not known any more
        elif not partition.is_leader:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif partition.low_watermark < result.low_watermark:
            code = ErrorCode.REQUEST_TIMED_OUT
        else:
            continue
        result.low_watermark, result.error_code = NO_LOW_WATERMARK, int(code)
