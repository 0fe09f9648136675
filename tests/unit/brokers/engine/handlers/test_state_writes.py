"""Coordinator writes are charged to the bandwidth of their instance: only its writing requests wait."""

from __future__ import annotations

import asyncio

import pytest

from brokers.engine.handlers.throttle_time import DEBT_MS_MAX, WAITING_MAX
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.throttling.shares import STATE_BURST_MS, STATE_BYTES_PER_S_MIN, InstanceShares
from tests.unit.brokers.engine.handlers.conftest import MINE, House
from tests.unit.brokers.engine.handlers.offsets_asking import commit, commit_request, coordinator_ready

PARTITIONS = 100
METADATA = "m" * 4_000
# Cost of the writes at the minimum bandwidth, less the burst.
OWED_MS = PARTITIONS * len(METADATA) * 1000 // STATE_BYTES_PER_S_MIN - STATE_BURST_MS
MUCH = {("orders", index): 5 for index in range(PARTITIONS)}


@pytest.fixture
async def shares(house: House) -> InstanceShares:
    for client in (house.mine, house.theirs):
        await house.broker.create_topic(client, "orders", PARTITIONS)
        await coordinator_ready(client)
    await house.broker.update_instance(MINE, produce_bps=STATE_BYTES_PER_S_MIN)
    return house.broker.broker.services.accounting.accountings.get_or_create(MINE).shares


async def test_a_client_that_commits_more_than_its_bandwidth_is_throttled(house: House, shares: InstanceShares) -> None:
    clock = house.broker.broker.services.clock
    before_ms = clock.monotonic_ms()
    answer = await house.mine.call(ApiKey.OFFSET_COMMIT, 7, commit_request(MUCH, metadata=METADATA))
    took_ms = clock.monotonic_ms() - before_ms

    assert {line.error_code for topic in answer.topics for line in topic.partitions} == {0}
    # The debt decreases from the append on: the time until the response counts as paid.
    assert answer.throttle_time_ms + took_ms > OWED_MS
    assert answer.throttle_time_ms < 2 * OWED_MS
    theirs = await house.theirs.call(ApiKey.OFFSET_COMMIT, 7, commit_request(MUCH, metadata=METADATA))
    assert theirs.throttle_time_ms == 0
    ledger = house.broker.broker.services.accounting.accountings.get_or_create(MINE).ledger.as_json(0)
    assert [entry["rule"]["kind"] for entry in ledger] == ["instance_bandwidth"]  # type: ignore[index]


def owe(house: House, shares: InstanceShares, debt_ms: int) -> None:
    now_ms = house.broker.broker.services.clock.monotonic_ms()
    assert shares.state is not None
    assert shares.state.pace is not None
    shares.state.pace.due_ms = now_ms + debt_ms


async def test_another_connection_of_the_instance_writes_when_there_is_less_to_pay(
    house: House, shares: InstanceShares
) -> None:
    another = await house.broker.client(house.my_port)
    owe(house, shares, DEBT_MS_MAX + 500)

    assert await commit(another, {("orders", 0): 6}) == {("orders", 0): 0}

    assert shares.state_debt_ms(house.broker.broker.services.clock.monotonic_ms()) <= DEBT_MS_MAX + 50
    assert not house.broker.broker.services.coordination.state_write_queues, "nobody waits any more"


async def test_few_requests_wait_and_the_others_are_asked_to_retry(house: House, shares: InstanceShares) -> None:
    clients = [await house.broker.client(house.my_port) for _ in range(WAITING_MAX + 3)]
    owe(house, shares, 60_000)

    calls = [asyncio.create_task(commit(client, {("orders", 0): 6})) for client in clients]
    await house.broker.until(lambda: sum(call.done() for call in calls) == 3)

    answers = [call.result() for call in calls if call.done()]
    assert answers == [{("orders", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}] * 3
    (queue,) = house.broker.broker.services.coordination.state_write_queues.values()
    assert queue.waiting == WAITING_MAX
    for call, client in zip(calls, clients, strict=True):
        call.cancel()
        await client.close()


async def test_a_client_that_goes_away_while_it_waits_holds_up_nobody(house: House, shares: InstanceShares) -> None:
    gone, another = await house.broker.client(house.my_port), await house.broker.client(house.my_port)
    owe(house, shares, DEBT_MS_MAX + 500)
    await gone.send(ApiKey.OFFSET_COMMIT, 7, commit_request({("orders", 0): 7}))
    await house.broker.until(lambda: len(house.broker.broker.services.coordination.state_write_queues) == 1)
    await gone.close()

    async with asyncio.timeout(10):
        assert await commit(another, {("orders", 0): 6}) == {("orders", 0): 0}
