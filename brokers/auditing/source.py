"""Reads the audit topic of a cluster by Fetch from the leaders of its partitions."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.record import MemoryRecords

from brokers.contract.audit import AUDIT_TOPIC, AuditEvent
from brokers.contract.partitions import NO_LEADER
from brokers.dataplane.offsets import query_offsets
from brokers.dataplane.scatter import Target, first_response, pair_with_targets, scatter
from brokers.dataplane.topics import metadata_request
from tenants.containment import contained

log = structlog.get_logger(__name__)

FETCH_VERSION: Final = 12
OFFSET_OUT_OF_RANGE: Final = 1
EARLIEST, LATEST = -2, -1
# Maximum bytes of one partition in one response.
FETCH_BYTES_MAX: Final = 1024 * 1024
# Base offset, length and last offset delta in the header of a batch; the length counts from its end.
_HEADER: Final = struct.Struct(">qi11xi")
_LENGTH_END: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedEvents:
    """Result for one partition: events with offsets, the next offset, and the end of the log.

    `is_out_of_range` means that the log does not contain the requested offset.
    """

    events: tuple[tuple[int, AuditEvent], ...] = ()
    next_offset: int = 0
    end_offset: int = 0
    is_out_of_range: bool = False


def leaders(brokers: Mapping[int, Target]) -> dict[int, int]:
    """Returns the leader by partition, for partitions with a leader. Raises `Unavailable` if no broker answers."""
    (topic,) = first_response(brokers.values(), lambda: metadata_request([AUDIT_TOPIC])).topics
    if topic.error_code:
        return {}
    return {
        partition.partition_index: partition.leader_id
        for partition in topic.partitions
        if partition.leader_id != NO_LEADER
    }


def fetch(
    brokers: Mapping[int, Target], leader_by_partition: Mapping[int, int], positions: Mapping[int, int]
) -> dict[int, FetchedEvents]:
    """Fetches a bounded amount of events from `positions` on. Partitions of silent brokers are absent."""
    positions_by_leader: dict[int, dict[int, int]] = defaultdict(dict)
    for partition, offset in positions.items():
        positions_by_leader[leader_by_partition[partition]][partition] = offset
    requests = {leader: _fetch_request(offsets) for leader, offsets in positions_by_leader.items()}
    result = {}
    for _, response in scatter(pair_with_targets(brokers, requests)).responses:
        for topic in response.responses if not response.error_code else ():
            for partition in topic.partitions:
                if partition.error_code == OFFSET_OUT_OF_RANGE:
                    result[partition.partition_index] = FetchedEvents(is_out_of_range=True)
                elif not partition.error_code:
                    position = positions[partition.partition_index]
                    result[partition.partition_index] = _parse_partition(partition.partition_index, position, partition)
    return result


def bounds(brokers: Mapping[int, Target], partition: int) -> tuple[int, int] | None:
    """Returns first and next offset of a partition; None if its leader does not answer."""
    topic_partition = (AUDIT_TOPIC, partition)
    log_start_offset = query_offsets(brokers, [topic_partition], EARLIEST).get(topic_partition)
    end = query_offsets(brokers, [topic_partition], LATEST).get(topic_partition)
    return None if log_start_offset is None or end is None else (log_start_offset, end)


def _fetch_request(offsets: Mapping[int, int]) -> Any:
    topic_class = FetchRequest.FetchTopic
    partitions = [
        topic_class.FetchPartition(
            partition=partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=FETCH_BYTES_MAX,
        )
        for partition, offset in sorted(offsets.items())
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=FETCH_BYTES_MAX * len(partitions),
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[topic_class(topic=AUDIT_TOPIC, partitions=partitions)],
        forgotten_topics_data=[],
        rack_id="",
        version=FETCH_VERSION,
    )


def _parse_partition(partition: int, position: int, response: Any) -> FetchedEvents:
    events: list[tuple[int, AuditEvent]] = []
    next_offset = position
    for batch_end, batch in _split_batches(bytes(response.records or b"")):
        if batch_end <= position:
            continue
        next_offset = batch_end
        # An unreadable batch must not block the events after it.
        with contained("audit.unreadable", partition=partition, next_offset=batch_end):
            for offset, event in _parse_events(partition, batch):
                if offset >= position:
                    events.append((offset, event))
    return FetchedEvents(events=tuple(events), next_offset=next_offset, end_offset=response.high_watermark)


def _split_batches(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields each complete batch with the offset behind it; the last batch may be truncated."""
    position = 0
    while position + _HEADER.size <= len(data):
        base_offset, length, last_offset_delta = _HEADER.unpack_from(data, position)
        end = position + _LENGTH_END + length
        if end > len(data) or length <= 0:
            return
        yield base_offset + last_offset_delta + 1, data[position:end]
        position = end


def _parse_events(partition: int, data: bytes) -> Iterator[tuple[int, AuditEvent]]:
    """Yields the events of a batch with their offsets; a malformed one is logged and left out."""
    batch = MemoryRecords(data).next_batch()
    for record in () if batch is None else batch:
        try:
            yield record.offset, AuditEvent.from_json(record.value or b"")
        except ValueError as error:
            log.error("audit.malformed", partition=partition, offset=record.offset, reason=str(error)[:200])
