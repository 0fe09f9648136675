"""ListOffsets and InitProducerId, as the clients of an instance see them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from brokers.engine.handlers.fetch import list_offsets
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from brokers.engine.protocol.messages.transactions import InitProducerIdRequest
from tests.testkit.records import NOW_MS, batch, produce
from tests.unit.brokers.engine.handlers.conftest import House


async def test_partitions_are_searched_by_time_a_few_in_a_turn_of_the_loop(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each search may read a batch with many records, on the event loop that all requests share (LOG-25)."""
    await house.topic(partitions=10)
    for index in range(10):
        await produce(house.mine, "orders", batch(b"a", b"b"), partition=index)
    loop, real = asyncio.get_running_loop(), list_offsets._Lookup._list_offset
    turns: Counter[int] = Counter()
    turn = 0

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        if not answering.done():
            loop.call_soon(next_turn)

    def asked(*given: Any, **named: Any) -> Any:
        turns[turn] += 1
        return real(*given, **named)

    monkeypatch.setattr(list_offsets._Lookup, "_list_offset", asked)
    lines = [ListOffsetsPartition(partition_index=index, timestamp=NOW_MS) for index in range(10)]
    request = ListOffsetsRequest(isolation_level=0, topics=[ListOffsetsTopic(name="orders", partitions=lines)])
    answering = asyncio.ensure_future(house.mine.call(ApiKey.LIST_OFFSETS, 7, request))
    next_turn()
    answer = await answering

    result = answer.topics[0].partitions
    assert [(line.partition_index, line.error_code, line.offset) for line in result] == [(at, 0, 0) for at in range(10)]
    assert sorted(turns.values()) == [1] * 6 + [4]


@pytest.mark.parametrize("version", range(1, 10))
async def test_every_list_offsets_version_knows_both_ends(house: House, version: int) -> None:
    await house.topic()
    await produce(house.mine, "orders", batch(b"a", b"b"))

    async def at(timestamp: int) -> tuple[int, int]:
        wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(isolation_level=0, topics=[ListOffsetsTopic(name="orders", partitions=[wanted])])
        line = (await house.mine.call(ApiKey.LIST_OFFSETS, version, request)).topics[0].partitions[0]
        return line.error_code, line.offset

    assert await at(-2) == (0, 0)
    assert await at(-1) == (0, 2)


async def test_a_partition_asked_twice_for_its_offset_is_refused(house: House) -> None:
    await house.topic()
    twice = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * 2
    request = ListOffsetsRequest(isolation_level=0, topics=[ListOffsetsTopic(name="orders", partitions=twice)])

    answer = await house.mine.call(ApiKey.LIST_OFFSETS, 7, request)

    assert {line.error_code for line in answer.topics[0].partitions} == {ErrorCode.INVALID_REQUEST}


async def test_producer_ids_are_never_given_twice(house: House) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)

    ids = [(await house.mine.call(ApiKey.INIT_PRODUCER_ID, 4, request)).producer_id for _ in range(3)]
    ids += [(await house.theirs.call(ApiKey.INIT_PRODUCER_ID, 0, request)).producer_id]

    assert len(set(ids)) == 4
    assert min(ids) >= 0


@pytest.mark.parametrize(
    ("transactional_id", "producer_id", "code"),
    [
        ("tx", 7, ErrorCode.INVALID_REQUEST),
        ("", -1, ErrorCode.INVALID_REQUEST),
        (None, 7, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_empty_transactional_ids_and_half_given_producer_ids_are_refused(
    house: House, transactional_id: str | None, producer_id: int, code: ErrorCode
) -> None:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=1, producer_id=producer_id, producer_epoch=-1
    )

    assert (await house.mine.call(ApiKey.INIT_PRODUCER_ID, 4, request)).error_code == code
