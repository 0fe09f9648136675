"""Asks a leader where partitions begin and end, after it had nothing at the offset that was asked for (REP-9)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from brokers.contract.partitions import PartitionKey
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import decode_response, encode_request
from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.headers import decode_response_header, encode_request_frame
from brokers.engine.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from brokers.engine.replication.fetch_plan import Followed
from brokers.engine.replication.truncation import OutOfRange, after_out_of_range

VERSION: Final = 7
_LATEST, _EARLIEST = -1, -2


class OffsetsQuery:
    """One of the two questions that decide: the end of the leader's log, and if that is no answer, its start (a
    request may name a partition once).
    """

    def __init__(self, followed: Sequence[Followed], end_offsets: Mapping[PartitionKey, int] | None = None) -> None:
        self._followed = {(item.partition.topic, item.partition.index): item for item in followed}
        self._end_offsets = end_offsets
        self.next: OffsetsQuery | None = None

    def frame(self, correlation_id: int, client_id: str, replica_id: int) -> bytes:
        timestamp = _LATEST if self._end_offsets is None else _EARLIEST
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for (topic, index), item in self._followed.items():
            topics.setdefault(topic, []).append(
                ListOffsetsPartition(
                    partition_index=index, current_leader_epoch=item.partition.leader_epoch, timestamp=timestamp
                )
            )
        request = ListOffsetsRequest(
            replica_id=replica_id,
            isolation_level=0,
            topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        )
        body = encode_request(ApiKey.LIST_OFFSETS, VERSION, request)
        return encode_request_frame(ApiKey.LIST_OFFSETS, VERSION, correlation_id, client_id, body)

    def results(
        self, buffer: memoryview, start: int, end: int, correlation_id: int
    ) -> Iterator[tuple[Followed, OutOfRange]]:
        """What the answer decides; what it leaves open is in `next` afterwards. Raises MalformedRequest."""
        answered, body = decode_response_header(ApiKey.LIST_OFFSETS, VERSION, buffer, start, end)
        if answered != correlation_id:
            raise MalformedRequest(f"answer {answered} to request {correlation_id}")
        response: Any = decode_response(ApiKey.LIST_OFFSETS, VERSION, buffer, body, end)
        undecided: list[Followed] = []
        end_offsets: dict[PartitionKey, int] = {}
        for topic in response.topics:
            for line in topic.partitions:
                key = (topic.name, line.partition_index)
                item = self._followed.get(key)
                if item is None or line.error_code:
                    continue
                log = item.partition.log
                own_end_offset = log.log_end_offset
                if self._end_offsets is not None:
                    end_offset, is_empty = self._end_offsets[key], not log.size_bytes
                    yield item, after_out_of_range(own_end_offset, line.offset, end_offset, is_empty=is_empty)
                elif line.offset < own_end_offset:
                    yield item, OutOfRange(truncate_to=line.offset)
                else:
                    undecided.append(item)
                    end_offsets[key] = line.offset
        if undecided:
            self.next = OffsetsQuery(undecided, end_offsets)
