"""Encodes Produce responses with error details: the invalid records, or the current leader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from brokers.engine.handlers.context import View
from brokers.engine.handlers.produce.request import Place, TopicResult
from brokers.engine.partitions.results import AppendResult
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import encode_response
from brokers.engine.protocol.errors import ErrorCode
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
ANSWERED_RECORD_ERRORS_MAX: Final = RECORD_ERRORS_MAX


def encode(
    view: View,
    version: int,
    correlation_id: int,
    results: Sequence[TopicResult],
    detailed: Mapping[Place, AppendResult],
    throttle_ms: int,
) -> bytes:
    """Returns a response frame. Results beyond `ANSWERED_RECORD_ERRORS_MAX` have only a code."""
    left = ANSWERED_RECORD_ERRORS_MAX
    leaders: set[int] = set()
    responses = []
    for name, lines in results:
        topic = view.namespace.topics.get(name)
        partitions = []
        for index, code, base_offset, append_ms, log_start_offset, message in lines:
            result = detailed.get((name, index))
            record_errors = result.record_errors[:left] if result is not None else ()
            left -= len(record_errors)
            leader = _NO_LEADER
            if code == ErrorCode.NOT_LEADER_OR_FOLLOWER and topic is not None and index < len(topic.partitions):
                known = topic.partitions[index]
                leader = ProduceLeader(leader_id=known.leader, leader_epoch=known.leader_epoch)
                leaders.add(known.leader)
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
