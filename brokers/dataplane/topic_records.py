"""Implementation of `instances.copying.interfaces.record_log`: reads and appends stored batches of one topic."""

from __future__ import annotations

from collections.abc import Mapping

from kafka.protocol.producer.produce import ProduceRequest

from brokers.dataplane.admin_client import domain_error_of
from brokers.dataplane.message_cursor import READ_COMMITTED, FetchRange
from brokers.dataplane.message_pages import FetchedPartition
from brokers.dataplane.message_sender import ALL_IN_SYNC, MAYBE_STORED, NOT_LEADER, PRODUCE_VERSION
from brokers.dataplane.message_source import NO_LEADER, TopicSource
from brokers.dataplane.record_merging import pack, unpack
from brokers.dataplane.scatter import scatter
from brokers.dataplane.topics import TIMEOUT_MS
from brokers.limits import ADMIN_CLIENT_ANSWER_TIMEOUT_S
from instances.copying.interfaces import Chunk
from instances.copying.limits import COPY_READ_BYTES_MAX
from tenants.errors import OutcomeUnknown, Unavailable


class TopicRecords:
    """Implements `instances.copying.interfaces.RecordLog`."""

    def __init__(self, instance_id: str, topic: str) -> None:
        self._source = TopicSource(instance_id, topic)

    def bounds(self) -> Mapping[int, tuple[int, int]]:
        bounds_by_partition = self._source.all_bounds(
            index for index, leader in self._source.leaders.items() if leader != NO_LEADER
        )
        if len(bounds_by_partition) < len(self._source.leaders):
            raise _no_leader()
        return {index: (bounds.start, bounds.stable) for index, bounds in bounds_by_partition.items()}

    def end(self, partition: int) -> int:
        return self._bounds(partition)[1]

    def read(self, partition: int, start: int, stop: int, *, batch_bytes_max: int) -> Chunk:
        fetched = self._fetch(partition, start, stop)
        if fetched.is_out_of_range:
            log_start, _ = self._bounds(partition)
            if log_start <= start:
                raise _no_leader()
            next_offset = min(log_start, stop)
            return Chunk(next_offset=next_offset, missed_offsets=next_offset - start)
        if not fetched.batches:
            raise Unavailable("The brokers of the instance sent no records. They are asked again.", retry_after_s=1)
        unpacked = unpack(fetched.batches, fetched.aborted, start, stop)
        return Chunk(
            batches=tuple(pack(unpacked.records, batch_bytes_max)),
            next_offset=min(max(fetched.batches[-1].last_offset + 1, start), stop),
            read_bytes=fetched.size_bytes,
            skipped_records=unpacked.skipped_records,
        )

    def append(self, partition: int, data: bytes) -> int:
        topic_class = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            transactional_id=None,
            acks=ALL_IN_SYNC,
            timeout_ms=TIMEOUT_MS,
            topic_data=[
                topic_class(
                    name=self._source.topic,
                    partition_data=[topic_class.PartitionProduceData(index=partition, records=data)],
                )
            ],
            version=PRODUCE_VERSION,
        )
        target = self._source.targets.get(self._source.leaders.get(partition, NO_LEADER))
        if target is None:
            raise _no_leader()
        scatter_result = scatter([(target, request)], deadline_s=ADMIN_CLIENT_ANSWER_TIMEOUT_S, is_write=True)
        if not scatter_result.responses:
            raise OutcomeUnknown if scatter_result.may_be_executed else _no_leader()
        (response,) = scatter_result.responses[0][1].responses[0].partition_responses
        if response.error_code in MAYBE_STORED:
            raise OutcomeUnknown
        if response.error_code in NOT_LEADER:
            raise _no_leader()
        if response.error_code:
            raise domain_error_of(response.error_code, response.error_message)
        return int(response.base_offset)

    def _fetch(self, partition: int, start: int, stop: int) -> FetchedPartition:
        fetch_range = FetchRange(start, stop, READ_COMMITTED, COPY_READ_BYTES_MAX)
        response = self._source.fetch({partition: fetch_range}, COPY_READ_BYTES_MAX, ADMIN_CLIENT_ANSWER_TIMEOUT_S)
        fetched = response.partitions.get(partition)
        if fetched is None:
            raise _no_leader()
        return fetched

    def _bounds(self, partition: int) -> tuple[int, int]:
        bounds = self._source.bounds(partition)
        if bounds is None:
            raise _no_leader()
        return bounds[0], bounds[1]


def _no_leader() -> Unavailable:
    return Unavailable("No broker leads a partition at the moment. Nothing is lost.", retry_after_s=1)
