"""Encodes Produce responses: with the fast codec, or with error details where they help the client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from brokers.engine.handlers.context import TenantMetadataView
from brokers.engine.handlers.produce.delayed_produce import PartitionErrors
from brokers.engine.handlers.produce.request import EncodedPart, NamedPartition, ProduceRequest, TopicResult
from brokers.engine.handlers.session import Session
from brokers.engine.partitions.results import AppendResult
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import encode_response
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fast_codec_produce import (
    encode_produce_response,
    encode_produced_topics,
    produce_response_frame,
)
from brokers.engine.protocol.headers import encode_response_frame
from brokers.engine.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceLeader,
    ProduceNodeEndpoint,
    ProduceResponse,
    TopicProduceResponse,
)
from brokers.engine.records.rejections import RECORD_ERRORS_MAX

_NO_LEADER = ProduceLeader()
# Maximum number of record errors in one response: those of one batch (`rejections.RECORD_ERRORS_MAX`).
RESPONSE_RECORD_ERRORS_MAX: Final = RECORD_ERRORS_MAX
# First versions whose responses can name invalid records, and the current leader.
_RECORD_ERRORS_FROM: Final = 8
_LEADERS_FROM: Final = 10
# Maximum number of results in a response with error details; longer ones have error codes only. Details take about 3 us
# for each result, and no other request is served meanwhile. Few requests are that long: a producer sends one batch for
# each partition that the broker leads.
DETAILED_RESULTS_MAX: Final = 2_000


def encode_detailed(
    view: TenantMetadataView,
    version: int,
    correlation_id: int,
    results: Sequence[TopicResult],
    detailed_results: Mapping[NamedPartition, AppendResult],
    throttle_ms: int,
) -> bytes:
    """Returns a response frame with the current leaders and up to `RESPONSE_RECORD_ERRORS_MAX` invalid records."""
    remaining = RESPONSE_RECORD_ERRORS_MAX
    leaders: set[int] = set()
    responses = []
    for name, partition_results in results:
        topic = view.namespace.topics.get(name)
        partitions = []
        for index, code, base_offset, append_ms, log_start_offset, message in partition_results:
            result = detailed_results.get((name, index))
            record_errors = result.record_errors[:remaining] if result is not None else ()
            remaining -= len(record_errors)
            leader = _NO_LEADER
            if code == ErrorCode.NOT_LEADER_OR_FOLLOWER and topic is not None and index < len(topic.partitions):
                state = topic.partitions[index]
                leader = ProduceLeader(leader_id=state.leader, leader_epoch=state.leader_epoch)
                leaders.add(state.leader)
            partitions.append(
                PartitionProduceResponse(
                    index=index,
                    error_code=code,
                    base_offset=base_offset,
                    log_append_time_ms=append_ms,
                    log_start_offset=log_start_offset,
                    record_errors=[
                        BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=reason)
                        for batch_index, reason in record_errors
                    ],
                    error_message=message,
                    current_leader=leader,
                )
            )
        responses.append(TopicProduceResponse(name=name.decode(errors="replace"), partition_responses=partitions))
    endpoints = [
        ProduceNodeEndpoint(node_id=endpoint.broker_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack)
        for endpoint in (view.endpoints.get(leader) for leader in sorted(leaders))
        if endpoint is not None
    ]
    response = ProduceResponse(responses=responses, throttle_time_ms=throttle_ms, node_endpoints=endpoints)
    body = encode_response(ApiKey.PRODUCE, version, response)
    return encode_response_frame(ApiKey.PRODUCE, version, correlation_id, body)


def encode(
    session: Session,
    version: int,
    correlation_id: int,
    results: list[TopicResult],
    detailed_results: Mapping[NamedPartition, AppendResult] | None,
    has_errors: bool,
    delay_ms: int,
) -> bytes:
    """Returns the response frame. `detailed_results` are the results with record errors."""
    if has_errors and has_error_details(version, results, detailed_results):
        return encode_detailed(session.view(), version, correlation_id, results, detailed_results or {}, delay_ms)
    return encode_produce_response(version, correlation_id, results, delay_ms)


def join_encoded(
    version: int, correlation_id: int, topic_count: int, encoded_parts: list[EncodedPart], delay_ms: int
) -> bytes:
    """Returns the response frame of a long request whose results were encoded in parts."""
    return produce_response_frame(version, correlation_id, topic_count, [part for _, part in encoded_parts], delay_ms)


def has_error_details(
    version: int, results: list[TopicResult], detailed_results: Mapping[NamedPartition, AppendResult] | None
) -> bool:
    """True if a response with errors contains the invalid records or the current leaders."""
    if is_long(results):
        return False
    if detailed_results and version >= _RECORD_ERRORS_FROM:
        return True
    not_leader = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return version >= _LEADERS_FROM and any(
        result[1] == not_leader for _, partition_results in results for result in partition_results
    )


def is_long(results: list[TopicResult]) -> bool:
    """True if a response is too long to be encoded in one turn of the event loop, and to have error details."""
    return sum(1 + len(partition_results) for _, partition_results in results) > DETAILED_RESULTS_MAX


def _details_to_keep(
    version: int, results: list[TopicResult], detailed_results: Mapping[NamedPartition, AppendResult]
) -> dict[NamedPartition, AppendResult] | None:
    """Returns the detailed results that the response will contain, so that only these are kept while it waits."""
    if not has_error_details(version, results, detailed_results):
        return None
    kept_results: dict[NamedPartition, AppendResult] = {}
    remaining = RESPONSE_RECORD_ERRORS_MAX
    for named_partition, result in detailed_results.items():
        if remaining <= 0:
            break
        kept_results[named_partition] = result
        remaining -= len(result.record_errors)
    return kept_results


class DelayedProduceResponse:
    """Response of a Produce that is encoded when the outcome of each partition is known."""

    __slots__ = (
        "_correlation_id", "_delay_ms", "_detailed_results", "_encoded_parts", "_has_errors", "_internal_names",
        "_results", "_session", "_version",
    )  # fmt: skip

    def __init__(self, request: ProduceRequest, delay_ms: int) -> None:
        # Not the request itself, which holds its frame.
        self._session = request.session
        self._version = version = request.raw.version
        self._correlation_id = request.raw.correlation_id
        self._results = results = request.results
        self._delay_ms = delay_ms
        # Internal names of the topics that wait, by the client's name.
        self._internal_names = request.internal_names
        details = request.detailed_results
        self._detailed_results = None if details is None else _details_to_keep(version, results, details)
        self._has_errors = request.has_errors
        self._encoded_parts = request.encoded_parts

    def frame_of(self, partition_errors: PartitionErrors) -> bytes:
        if self._encoded_parts is not None:
            if partition_errors:
                self._encode_again(self._encoded_parts, partition_errors)
            count = len(self._results)
            return join_encoded(self._version, self._correlation_id, count, self._encoded_parts, self._delay_ms)
        results = self._results if not partition_errors else self._with_errors(self._results, partition_errors)
        return encode(
            self._session,
            self._version,
            self._correlation_id,
            results,
            self._detailed_results,
            self._has_errors or bool(partition_errors),
            self._delay_ms,
        )

    def _encode_again(self, encoded_parts: list[EncodedPart], partition_errors: PartitionErrors) -> None:
        """Encodes again the parts with topics that have errors; most parts of a response have none."""
        topics_with_errors = {name for name, _ in partition_errors}
        for index, (results, _) in enumerate(encoded_parts):
            if any(self._internal_names.get(name) in topics_with_errors for name, _ in results):
                part = encode_produced_topics(self._version, self._with_errors(results, partition_errors))
                encoded_parts[index] = (results, part)

    def _with_errors(self, topic_results: list[TopicResult], partition_errors: PartitionErrors) -> list[TopicResult]:
        final_results: list[TopicResult] = []
        for name, results in topic_results:
            internal_name = self._internal_names.get(name, "")
            final_results.append(
                (
                    name,
                    [
                        (result[0], code, result[2], result[3], result[4], None)
                        if not result[1] and (code := partition_errors.get((internal_name, result[0]), 0))
                        else result
                        for result in results
                    ],
                )
            )
        return final_results
