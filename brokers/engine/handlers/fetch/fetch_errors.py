"""Errors of a whole Fetch, and the divergence of a reader's log (REP-15)."""

from __future__ import annotations

from typing import Final

from brokers.engine.handlers.common.chunked_encoding import encoded_in_chunks
from brokers.engine.partitions.partition import Partition
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fast_codec import FetchFrame
from brokers.engine.protocol.headers import encode_response_frame
from brokers.engine.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartitionData,
    FetchResponse,
)
from brokers.engine.scheduling.time_slice import TimeSlice, free_incrementally
from brokers.engine.values import Slice

TOPIC_IDS_FROM = 13
UNDEFINED = -1
NO_SESSION: Final = 0
READ_COMMITTED: Final = 1

PartitionResult = tuple[int, int, int, int, int, int, Slice | None]
# Leader epoch and end offset at which a reader's log diverges, by topic key and partition index.
Diverging = dict[tuple[bytes, int], tuple[int, int]]


def divergence(partition: Partition, last_fetched_epoch: int, offset: int) -> tuple[int, int] | int | None:
    """Returns where a reader whose last batch has `last_fetched_epoch` diverged from the leader's log; None if it did
    not.

    An epoch the leader never knew is OFFSET_OUT_OF_RANGE (observed of 3.9.1).
    """
    code, epoch, end_offset = partition.end_offset_for_epoch(last_fetched_epoch)
    if code:
        return None
    if epoch == UNDEFINED or end_offset == UNDEFINED:
        return int(ErrorCode.OFFSET_OUT_OF_RANGE)
    return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < offset else None


async def refused(version: int, correlation_id: int, error: int, frame: FetchFrame) -> bytes:
    """Returns the response that rejects the whole request: with topic ids once, and in older versions, which have no
    other way, in each partition. The partitions may be many.
    """
    topics = []
    if version < TOPIC_IDS_FROM:
        time_slice = TimeSlice()
        for key, wanted in frame.topics:
            await time_slice.pause()  # a topic may be named without partitions
            lines = []
            for line in wanted:
                await time_slice.pause()
                lines.append(
                    FetchPartitionData(
                        partition_index=line[0],
                        error_code=error,
                        high_watermark=UNDEFINED,
                        aborted_transactions=[],
                        records=None,
                    )
                )
            topics.append(FetchableTopicResponse(topic=key.decode("utf-8", "replace"), partitions=lines))
    response = FetchResponse(error_code=error, responses=topics)
    body = (await encoded_in_chunks(ApiKey.FETCH, version, response)).body
    await free_incrementally(topics, lambda topic: topic.partitions)
    return encode_response_frame(ApiKey.FETCH, version, correlation_id, body)
