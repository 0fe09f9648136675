"""ListOffsets: first and last offset of a partition, and the offset at a timestamp (LOG-25, LOG-26)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable

from brokers.engine.cluster.image import TopicImage
from brokers.engine.handlers.common.peer_brokers import is_speaker
from brokers.engine.handlers.context import Call
from brokers.engine.handlers.fetch.list_offsets_legacy import SEGMENTS_VERSION, list_segments
from brokers.engine.handlers.fetch.prefetch import ROUNDS_MAX, Missing, prefetch
from brokers.engine.partitions.listing import MAX_TIMESTAMP
from brokers.engine.partitions.listing import list_offsets as list_offsets_of
from brokers.engine.partitions.partition import LOG_END, Partition
from brokers.engine.partitions.results import ListedOffset
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode, downgraded
from brokers.engine.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from brokers.engine.scheduling.time_slice import yield_to_others

# Number of partitions searched by timestamp in one turn of the event loop; each further one has a turn of its own,
# since a search may read every record of a batch.
SEARCHED_AT_ONCE_MAX = 4
ISOLATION_LEVELS = (0, 1)
UNKNOWN_ISOLATION = -1


def list_offsets(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    """Answers the request. A partition named twice is rejected with error 42, as in Kafka, except in version 0."""
    if call.version == SEGMENTS_VERSION:
        return list_segments(call, request)
    named = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    lookup = _Lookup(call, _isolation(call, request))
    topics = []
    for wanted in request.topics:
        topic = call.view.namespace.topics.get(wanted.name.encode())
        error = call.refusal(topic, wanted.name)
        lines = []
        for partition in wanted.partitions:
            if named[wanted.name, partition.partition_index] > 1:
                lines.append(_refused(partition, int(ErrorCode.INVALID_REQUEST)))
            elif error or topic is None:
                lines.append(_refused(partition, error))
            else:
                lines.append(lookup.line(topic, partition))
        topics.append(ListOffsetsTopicResponse(name=wanted.name, partitions=lines))
    response = ListOffsetsResponse(topics=topics)
    return lookup.complete(response) if lookup.unfinished else response


def _isolation(call: Call, request: ListOffsetsRequest) -> int:
    """Returns the isolation level of the look-up: a follower gets the log end, committed or not (REP-9)."""
    if request.isolation_level not in ISOLATION_LEVELS:
        return UNKNOWN_ISOLATION
    is_follower = request.replica_id >= 0 and is_speaker(call.services, call.view.principal, request.replica_id)
    return LOG_END if is_follower else int(request.isolation_level)


def _refused(partition: ListOffsetsPartition, error: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=error)


class _Lookup:
    """Look-up of one request's partitions. `unfinished` are those that need the disk or are yet to be searched."""

    def __init__(self, call: Call, isolation: int) -> None:
        self.call = call
        self.isolation = isolation
        self.searched = 0
        self.unfinished: list[tuple[ListOffsetsPartitionResponse, ListOffsetsPartition, Partition]] = []

    def line(self, topic: TopicImage, wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        index = wanted.partition_index
        if self.isolation == UNKNOWN_ISOLATION:
            return _refused(wanted, int(ErrorCode.UNKNOWN_SERVER_ERROR))
        if not 0 <= index < len(topic.partitions):
            return _refused(wanted, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        partition = self.call.services.storage.table.get(topic.name, index)
        if partition is None:
            return _refused(wanted, int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        line = ListOffsetsPartitionResponse(partition_index=index)
        if wanted.timestamp >= 0 or wanted.timestamp == MAX_TIMESTAMP:
            self.searched += 1
            if self.searched > SEARCHED_AT_ONCE_MAX:
                self.unfinished.append((line, wanted, partition))
                return line
        result = self._ask(partition, wanted, wait=False)
        self._write(line, result)
        if result.uncached is not None:
            result.uncached.release()
            self.unfinished.append((line, wanted, partition))
        return line

    def _ask(self, partition: Partition, wanted: ListOffsetsPartition, *, wait: bool) -> ListedOffset:
        return list_offsets_of(
            partition,
            wanted.timestamp,
            isolation=self.isolation,
            version=self.call.version,
            current_leader_epoch=wanted.current_leader_epoch,
            wait=wait,
        )

    def _write(self, line: ListOffsetsPartitionResponse, found: ListedOffset) -> None:
        line.error_code = downgraded(found.error_code, ApiKey.LIST_OFFSETS, self.call.version)
        line.timestamp = found.timestamp
        line.offset = found.offset
        line.leader_epoch = found.leader_epoch

    async def complete(self, response: ListOffsetsResponse) -> ListOffsetsResponse:
        """Fills in the unfinished partitions of `response`, and serves other requests in between."""
        for listed, wanted, partition in self.unfinished:
            await yield_to_others()
            for _ in range(ROUNDS_MAX):
                result = self._ask(partition, wanted, wait=False)
                if result.uncached is None:
                    break
                await prefetch(self.call.services, [Missing(partition, result.uncached)])
            else:
                result = self._ask(partition, wanted, wait=True)
            self._write(listed, result)
        return response
