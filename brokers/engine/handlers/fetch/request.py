"""A client's decoded Fetch: removal of repeated partitions, and the decision if it has to wait (WIRE-27).

As in Apache Kafka the last entry of a repeated partition counts, at the position of the first, so that a partition is
read and watched once, however often a request names it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from brokers.engine.handlers.client import ClientContext
from brokers.engine.handlers.context import TenantMetadataView
from brokers.engine.handlers.fetch.waits import UncachedRead
from brokers.engine.handlers.session import RawRequest, Session
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.producers import AbortedByPartition
from brokers.engine.protocol.fast_codec_fetch import FetchFrame, FetchPartitionRequest, FetchTopicRequest
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchTopic
from brokers.engine.protocol.messages.fetch import FetchRequest as LegacyFetchRequest
from brokers.engine.scheduling.time_slice import TimeSlice, yield_to_others
from brokers.engine.throttling.charging import Limiter, fetch_cap_bytes
from brokers.engine.throttling.usage import UsageCounter
from brokers.engine.values import Slice

TOPIC_IDS_FROM: Final = 13
UNDEFINED: Final = -1
NO_SESSION: Final = 0
READ_COMMITTED: Final = 1
# Requests with up to this number of partitions may wait, however many partitions the instance has.
DELAYED_UNCOUNTED_MAX: Final = 1_000

# Partition index, error code, high watermark, last stable offset, log start offset, number of bytes, records.
PartitionResult = tuple[int, int, int, int, int, int, Slice | None]
# Leader epoch and end offset at which a reader's log diverges, by topic key and partition index.
Diverging = dict[tuple[bytes, int], tuple[int, int]]
# Broker to read from instead, by topic key and partition index.
Preferred = dict[tuple[bytes, int], int]
# Last entry of each partition, by topic name or id and partition index.
Latest = dict[tuple[bytes, int], FetchPartitionRequest]


class FetchReadResult:
    """Result of one pass over the partitions of a request.

    `uncached_reads` are reads of records that are not in the page cache, if the pass did not wait for the disk. The
    rest of the result is then discarded.
    """

    __slots__ = (
        "aborted", "diverging", "metered", "must_respond", "preferred", "readable_bytes", "slices", "topic_charges",
        "topic_results", "uncached_reads", "watched",
    )  # fmt: skip

    def __init__(self) -> None:
        self.aborted: AbortedByPartition = {}
        self.topic_results: list[tuple[bytes, list[PartitionResult]]] = []
        self.uncached_reads: list[UncachedRead] = []
        self.diverging: Diverging = {}
        # Replicas that the client should read from instead; None if there are none.
        self.preferred: Preferred | None = None
        self.metered: list[tuple[UsageCounter | None, int]] = []
        # Bytes read from topics that have a byte limit.
        self.topic_charges: list[tuple[Limiter, int]] = []
        self.readable_bytes = 0
        # Number of partitions that got records in `extend`.
        self.slices = 0
        self.watched: list[Partition] = []
        self.must_respond = False

    def add_topic(
        self,
        key: bytes,
        results: list[PartitionResult],
        topic_bytes: int,
        usage: UsageCounter | None,
        limiter: Limiter | None,
    ) -> None:
        """Appends a topic of the response, with the results of its partitions."""
        self.topic_results.append((key, results))
        if topic_bytes:
            self.readable_bytes += topic_bytes
            self.metered.append((usage, topic_bytes))
            if limiter is not None:
                self.topic_charges.append((limiter, topic_bytes))

    def extend(self, later: FetchReadResult, *, is_continuation: bool) -> None:
        """Appends a later result. With `is_continuation`, its first topic continues the last topic of this result."""
        topic_results = later.topic_results
        if is_continuation:
            self.topic_results[-1][1].extend(topic_results[0][1])
            topic_results = topic_results[1:]
        self.topic_results += topic_results
        for key, entries in later.aborted.items():
            self.aborted[key] = entries
        self.uncached_reads += later.uncached_reads
        self.diverging.update(later.diverging)
        if later.preferred:
            self.preferred = {} if self.preferred is None else self.preferred
            self.preferred.update(later.preferred)
        self.metered += later.metered
        self.topic_charges += later.topic_charges
        self.readable_bytes += later.readable_bytes
        self.slices += sum(1 for _, results in later.topic_results for result in results if result[6] is not None)
        self.watched += later.watched
        self.must_respond = self.must_respond or later.must_respond

    def release(self) -> None:
        """Closes the file slices of the result."""
        for _, results in self.topic_results:
            for result in results:
                if result[6] is not None:
                    result[6].release()


class FetchRequest:
    """A client's Fetch from version 4 on. `size_bytes` is its size as it was received."""

    __slots__ = ("client_id", "correlation_id", "frame", "session", "size_bytes", "version")

    def __init__(self, session: Session, raw: RawRequest, frame: FetchFrame) -> None:
        self.session = session
        self.client_id = raw.client_id
        self.version = raw.version
        self.correlation_id = raw.correlation_id
        self.size_bytes = raw.size_bytes
        self.frame = frame

    @property
    def names_topics_by_id(self) -> bool:
        """True if the request names its topics by id."""
        return self.version >= TOPIC_IDS_FROM

    def client(self) -> ClientContext:
        """Returns the client with the current state of the cluster: the request may have waited."""
        return self.session.client(self.client_id)

    def limit_bytes(self, client: ClientContext) -> int:
        """Returns the maximum number of bytes of records in the response."""
        bytes_max = min(self.frame.max_bytes, self.session.storage.fetch_bytes_max)
        return fetch_cap_bytes(client.consume_limiters, bytes_max)

    def missing_bytes(self, client: ClientContext, result: FetchReadResult, limit_bytes: int) -> int:
        """Returns the number of bytes that must become readable before the response, 0 if the request does not wait."""
        frame = self.frame
        wanted_bytes = min(frame.min_bytes, limit_bytes)
        missing_bytes = wanted_bytes - result.readable_bytes
        if missing_bytes <= 0 or frame.max_wait_ms <= 0 or result.must_respond or not result.watched:
            return 0
        if result.readable_bytes:
            readable = _read_without_error(client, frame, result)
            missing_bytes = 0 if readable is None else bytes_still_missing(readable, frame.isolation, wanted_bytes)
        if missing_bytes and may_be_delayed(sum([len(partitions) for _, partitions in frame.topics]), client.view):
            return missing_bytes
        return 0


def _read_without_error(
    client: ClientContext, frame: FetchFrame, result: FetchReadResult
) -> list[tuple[Partition, int, int]] | None:
    """Returns the partitions that were read without an error, each with its offset and its maximum number of bytes;
    None if a topic changed since the read.
    """
    readable = []
    for (key, partitions), (_, partition_results) in zip(frame.topics, result.topic_results, strict=True):
        topic = client.consume_topics.get(key)
        if topic is None:
            return None
        for (index, _, offset, _, _, bytes_max), partition_result in zip(partitions, partition_results, strict=True):
            partition = topic.partitions.get(index)
            if not partition_result[1] and partition is not None:
                readable.append((partition, offset, bytes_max))
    return readable


def may_be_delayed(partition_count: int, view: TenantMetadataView) -> bool:
    """True if a fetch of this number of partitions may wait.

    A request that names more partitions than the instance has repeats some, or names unknown ones. Thousands of such
    requests would use up the memory while they wait.
    """
    if partition_count <= DELAYED_UNCOUNTED_MAX or view.instance_id is None:
        return True
    return partition_count <= sum(len(topic.partitions) for topic in view.namespace.topics.values())


def bytes_still_missing(readable: Iterable[tuple[Partition, int, int]], isolation: int, wanted_bytes: int) -> int:
    """Returns the number of bytes that must become readable before a fetch of `readable` is answered, 0 if it need not
    wait.

    `readable` has the partitions without an error, each with its offset and its maximum number of bytes. All readable
    bytes count, also beyond one response, which ends at a segment's end and between two batches. A reader whose offset
    is in an older segment than the last readable record does not wait.
    """
    for partition, offset, bytes_max in readable:
        limit = partition.limit(isolation)
        if offset >= limit:
            continue
        segments = partition.log.segments
        next_segment = bisect_right(segments, offset, key=lambda segment: segment.base_offset)
        if next_segment < len(segments) and segments[next_segment].base_offset < limit:
            return 0
        wanted_bytes -= min(partition.log.bytes_between(offset, limit), bytes_max)
        if wanted_bytes <= 0:
            return 0
    return wanted_bytes


def without_repeats(frame: FetchFrame) -> FetchFrame:
    """Returns the frame with each partition once. Adjacent entries of one topic are merged, as in Kafka's response."""
    if not has_repeats(frame.topics):
        return frame
    return frame._replace(topics=_group_by_topic(_latest_entries(frame.topics)))


async def without_repeats_in_turns(frame: FetchFrame) -> FetchFrame:
    """Does the work of `without_repeats` for a frame with many partitions, and serves other requests in between."""
    if not has_repeats(frame.topics):
        return frame
    await yield_to_others()
    latest = _latest_entries(frame.topics)
    await yield_to_others()
    return frame._replace(topics=_group_by_topic(latest))


def has_repeats(topics: list[FetchTopicRequest]) -> bool:
    if len(topics) > 1 and len({key for key, _ in topics}) < len(topics):
        return True
    return any(
        len(partitions) > 1 and len({partition[0] for partition in partitions}) < len(partitions)
        for _, partitions in topics
    )


def _latest_entries(topics: list[FetchTopicRequest]) -> Latest:
    latest: Latest = {}
    for key, partitions in topics:
        for partition in partitions:
            latest[key, partition[0]] = partition
    return latest


def _group_by_topic(latest: Latest) -> list[FetchTopicRequest]:
    grouped: list[FetchTopicRequest] = []
    for (key, _), entry in latest.items():
        if grouped and grouped[-1][0] == key:
            grouped[-1][1].append(entry)
        else:
            grouped.append((key, [entry]))
    return grouped


async def without_repeats_in_legacy_request(request: LegacyFetchRequest) -> None:
    """Removes repeated partitions from a request of an old version, and serves other requests in between."""
    latest: dict[tuple[str, int], FetchPartition] = {}
    count = 0
    time_slice = TimeSlice()
    for topic in request.topics:
        count += len(topic.partitions)
        await time_slice.pause()
        for requested_partition in topic.partitions:
            await time_slice.pause()
            latest[topic.topic, requested_partition.partition] = requested_partition
    if len(latest) == count and len({topic.topic for topic in request.topics}) == len(request.topics):
        return
    topics: list[FetchTopic] = []
    for (name, _), requested_partition in latest.items():
        await time_slice.pause()
        if topics and topics[-1].topic == name:
            topics[-1].partitions.append(requested_partition)
        else:
            topics.append(FetchTopic(topic=name, partitions=[requested_partition]))
    request.topics = topics
