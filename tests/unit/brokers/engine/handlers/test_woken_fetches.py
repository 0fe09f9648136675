"""Woken fetches are served in turns and charged to their instance, and each partition is watched once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from brokers.engine.handlers.fetch import waits
from brokers.engine.partitions.partition import Partition
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import UUID_ZERO
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from brokers.native import finder
from tests.testkit.records import batch, fetch_request, produce, produce_request, values
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.conftest import MINE, House

WAITING = 200
WIDE = 100
WAIT_MS = 60_000


def fetch_of(partitions: list[int], wait_ms: int = WAIT_MS, **more: Any) -> FetchRequest:
    request = fetch_request("orders", max_wait_ms=wait_ms, **more)
    wanted = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1_000) for index in partitions]
    request.topics = [FetchTopic(topic="orders", topic_id=UUID_ZERO, partitions=wanted)]
    return request


def led(house: House, index: int = 0) -> Partition:
    partition = house.broker.broker.table.get(f"{MINE}.orders", index)
    assert partition is not None
    return partition


def charged_us(house: House) -> int:
    return house.broker.broker.services.accounting.accountings.get_or_create(MINE).request_time.used_us


async def all_waiting(house: House, partitions: list[int], count: int, wait_ms: int = WAIT_MS) -> list[WireClient]:
    clients = [await house.broker.client(house.my_port) for _ in range(count)]
    for client in clients:
        await client.send(ApiKey.FETCH, 12, fetch_of(partitions, wait_ms))
    await house.broker.until(lambda: len(led(house, partitions[-1]).delayed_operations) == count)
    return clients


class Recorder:
    def __init__(self, record: Any) -> None:
        self.record = record


@pytest.mark.parametrize("version", [1, 4, 12])
async def test_a_partition_that_is_named_many_times_is_watched_and_answered_once(house: House, version: int) -> None:
    await house.topic(partitions=2)
    await house.mine.send(ApiKey.FETCH, version, fetch_of([0, 1] * 200))
    await house.broker.until(lambda: len(led(house).delayed_operations) == 1)
    (wait,) = led(house).delayed_operations
    assert len(wait._partitions) == 2

    writer = await house.broker.client(house.my_port)
    assert (await produce(writer, "orders", batch(b"new"), partition=1)).error_code == 0

    answer = await house.mine.receive(ApiKey.FETCH, version)
    lines = answer.responses[0].partitions
    assert [line.partition_index for line in lines] == [0, 1]
    assert not led(house).delayed_operations


@pytest.mark.parametrize("many", [2, 400, 3_000])
async def test_the_last_of_several_entries_counts(house: House, many: int) -> None:
    await house.topic(partitions=2)
    for value in (b"a", b"b"):
        await produce(house.mine, "orders", batch(value))
    request = fetch_of([0, 1] * many)
    request.topics[0].partitions[2 * many - 2].fetch_offset = 1

    answer = await house.mine.call(ApiKey.FETCH, 12, request)

    assert [line.partition_index for line in answer.responses[0].partitions] == [0, 1]
    assert values(answer.responses[0].partitions[0].records) == [b"b"]


@pytest.mark.parametrize("wake", ["append", "expiry"])
async def test_fetches_woken_by_one_event_are_served_in_many_rounds_and_paid_for(
    house: House, monkeypatch: pytest.MonkeyPatch, wake: str
) -> None:
    await house.topic(partitions=WIDE)
    monkeypatch.setattr(waits, "UNCHARGED_TURN_S_MAX", 0.0)
    wait_ms = 3_000 if wake == "expiry" else WAIT_MS
    clients = await all_waiting(house, list(range(WIDE)), WAITING, wait_ms)
    loop, served, most = asyncio.get_running_loop(), 0, 0
    record = house.broker.broker.services.accounting.loop_turns.record

    def counted(api_key: int, instance_id: str | None, spent_s: float) -> None:
        nonlocal served
        served += api_key == ApiKey.FETCH
        record(api_key, instance_id, spent_s)

    monkeypatch.setattr(house.broker.broker.services.accounting, "loop_turns", Recorder(counted))
    before_us = charged_us(house)
    over = False

    def each_round(before: int) -> None:
        nonlocal most
        most = max(most, served - before)
        if not over:
            loop.call_soon(each_round, served)

    each_round(0)
    if wake == "append":
        assert (await produce(house.mine, "orders", batch(b"new"))).error_code == 0
    for client in clients:
        answer = await client.receive(ApiKey.FETCH, 12)
        assert len(answer.responses[0].partitions) == WIDE
    over = True
    assert served == WAITING
    assert most <= WAITING / 4, "of each round of the loop others have the most"
    if not finder.is_installed():  # compiled, no fetch takes long enough to be charged
        assert charged_us(house) > before_us
    assert not led(house, WIDE - 1).delayed_operations


async def test_a_client_that_leaves_between_its_wake_and_its_turn_is_not_served(house: House) -> None:
    await house.topic(partitions=WIDE)
    clients = await all_waiting(house, list(range(WIDE)), 50)
    writer = await house.broker.client(house.my_port)
    await writer.send(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x")))
    for client in clients[::2]:
        client.writer.transport.abort()
    for client in clients[1::2]:
        await client.receive(ApiKey.FETCH, 12)
    await house.broker.until(lambda: not led(house, WIDE - 1).delayed_operations)
    assert house.broker.broker.services.access.waiting_calls.count(MINE) == 0
    assert not house.broker.broker.services.deadlines._expirables_by_tick
    assert house.broker.broker.listeners.counters.faults == 0
