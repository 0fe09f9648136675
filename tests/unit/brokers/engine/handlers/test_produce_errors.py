"""Error details of a Produce response, and their limit: encoding them blocks the event loop (I.6)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from brokers.engine.handlers.context import TenantMetadataView
from brokers.engine.handlers.produce import response
from brokers.engine.handlers.produce.response import DETAILED_RESULTS_MAX, RESPONSE_RECORD_ERRORS_MAX, has_error_details
from brokers.engine.partitions.results import AppendResult
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import decode_response
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.produce import ProduceResponse

VERSION = 11
# Length, correlation id and no tagged fields.
HEADER_BYTES = 4 + 4 + 1
MOVED = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def view() -> TenantMetadataView:
    topic = SimpleNamespace(partitions=(SimpleNamespace(leader=2, leader_epoch=5),))
    return cast(TenantMetadataView, SimpleNamespace(namespace=SimpleNamespace(topics={b"orders": topic}), endpoints={}))


def decoded(frame: bytes) -> ProduceResponse:
    return cast(ProduceResponse, decode_response(ApiKey.PRODUCE, VERSION, frame[HEADER_BYTES:]))


@pytest.mark.parametrize("lines", [1, DETAILED_RESULTS_MAX - 1, DETAILED_RESULTS_MAX])
def test_an_answer_of_very_many_lines_is_not_explained(lines: int) -> None:
    results = [(b"orders", [(index, MOVED, -1, -1, -1, None) for index in range(lines)])]

    assert has_error_details(VERSION, results, None) == (1 + lines <= DETAILED_RESULTS_MAX)
    assert not has_error_details(VERSION, [(b"orders", [(0, int(ErrorCode.INVALID_RECORD), -1, -1, -1, None)])], None)


def test_a_moved_partition_is_answered_with_its_leader() -> None:
    results = [(b"orders", [(0, MOVED, -1, -1, -1, None)])]

    (topic,) = decoded(response.encode_detailed(view(), VERSION, 1, results, {}, 0)).responses

    assert [(line.error_code, line.current_leader.leader_id) for line in topic.partition_responses] == [(MOVED, 2)]


def test_all_lines_of_an_answer_have_one_batch_of_record_errors_together() -> None:
    refused = AppendResult(
        int(ErrorCode.INVALID_RECORD),
        record_errors=tuple((index, "no key") for index in range(RESPONSE_RECORD_ERRORS_MAX - 10)),
    )
    results = [(b"orders", [(index, refused.error_code, -1, -1, -1, "no key") for index in range(3)])]

    frame = response.encode_detailed(
        view(), VERSION, 1, results, {(b"orders", index): refused for index in range(3)}, 0
    )

    (topic,) = decoded(frame).responses
    found = [len(line.record_errors) for line in topic.partition_responses]
    assert found == [RESPONSE_RECORD_ERRORS_MAX - 10, 10, 0]
    assert {line.error_message for line in topic.partition_responses} == {"no key"}
