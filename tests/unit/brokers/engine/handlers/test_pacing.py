"""Limits as they are by default: paced, so that ten seconds tell as true a story as a minute (decision 0040)."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from tests.testkit.records import batch, fetch_request, produce_request, values
from tests.unit.brokers.engine.handlers.conftest import MINE, House


async def test_a_producer_waits_as_long_as_its_bytes_take(house: House) -> None:
    await house.topic()
    await house.broker.set_quota(MINE, {"producer_byte_rate": "1000"}, client_id=None)

    answer = await house.mine.call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * 5_000)))

    assert 4_700 < answer.throttle_time_ms < 5_100


async def test_a_fetch_brings_a_seconds_worth_and_the_next_one_waits_for_it(house: House) -> None:
    await house.topic()
    for _ in range(4):
        await house.mine.call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * 5_000)))
    await house.broker.set_quota(MINE, {"consumer_byte_rate": "12000"}, client_id=None)

    first = await house.mine.call(ApiKey.FETCH, 12, fetch_request("orders"))
    second = await house.mine.call(ApiKey.FETCH, 12, fetch_request("orders", 2))

    assert (first.throttle_time_ms, len(values(first.responses[0].partitions[0].records))) == (0, 2)
    assert second.responses == []
    assert 400 < second.throttle_time_ms < 700
