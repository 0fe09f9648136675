"""Byte limits of a topic, for all its clients: settings, delays, throttle log."""

from __future__ import annotations

from typing import Any

import pytest

from brokers.engine.partitions.topic_settings import CONSUME_BYTE_RATE, PRODUCE_BYTE_RATE
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from tests.testkit.records import batch, fetch_request, produce_request
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.asking import alter, config_of
from tests.unit.brokers.engine.handlers.conftest import MINE, House

FULL = batch(b"x" * 20_000)


@pytest.fixture
def overrides() -> dict[str, str]:
    """Returns settings with Kafka's window alone, so that the delays are those of QUO-15."""
    return {"quota.burst.ms": "-1"}


async def another(house: House, client_id: str = "test") -> WireClient:
    """Opens a connection that is not muted."""
    return await house.broker.client(house.my_port, client_id=client_id)


async def produced(house: House, topic: str = "orders", client_id: str = "test") -> int:
    answer = await (await another(house, client_id)).call(ApiKey.PRODUCE, 9, produce_request(topic, FULL))
    assert answer.responses[0].partition_responses[0].error_code == 0
    return int(answer.throttle_time_ms)


async def limited(house: House, **limits: str) -> None:
    await house.topic(**limits)
    await house.topic("free")


def ledger(house: House) -> list[Any]:
    return house.broker.broker.accountings.get_or_create(MINE).ledger.as_json(0)


async def test_all_producers_of_a_topic_share_its_limit(house: House) -> None:
    await limited(house, penstock_produce_byte_rate="1000")

    first, second = await produced(house), await produced(house, client_id="other")

    assert 10_000 <= first <= 10_300
    assert second > 20_000
    assert await produced(house, "free") == 0
    assert {entry["client_id"] for entry in ledger(house)} == {"test", "other"}
    (rule,) = [entry["rule"] for entry in ledger(house) if entry["client_id"] == "other"]
    assert rule == {"kind": "topic_quota", "quota": "producer_byte_rate", "level": None, "entity": {}}


async def test_all_readers_of_a_topic_share_its_limit_and_what_waits_is_not_counted(house: House) -> None:
    await limited(house)
    await (await another(house)).call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * 9_000)))
    assert await alter(house, (CONSUME_BYTE_RATE, 0, "1000")) == 0

    answers = [
        await (await another(house, client_id)).call(ApiKey.FETCH, 12, fetch_request("orders"))
        for client_id in ("a", "b", "c")
    ]

    assert (answers[0].throttle_time_ms, len(answers[0].responses)) == (0, 1)
    assert [answer.responses for answer in answers[1:]] == [[], []]
    assert answers[1].throttle_time_ms > 7_000
    assert answers[2].throttle_time_ms == pytest.approx(answers[1].throttle_time_ms, abs=500)
    assert [entry["rule"]["kind"] for entry in ledger(house)] == ["topic_quota"] * 2


async def test_a_fetch_brings_no_more_of_a_limited_topic_than_it_may(house: House) -> None:
    await limited(house)
    for topic in ("orders", "free"):
        for _ in range(8):
            await house.mine.call(ApiKey.PRODUCE, 9, produce_request(topic, batch(b"x" * 5_000)))
    assert await alter(house, (CONSUME_BYTE_RATE, 0, "1200")) == 0

    answers = [
        await (await another(house)).call(ApiKey.FETCH, 12, fetch_request(topic)) for topic in ("orders", "free")
    ]

    sizes = [len(answer.responses[0].partitions[0].records) for answer in answers]
    assert sizes[0] <= 12_000 < 40_000 < sizes[1]


async def test_a_limit_that_is_taken_away_or_raised_counts_at_once(house: House) -> None:
    await limited(house, penstock_produce_byte_rate="1000")
    assert await produced(house) > 10_000

    assert await alter(house, (PRODUCE_BYTE_RATE, 0, "1000000")) == 0
    assert await produced(house) == 0
    assert await alter(house, (PRODUCE_BYTE_RATE, 1, None)) == 0
    assert await produced(house) == 0
    assert (await config_of(house.mine, "orders", PRODUCE_BYTE_RATE)).configs[0].value == "-1"


@pytest.mark.parametrize("value", ["0", "-2", "1.5", "fast", str(2**63)])
async def test_a_limit_is_a_whole_number_of_bytes_or_none(house: House, value: str) -> None:
    await house.topic()

    assert await alter(house, (PRODUCE_BYTE_RATE, 0, value)) == ErrorCode.INVALID_CONFIG
    assert await alter(house, (CONSUME_BYTE_RATE, 0, value)) == ErrorCode.INVALID_CONFIG


async def test_records_produced_by_the_control_plane_are_not_held_back(house: House) -> None:
    await limited(house, penstock_produce_byte_rate="1")
    inside = await house.broker.internal_client(MINE)

    answer = await inside.call(ApiKey.PRODUCE, 9, produce_request("orders", FULL))

    assert answer.throttle_time_ms == 0


async def test_old_clients_are_held_to_it_as_well(house: House) -> None:
    await limited(house, penstock_produce_byte_rate="1000")
    answer = await (await another(house)).call(ApiKey.PRODUCE, 2, produce_request("orders", FULL))

    assert answer.throttle_time_ms > 9_000
