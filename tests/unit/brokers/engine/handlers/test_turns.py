"""Long requests are processed in turns, with the same responses as in one turn (`handlers.common.long_requests`)."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.handlers.api_rows.shared import BY_PARTITION
from brokers.engine.handlers.api_table import API_TABLE
from brokers.engine.handlers.common.long_requests import ELEMENTS_PER_TURN_MAX, handle_in_parts, is_long_request
from brokers.engine.handlers.served_api import ListField
from brokers.engine.handlers.session import NETWORK_S, RECEIVED_BYTES_PER_S
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import fields_of, message_class
from brokers.engine.protocol.messages.groups import JoinGroupRequest, JoinGroupRequestProtocol, ListGroupsRequest
from brokers.engine.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from tests.testkit.turns import count_turns
from tests.unit.brokers.engine.handlers.conftest import MINE, House


class Handler:
    """A handler that answers each line with its offset, and records the number of lines in each call."""

    def __init__(self) -> None:
        self.lines: list[int] = []

    async def __call__(self, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        self.lines.append(sum(1 + len(topic.partitions) for topic in request.topics))
        await asyncio.sleep(0)
        return self._answer(request)

    def _answer(self, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        return DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=[
                        DeleteRecordsPartitionResult(
                            partition_index=line.partition_index, low_watermark=line.offset, error_code=0
                        )
                        for line in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


sizes = st.lists(st.one_of(st.integers(0, 3), st.integers(0, 3 * ELEMENTS_PER_TURN_MAX)), max_size=12)


@given(sizes)
async def test_an_answer_in_turns_is_the_answer_at_once(sizes: list[int]) -> None:
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=f"t{number}",
                partitions=[DeleteRecordsPartition(partition_index=index, offset=index) for index in range(size)],
            )
            for number, size in enumerate(sizes)
        ],
        timeout_ms=0,
    )
    handler = Handler()
    response = await (
        handle_in_parts(BY_PARTITION, request, handler) if is_long_request(BY_PARTITION, request) else handler(request)
    )
    assert response == await Handler()(request)
    assert all(lines <= ELEMENTS_PER_TURN_MAX + 1 for lines in handler.lines)


async def test_others_get_a_turn_between_the_parts() -> None:
    topic = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)] * 5_000)
    handler = Handler()
    async with count_turns() as turns:
        await handle_in_parts(BY_PARTITION, DeleteRecordsRequest(topics=[topic], timeout_ms=0), handler)
    assert turns() >= len(handler.lines) - 1 >= 5_000 // ELEMENTS_PER_TURN_MAX


class _Marked:
    """An object that shows which attribute was set."""


def test_each_split_list_is_a_list_of_its_message() -> None:
    """Getter and setter use the same field, which exists in the message of that direction."""
    for api in API_TABLE.values():
        if api.split is None:
            continue
        for direction, field, inner in (
            ("request", api.split.items, api.split.nested_items),
            ("response", api.split.results, api.split.nested_results),
        ):
            specs = {name: spec for name, spec, _ in fields_of(message_class(api.key, direction))}
            name = _name_of(field)
            assert specs[name].kind == "array", (api.key, name)
            if inner is not None:
                assert _name_of(inner) in {name for name, _, _ in fields_of(specs[name].inner.inner)}, api.key


def _name_of(field: ListField) -> str:
    marked = _Marked()
    field.set(marked, [1])
    (name,) = vars(marked)
    assert field.get(marked) == [1], name
    return str(name)


async def test_a_client_that_hangs_up_while_its_request_is_decoded_pays_for_the_work_done(house: House) -> None:
    """Otherwise a tenant could keep the event loop busy for free."""
    services = house.broker.broker.services
    listener = house.broker.broker.listeners.get(MINE)
    assert listener is not None
    lines = [DeleteRecordsPartition(partition_index=index, offset=0) for index in range(20_000)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=lines)], timeout_ms=1_000)
    used_us = services.accounting.accountings.get_or_create(MINE).request_time.used_us
    await house.mine.send(ApiKey.DELETE_RECORDS, 2, request)
    await house.broker.until(lambda: services.accounting.accountings.get_or_create(MINE).request_time.used_us > used_us)
    await house.mine.close()
    await house.broker.until(lambda: not listener.connections)
    # No task works on it any more, and its place is free.
    await house.broker.until(lambda: not services.accounting.decode_memory._used_bytes)


async def test_a_request_is_charged_what_it_takes_to_receive_it(house: House) -> None:
    """Even if little is done with it: an unknown group, or a member with too much metadata."""
    time = house.broker.broker.services.accounting.accountings.get_or_create(MINE).request_time
    said = bytes(900_000)
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="unknown",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=said)],
    )
    used_us = time.used_us
    await house.mine.call(ApiKey.JOIN_GROUP, 3, request)
    assert time.used_us - used_us >= 1e6 * len(said) / RECEIVED_BYTES_PER_S


async def test_a_short_request_is_charged_its_part_of_the_network(house: House) -> None:
    time = house.broker.broker.services.accounting.accountings.get_or_create(MINE).request_time
    used_us = time.used_us
    for _ in range(10):
        await house.mine.call(ApiKey.LIST_GROUPS, 4, ListGroupsRequest())
    assert time.used_us - used_us >= 10 * 1e6 * NETWORK_S
