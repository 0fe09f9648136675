"""Reads the partitions of one topic from their leaders by ListOffsets, Fetch and DescribeProducers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django.utils.translation import gettext_noop
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.consumer.offsets import ListOffsetsRequest

from brokers.contract.process import MESSAGES_CLIENT_ID
from brokers.dataplane import transactions
from brokers.dataplane.admin_client import cluster_of, require_ok
from brokers.dataplane.link import CLIENT_ID
from brokers.dataplane.message_cursor import READ_COMMITTED, READ_UNCOMMITTED, FetchRange
from brokers.dataplane.message_pages import FetchedPartition, FetchResult
from brokers.dataplane.offsets import LIST_OFFSETS_VERSION
from brokers.dataplane.record_batches import batches
from brokers.dataplane.scatter import (
    ScatterResult,
    Target,
    begin_scatter,
    first_response,
    pair_with_targets,
    scatter,
    targets,
)
from brokers.dataplane.topics import NO_SUCH_TOPIC, metadata_request
from instances.groups.interfaces import EARLIEST, LATEST
from tenants.errors import Message, NotFound

FETCH_VERSION = 11
NO_LEADER = -1
NO_OFFSET = -1
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC = 1, 3


@dataclass(frozen=True, slots=True)
class Bounds:
    """Log start offset, high watermark and last stable offset of a partition."""

    start: int
    end: int
    stable: int


class TopicSource:
    """Topic of an instance, read as its owner. Raises `NotFound` if the topic does not exist.

    Without `leaders`, brokers are queried for them.
    """

    def __init__(
        self,
        instance_id: str,
        topic: str,
        client_id: str = MESSAGES_CLIENT_ID,
        leaders: Mapping[int, int] | None = None,
    ) -> None:
        self.topic = topic
        self._targets = targets(cluster_of(instance_id), instance_id, client_id)
        self.leaders = self._query_leaders() if leaders is None else dict(leaders)

    def refresh_leaders(self) -> None:
        """Queries the leaders again. Raises `NotFound` if the topic was deleted meanwhile."""
        self.leaders = self._query_leaders()

    def _query_leaders(self) -> dict[int, int]:
        """Returns the leader by partition, NO_LEADER if there is none at the moment."""
        (description,) = first_response(self._targets.values(), lambda: metadata_request([self.topic])).topics
        if description.error_code in NO_SUCH_TOPIC or description.is_internal:
            raise NotFound(Message(gettext_noop('There is no topic "%(name)s".'), name=self.topic))
        require_ok(description.error_code)
        return {partition.partition_index: partition.leader_id for partition in description.partitions}

    @property
    def targets(self) -> Mapping[int, Target]:
        return self._targets

    def all_bounds(self, partitions: Iterable[int]) -> dict[int, Bounds]:
        """Returns the bounds of partitions whose leaders answer."""
        indexes = list(partitions)
        start, end, stable = self._query_offsets(
            indexes, [(EARLIEST, READ_UNCOMMITTED), (LATEST, READ_UNCOMMITTED), (LATEST, READ_COMMITTED)]
        )
        return {
            index: Bounds(start[index], end[index], min(stable[index], end[index]))
            for index in indexes
            if index in start and index in end and index in stable
        }

    def bounds(self, partition: int) -> tuple[int, int, int] | None:
        """Implements `message_pages.PartitionSource`."""
        bounds = self.all_bounds([partition]).get(partition)
        return None if bounds is None else (bounds.start, bounds.end, bounds.stable)

    def offsets(
        self, partitions: Iterable[int], at_ms_or_position: int, isolation: int = READ_UNCOMMITTED
    ) -> dict[int, int]:
        """Returns the offsets at a timestamp in ms, EARLIEST or LATEST; NO_OFFSET if no record is that new."""
        (result,) = self._query_offsets(partitions, [(at_ms_or_position, isolation)])
        return result

    def _query_offsets(self, partitions: Iterable[int], queries: Sequence[tuple[int, int]]) -> list[dict[int, int]]:
        """Returns the offsets by partition for each query (timestamp or position, isolation), in the order of queries.

        All requests are sent at once.
        """
        by_leader = self._partitions_by_leader(partitions)
        numbered_requests = [
            (query_number, pair)
            for query_number, (at_ms_or_position, isolation) in enumerate(queries)
            for pair in pair_with_targets(
                self._targets,
                {
                    leader: self._offsets_request(indexes, at_ms_or_position, isolation)
                    for leader, indexes in by_leader.items()
                },
            )
        ]
        result: list[dict[int, int]] = [{} for _ in queries]
        responses = scatter([pair for _, pair in numbered_requests]).by_request
        for (query_number, _), response in zip(numbered_requests, responses, strict=True):
            for topic in response.topics if response is not None else ():
                result[query_number] |= {
                    partition.partition_index: partition.offset
                    for partition in topic.partitions
                    if not partition.error_code
                }
        return result

    def _offsets_request(self, partitions: Iterable[int], at_ms_or_position: int, isolation: int) -> Any:
        topic_class = ListOffsetsRequest.ListOffsetsTopic
        queried = [
            topic_class.ListOffsetsPartition(
                partition_index=index, current_leader_epoch=-1, timestamp=at_ms_or_position
            )
            for index in partitions
        ]
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[topic_class(name=self.topic, partitions=queried)],
            version=LIST_OFFSETS_VERSION,
        )

    def fetch(self, ranges: Mapping[int, FetchRange], bytes_max: int, timeout_s: float) -> FetchResult:
        """Returns the available data. Raises `NotFound` if the topic was deleted meanwhile."""
        return self.begin_fetch(ranges, bytes_max, timeout_s)()

    def begin_fetch(
        self, ranges: Mapping[int, FetchRange], bytes_max: int, timeout_s: float
    ) -> Callable[[], FetchResult]:
        """Implements `message_pages.PartitionSource`. The returned function raises `NotFound` as `fetch` does."""
        requests = []
        for leader, indexes in self._partitions_by_leader(ranges).items():
            for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
                leader_ranges = {index: ranges[index] for index in indexes if ranges[index].isolation == isolation}
                if leader_ranges and leader in self._targets:
                    requests.append((self._targets[leader], self._fetch_request(leader_ranges, isolation, bytes_max)))
        return partial(self._fetch_result, begin_scatter(requests, deadline_s=timeout_s))

    def _fetch_result(self, responses: Callable[[], ScatterResult]) -> FetchResult:
        result = FetchResult(partitions={})
        fetched_partitions: dict[int, FetchedPartition] = {}
        for _, response in responses().responses:
            result.throttle_ms = max(result.throttle_ms, response.throttle_time_ms)
            for topic in response.responses:
                for partition in topic.partitions:
                    if partition.error_code == UNKNOWN_TOPIC:
                        self._query_leaders()
                    fetched = _parse_partition(partition)
                    if fetched is not None:
                        fetched_partitions[partition.partition_index] = fetched
        result.partitions = fetched_partitions
        return result

    def open_transaction_starts(self, partitions: Iterable[int]) -> dict[int, dict[int, int]]:
        """Returns the first offset of each open transaction, by partition and producer id.

        Partitions whose leaders do not answer are missing.
        """
        uncharged = {number: _uncharged(target) for number, target in self._targets.items()}
        producers = transactions.producers(uncharged, [(self.topic, index) for index in partitions])
        return {
            index: {
                state.producer_id: state.transaction_start_offset
                for state in states
                if state.transaction_start_offset is not None
            }
            for (_, index), states in producers.items()
        }

    def _partitions_by_leader(self, partitions: Iterable[int]) -> dict[int, list[int]]:
        result: dict[int, list[int]] = defaultdict(list)
        for index in partitions:
            result[self.leaders[index]].append(index)
        return result

    def _fetch_request(self, ranges: Mapping[int, FetchRange], isolation: int, bytes_max: int) -> Any:
        topic_class = FetchRequest.FetchTopic
        partitions = [
            topic_class.FetchPartition(
                partition=index,
                current_leader_epoch=-1,
                fetch_offset=fetch_range.offset,
                log_start_offset=-1,
                partition_max_bytes=fetch_range.bytes_max,
            )
            for index, fetch_range in ranges.items()
        ]
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=max(bytes_max, 1),
            isolation_level=isolation,
            session_id=0,
            session_epoch=-1,
            topics=[topic_class(topic=self.topic, partitions=partitions)],
            forgotten_topics_data=[],
            rack_id="",
            version=FETCH_VERSION,
        )


def _uncharged(target: Target) -> Target:
    """Returns the target with a client id whose requests are not charged to the instance."""
    return replace(target, client_id=CLIENT_ID)


def _parse_partition(partition: Any) -> FetchedPartition | None:
    """Converts a partition of a response; None if another broker leads or an error occurred."""
    if partition.error_code == OFFSET_OUT_OF_RANGE:
        return FetchedPartition(is_out_of_range=True)
    if partition.error_code:
        return None
    raw = bytes(partition.records or b"")
    return FetchedPartition(
        batches=list(batches(raw)),
        size_bytes=len(raw),
        aborted=[(entry.producer_id, entry.first_offset) for entry in partition.aborted_transactions or ()],
    )
