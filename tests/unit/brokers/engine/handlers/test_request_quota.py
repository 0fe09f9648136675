"""Request percentage on the wire (QUO-17, QUO-21, QUO-22)."""

from __future__ import annotations

from typing import Any

import pytest

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.throttling import charging
from tests.testkit.records import batch, fetch_request, produce_request
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.asking import metadata_of
from tests.unit.brokers.engine.handlers.conftest import MINE, House

PERCENT = "request_percentage"


@pytest.fixture
def overrides() -> dict[str, str]:
    """Returns settings with Kafka's window alone, so that the delays are those of QUO-15."""
    return {"quota.burst.ms": "-1"}


async def limit(house: House, percent: float = 0.0, **more: float) -> None:
    """Limits every client of `mine`. At 0 percent every request waits for a window."""
    limits = {key: str(value) for key, value in {**more, PERCENT: percent}.items()}
    await house.broker.set_quota(MINE, limits, client_id=None)


async def another(house: House, client_id: str = "test") -> WireClient:
    """Opens a connection that is not muted."""
    return await house.broker.client(house.my_port, client_id=client_id)


def entries(house: House) -> list[Any]:
    return [
        (entry["rule"]["quota"], entry["client_id"])  # type: ignore[index]
        for entry in house.broker.broker.accountings.get_or_create(MINE).ledger.as_json(0)
    ]


async def test_a_client_that_takes_too_much_time_waits_for_a_window(house: House) -> None:
    await house.topic()
    await limit(house)

    answers = [
        await (await another(house)).call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x"))),
        await (await another(house)).call(ApiKey.FETCH, 12, fetch_request("orders")),
        await metadata_of(await another(house), "orders"),
    ]

    assert [answer.throttle_time_ms for answer in answers] == [1_000] * 3
    assert answers[1].responses == [], "a fetch that waits has no data"
    assert entries(house) == [(PERCENT, "test")]
    (entry,) = house.broker.broker.accountings.get_or_create(MINE).ledger.as_json(0)
    assert entry["rule"] == {"kind": "client_quota", "quota": PERCENT, "level": 8, "entity": {"client_id": None}}


async def test_within_the_percentage_nobody_waits(house: House) -> None:
    await house.topic()
    await limit(house, 100.0)

    produced = await house.mine.call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x")))
    fetched = await house.mine.call(ApiKey.FETCH, 12, fetch_request("orders"))

    assert (produced.throttle_time_ms, fetched.throttle_time_ms) == (0, 0)
    assert fetched.responses
    assert not entries(house)


async def test_time_of_all_calls_of_a_group_is_added_up_and_of_others_it_is_not(house: House) -> None:
    await house.topic()
    await limit(house, 100.0)
    quotas = house.broker.broker.accountings.get_or_create(MINE).client_quotas
    limits = house.broker.broker.current.image.quotas.of_instance(MINE)

    def taken_ns(client_id: str) -> int:
        limiter = quotas.limiter(limits, charging.REQUEST_PERCENTAGE, "ANONYMOUS", client_id, 0)
        assert limiter is not None
        return limiter.rate.total

    before_ns = taken_ns("test")
    await metadata_of(await another(house), "orders")
    after_metadata_ns = taken_ns("test")
    await (await another(house)).call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x")))
    after_produce_ns = taken_ns("test")
    await (await another(house)).call(ApiKey.FETCH, 12, fetch_request("orders"))

    assert before_ns < after_metadata_ns < after_produce_ns < taken_ns("test")
    assert taken_ns("other") == 0


async def test_a_fetch_that_waits_for_records_is_not_charged_its_wait(house: House) -> None:
    await house.topic()
    await limit(house, 100.0)
    quotas = house.broker.broker.accountings.get_or_create(MINE).client_quotas
    limits = house.broker.broker.current.image.quotas.of_instance(MINE)

    await house.mine.call(ApiKey.FETCH, 12, fetch_request("orders", max_wait_ms=400, min_bytes=1))

    limiter = quotas.limiter(limits, charging.REQUEST_PERCENTAGE, "ANONYMOUS", "test", 0)
    assert limiter is not None
    assert 0 < limiter.rate.total < 300 * 1_000_000


async def test_acks_zero_costs_bytes_and_no_request_time(house: House) -> None:
    await house.topic()
    await limit(house)
    quotas = house.broker.broker.accountings.get_or_create(MINE).client_quotas
    limits = house.broker.broker.current.image.quotas.of_instance(MINE)
    client = await another(house, "silent")

    await client.send(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x"), acks=0))
    await house.broker.until(lambda: house.broker.broker.services.accounting.totals.produce_bytes > 0)

    limiter = quotas.limiter(limits, charging.REQUEST_PERCENTAGE, "ANONYMOUS", "silent", 0)
    assert limiter is not None
    assert limiter.rate.total == 0
    assert not entries(house)


async def test_the_longer_of_two_delays_is_the_one_that_is_written_down(house: House) -> None:
    await house.topic()
    await limit(house, producer_byte_rate=1_000)

    answer = await (await another(house)).call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * 20_000)))
    short = await (await another(house, "small")).call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x")))

    assert answer.throttle_time_ms > 10_000
    assert short.throttle_time_ms == 1_000
    assert sorted(entries(house)) == [("producer_byte_rate", "test"), (PERCENT, "small")]


async def test_brokers_and_the_control_plane_are_not_charged(house: House) -> None:
    await house.topic()
    await limit(house)
    inside = await house.broker.internal_client(MINE)

    answer = await metadata_of(inside, "orders")
    produced = await inside.call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x")))

    assert (answer.throttle_time_ms, produced.throttle_time_ms) == (0, 0)
    assert not entries(house)


async def test_a_quota_set_while_a_fetch_waits_does_not_charge_the_wait(house: House) -> None:
    await house.topic()
    client = await another(house, "reader")
    await client.call(ApiKey.FETCH, 12, fetch_request("orders"))
    await client.send(ApiKey.FETCH, 12, fetch_request("orders", max_wait_ms=500, min_bytes=1))
    await limit(house, 100.0)
    await client.receive(ApiKey.FETCH, 12)
    quotas = house.broker.broker.accountings.get_or_create(MINE).client_quotas
    limits = house.broker.broker.current.image.quotas.of_instance(MINE)

    await metadata_of(client, "orders")

    limiter = quotas.limiter(limits, charging.REQUEST_PERCENTAGE, "ANONYMOUS", "reader", 0)
    assert limiter is not None
    assert limiter.rate.total < 300 * 1_000_000
