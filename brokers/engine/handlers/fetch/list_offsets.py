"""ListOffsets: first and last offset of a partition, the offset at a timestamp, and in version 0 the base offsets of
segments, newest first (LOG-25, LOG-26, LOG-29). OffsetForLeaderEpoch: end offset of a leader epoch, from which a reader
sees if the log that it read was truncated since (LOG-31, LOG-32, KIP-320).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from typing import Final

from brokers.engine.cluster.image import TopicImage
from brokers.engine.handlers.common.peer_brokers import is_named_broker
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.fetch.waits import PREFETCH_ROUNDS_MAX, UncachedRead, prefetch
from brokers.engine.partitions.listing import MAX_TIMESTAMP
from brokers.engine.partitions.listing import list_offsets as list_offsets_of
from brokers.engine.partitions.old_readers import list_segment_offsets
from brokers.engine.partitions.partition import LOG_END, Partition
from brokers.engine.partitions.results import ListedOffset
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode, downgraded
from brokers.engine.protocol.messages.list_offsets import (
    LeaderEpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from brokers.engine.scheduling.time_slice import yield_to_others

# Number of partitions searched by timestamp in one turn of the event loop; each further one has a turn of its own,
# since a search may read every record of a batch.
SEARCHED_AT_ONCE_MAX = 4
ISOLATION_LEVELS = (0, 1)
UNKNOWN_ISOLATION = -1
SEGMENTS_VERSION: Final = 0
# Maximum number of segments that one response reads, apart from the rest of its last partition: each may need the disk.
SEGMENTS_PER_RESPONSE_MAX: Final = 20_000


def list_offsets(
    context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    """Answers the request. A partition named twice is rejected with error 42, as in Kafka, except in version 0."""
    if context.version == SEGMENTS_VERSION:
        return list_segments(context, request)
    occurrences = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    lookup = _Lookup(context, _isolation(context, request))
    topics = []
    for requested_topic in request.topics:
        topic, error = context.named_topic(requested_topic.name)
        results = []
        for partition in requested_topic.partitions:
            if occurrences[requested_topic.name, partition.partition_index] > 1:
                results.append(_error_response(partition, int(ErrorCode.INVALID_REQUEST)))
            elif error or topic is None:
                results.append(_error_response(partition, error))
            else:
                results.append(lookup.add(topic, partition))
        topics.append(ListOffsetsTopicResponse(name=requested_topic.name, partitions=results))
    response = ListOffsetsResponse(topics=topics)
    return lookup.complete(response) if lookup.unfinished else response


def _isolation(context: RequestContext, request: ListOffsetsRequest) -> int:
    """Returns the isolation level of the look-up: a follower gets the log end, committed or not (REP-9)."""
    if request.isolation_level not in ISOLATION_LEVELS:
        return UNKNOWN_ISOLATION
    if request.replica_id >= 0 and is_named_broker(context.services, context.view.principal, request.replica_id):
        return LOG_END
    return int(request.isolation_level)


def _error_response(partition: ListOffsetsPartition, error: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=error)


class _Lookup:
    """Look-up of one request's partitions. `unfinished` are those that need the disk or are yet to be searched."""

    def __init__(self, context: RequestContext, isolation: int) -> None:
        self.context = context
        self.isolation = isolation
        self.search_count = 0
        self.unfinished: list[tuple[ListOffsetsPartitionResponse, ListOffsetsPartition, Partition]] = []

    def add(self, topic: TopicImage, requested_partition: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        index = requested_partition.partition_index
        if self.isolation == UNKNOWN_ISOLATION:
            return _error_response(requested_partition, int(ErrorCode.UNKNOWN_SERVER_ERROR))
        partition = self.context.services.storage.find(topic, index)
        if isinstance(partition, int):
            return _error_response(requested_partition, partition)
        response = ListOffsetsPartitionResponse(partition_index=index)
        if requested_partition.timestamp >= 0 or requested_partition.timestamp == MAX_TIMESTAMP:
            self.search_count += 1
            if self.search_count > SEARCHED_AT_ONCE_MAX:
                self.unfinished.append((response, requested_partition, partition))
                return response
        result = self._list_offset(partition, requested_partition, wait=False)
        self._set_result(response, result)
        if result.uncached is not None:
            result.uncached.release()
            self.unfinished.append((response, requested_partition, partition))
        return response

    def _list_offset(
        self, partition: Partition, requested_partition: ListOffsetsPartition, *, wait: bool
    ) -> ListedOffset:
        return list_offsets_of(
            partition,
            requested_partition.timestamp,
            isolation=self.isolation,
            version=self.context.version,
            current_leader_epoch=requested_partition.current_leader_epoch,
            may_wait=wait,
        )

    def _set_result(self, response: ListOffsetsPartitionResponse, result: ListedOffset) -> None:
        response.error_code = downgraded(result.error_code, ApiKey.LIST_OFFSETS, self.context.version)
        response.timestamp = result.timestamp
        response.offset = result.offset
        response.leader_epoch = result.leader_epoch

    async def complete(self, response: ListOffsetsResponse) -> ListOffsetsResponse:
        """Sets the results of the unfinished partitions in `response`, and serves other requests in between."""
        for partition_response, requested_partition, partition in self.unfinished:
            await yield_to_others()
            for _ in range(PREFETCH_ROUNDS_MAX):
                result = self._list_offset(partition, requested_partition, wait=False)
                if result.uncached is None:
                    break
                await prefetch(self.context.services, [UncachedRead(partition, result.uncached)])
            else:
                result = self._list_offset(partition, requested_partition, wait=True)
            self._set_result(partition_response, result)
        return response


def list_segments(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Answers a ListOffsets of version 0 with the base offsets of segments."""
    topics = []
    segment_count = 0
    for requested_topic in request.topics:
        topic, error = context.named_topic(requested_topic.name)
        results = []
        for partition in requested_topic.partitions:
            if error or topic is None:
                results.append(_error_response(partition, error))
            elif segment_count >= SEGMENTS_PER_RESPONSE_MAX:
                results.append(_error_response(partition, int(ErrorCode.INVALID_REQUEST)))
            else:
                response, partition_segments = _segments_response(context, topic, partition)
                results.append(response)
                segment_count += partition_segments
        topics.append(ListOffsetsTopicResponse(name=requested_topic.name, partitions=results))
    return ListOffsetsResponse(topics=topics)


def _segments_response(
    context: RequestContext, topic: TopicImage, requested_partition: ListOffsetsPartition
) -> tuple[ListOffsetsPartitionResponse, int]:
    """Returns the result of a partition, and the number of its segments."""
    partition = context.services.storage.find(topic, requested_partition.partition_index)
    if isinstance(partition, int):
        return _error_response(requested_partition, partition), 0
    segments = len(partition.log.segments)
    if requested_partition.max_num_offsets < 0:
        return _error_response(requested_partition, int(ErrorCode.INVALID_REQUEST)), segments
    code, offsets = list_segment_offsets(
        partition, requested_partition.timestamp, requested_partition.max_num_offsets, context.services.clock.now_ms()
    )
    response = _error_response(requested_partition, downgraded(code, ApiKey.LIST_OFFSETS, context.version))
    response.old_style_offsets = offsets
    return response, segments


def offset_for_leader_epoch(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Answers the request from memory, for partitions that this broker leads. The `replica_id` is ignored."""
    topics = []
    for requested_topic in request.topics:
        topic, error = context.named_topic(requested_topic.topic)
        results = [_end_offset(context, topic, error, partition) for partition in requested_topic.partitions]
        topics.append(OffsetForLeaderTopicResult(topic=requested_topic.topic, partitions=results))
    return OffsetForLeaderEpochResponse(topics=topics)


def _end_offset(
    context: RequestContext, topic: TopicImage | None, error: int, requested_partition: OffsetForLeaderPartition
) -> LeaderEpochEndOffset:
    partition = error if topic is None or error else context.services.storage.find(topic, requested_partition.partition)
    if isinstance(partition, int):
        return LeaderEpochEndOffset(error_code=partition, partition=requested_partition.partition)
    code, epoch, end_offset = partition.end_offset_for_epoch(
        requested_partition.leader_epoch, requested_partition.current_leader_epoch
    )
    return LeaderEpochEndOffset(
        error_code=code, partition=requested_partition.partition, leader_epoch=epoch, end_offset=end_offset
    )
