"""What a Produce answer explains of its errors, and how much of it: to encode it holds the loop (I.6)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from brokers.engine.handlers.context import View
from brokers.engine.handlers.produce import error_details, response
from brokers.engine.handlers.produce.error_details import ANSWERED_RECORD_ERRORS_MAX
from brokers.engine.handlers.produce.response import EXPLAINED_LINES_MAX
from brokers.engine.handlers.session import Session
from brokers.engine.partitions.results import AppendResult
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import decode_response
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.produce import ProduceResponse

VERSION = 11
# Length, correlation id and no tagged fields.
HEADER_BYTES = 4 + 4 + 1
MOVED = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def view() -> View:
    topic = SimpleNamespace(partitions=[SimpleNamespace(leader=2, leader_epoch=5)] * (EXPLAINED_LINES_MAX + 1))
    return cast(View, SimpleNamespace(namespace=SimpleNamespace(topics={b"orders": topic}), endpoints={}))


def decoded(frame: bytes) -> ProduceResponse:
    return cast(ProduceResponse, decode_response(ApiKey.PRODUCE, VERSION, frame[HEADER_BYTES:]))


@pytest.mark.parametrize(("lines", "leader"), [(EXPLAINED_LINES_MAX, 2), (EXPLAINED_LINES_MAX + 1, -1)])
def test_an_answer_of_very_many_lines_says_the_errors_alone(lines: int, leader: int) -> None:
    session: Any = SimpleNamespace(view=view)
    results = [(b"orders", [(index, MOVED, -1, -1, -1, None) for index in range(lines)])]

    frame = response.encode(cast(Session, session), VERSION, 1, results, None, True, 0)

    (topic,) = decoded(frame).responses
    assert [line.error_code for line in topic.partition_responses] == [MOVED] * lines
    assert {line.current_leader.leader_id for line in topic.partition_responses} == {leader}


def test_all_lines_of_an_answer_have_one_batch_of_record_errors_together() -> None:
    refused = AppendResult(
        int(ErrorCode.INVALID_RECORD),
        record_errors=tuple((index, "no key") for index in range(ANSWERED_RECORD_ERRORS_MAX - 10)),
    )
    results = [(b"orders", [(index, refused.error_code, -1, -1, -1, "no key") for index in range(3)])]

    frame = error_details.encode(view(), VERSION, 1, results, {(b"orders", index): refused for index in range(3)}, 0)

    (topic,) = decoded(frame).responses
    found = [len(line.record_errors) for line in topic.partition_responses]
    assert found == [ANSWERED_RECORD_ERRORS_MAX - 10, 10, 0]
    assert {line.error_message for line in topic.partition_responses} == {"no key"}
