"""Query for the log start and end offsets of a leader after a fetch was out of range (REP-9)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from brokers.contract.partitions import PartitionKey
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import decode_response, encode_request
from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.headers import decode_response_header, encode_request_frame
from brokers.engine.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from brokers.engine.replication.fetch_plan import PartitionFetchState
from brokers.engine.replication.truncation import OutOfRangeAction, resolve_out_of_range

VERSION: Final = 7
_LATEST, _EARLIEST = -1, -2


class OffsetsQuery:
    """One of two queries: for the log end offset of the leader, and if that does not decide, for its log start offset.

    Two are needed because a request may name a partition only once.
    """

    def __init__(
        self, state: Sequence[PartitionFetchState], end_offsets: Mapping[PartitionKey, int] | None = None
    ) -> None:
        self._followed = {(member.partition.topic, member.partition.index): member for member in state}
        self._end_offsets = end_offsets
        self.next_query: OffsetsQuery | None = None

    def encode_frame(self, correlation_id: int, client_id: str, replica_id: int) -> bytes:
        timestamp = _LATEST if self._end_offsets is None else _EARLIEST
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for (topic, index), state in self._followed.items():
            topics.setdefault(topic, []).append(
                ListOffsetsPartition(
                    partition_index=index, current_leader_epoch=state.partition.leader_epoch, timestamp=timestamp
                )
            )
        request = ListOffsetsRequest(
            replica_id=replica_id,
            isolation_level=0,
            topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        )
        body = encode_request(ApiKey.LIST_OFFSETS, VERSION, request)
        return encode_request_frame(ApiKey.LIST_OFFSETS, VERSION, correlation_id, client_id, body)

    def decode_results(
        self, buffer: memoryview, start: int, end: int, correlation_id: int
    ) -> Iterator[tuple[PartitionFetchState, OutOfRangeAction]]:
        """Yields the partitions that the response decides; `next_query` is then the query for the others.

        Raises MalformedRequest.
        """
        answered, body = decode_response_header(ApiKey.LIST_OFFSETS, VERSION, buffer, start, end)
        if answered != correlation_id:
            raise MalformedRequest(f"response {answered} to request {correlation_id}")
        response: Any = decode_response(ApiKey.LIST_OFFSETS, VERSION, buffer, body, end)
        undecided: list[PartitionFetchState] = []
        end_offsets: dict[PartitionKey, int] = {}
        for topic in response.topics:
            for result in topic.partitions:
                key = (topic.name, result.partition_index)
                state = self._followed.get(key)
                if state is None or result.error_code:
                    continue
                log = state.partition.log
                own_end_offset = log.log_end_offset
                if self._end_offsets is not None:
                    end_offset, is_empty = self._end_offsets[key], not log.size_bytes
                    yield (state, resolve_out_of_range(own_end_offset, result.offset, end_offset, is_empty=is_empty))
                elif result.offset < own_end_offset:
                    yield state, OutOfRangeAction(truncate_to=result.offset)
                else:
                    undecided.append(state)
                    end_offsets[key] = result.offset
        if undecided:
            self.next_query = OffsetsQuery(undecided, end_offsets)
