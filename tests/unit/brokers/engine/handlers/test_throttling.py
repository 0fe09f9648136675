"""Quotas and metering: throttle time, mute, throttle log, counters (QUO-7, QUO-14…20, QUO-30…32, CKA-25)."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import pytest

from brokers.contract.usage import USAGE_KEYS_PER_INSTANCE_MAX, USAGE_TOPIC, UsageEvent
from brokers.contract.usage_columns import COUNTERS_PER_RECORD_MAX, events_in
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.metadata import MetadataRequest
from tests.testkit.records import batch, fetch, fetch_request, produce_request, values
from tests.unit.brokers.engine.handlers.conftest import MINE, THEIRS, House

FULL = batch(b"x" * 20_000)
# Under load, a step is measured several times and the shortest counts.
STEP_S_MAX, STEP_TRIES = 0.010, 5


@pytest.fixture
def overrides() -> dict[str, str]:
    """Returns settings with Kafka's window alone, so that the delays are those of QUO-15."""
    return {"quota.burst.ms": "-1"}


async def _delay(house: House, records: bytes = FULL, *, acks: int = 1) -> int:
    """Returns the delay of one produce on a new connection, which may be muted afterwards."""
    client = await house.broker.client(house.my_port)
    answer = await client.call(ApiKey.PRODUCE, 9, produce_request("orders", records, acks=acks))
    return int(answer.throttle_time_ms)


async def test_a_producer_over_its_quota_is_throttled_and_the_ledger_names_the_rule(house: House) -> None:
    await house.topic()
    await house.broker.set_quota(MINE, {"producer_byte_rate": "1000"}, client_id=None)

    delay_ms = await _delay(house)

    # About 20,000 bytes over 10 s at 1,000 B/s: ten more seconds are needed.
    assert 10_000 <= delay_ms <= 10_300
    (entry,) = house.broker.broker.accountings.get_or_create(MINE).ledger.as_json(0)
    assert entry["rule"] == {
        "kind": "client_quota",
        "quota": "producer_byte_rate",
        "level": 8,
        "entity": {"client_id": None},
    }
    assert (entry["client_id"], entry["delay_ms_max"]) == ("test", delay_ms)


async def test_a_changed_quota_counts_at_once_on_the_same_counter(house: House) -> None:
    await house.topic()
    await house.broker.set_quota(MINE, {"producer_byte_rate": "100000000"}, client_id="test")
    assert await _delay(house) == 0

    await house.broker.set_quota(MINE, {"producer_byte_rate": "1000"}, client_id="test")

    assert await _delay(house) > 20_000


async def test_connections_of_a_client_share_the_counter_and_other_clients_do_not(house: House) -> None:
    await house.topic()
    await house.broker.set_quota(MINE, {"producer_byte_rate": "1000"}, client_id="test")
    first, second = await _delay(house), await _delay(house)
    other = await house.broker.client(house.my_port, client_id="other")

    answer = await other.call(ApiKey.PRODUCE, 9, produce_request("orders", FULL))

    assert second > first
    assert answer.throttle_time_ms == 0


async def test_the_connection_is_silent_until_the_delay_is_over(house: House) -> None:
    await house.topic()
    await house.broker.set_quota(MINE, {"producer_byte_rate": "199000"}, client_id=None)
    loop = house.broker.broker.services.loop
    began_s = loop.time()

    await house.mine.send(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * 2_020_000), acks=1))
    await house.mine.send(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"y"), acks=1))
    answer = await house.mine.receive(ApiKey.PRODUCE, 9)
    answered_s = loop.time()
    await house.mine.receive(ApiKey.PRODUCE, 9)

    delay_s = answer.throttle_time_ms / 1000
    assert 0.1 < delay_s < 0.3, "the answer tells the delay"
    assert answered_s - began_s < delay_s + 0.1, "and does not wait for it"
    assert loop.time() - answered_s >= delay_s - 0.02, "the next request does"


async def test_acks_zero_mutes_without_a_word(house: House) -> None:
    await house.topic(max_message_bytes="3000000")
    await house.broker.set_quota(MINE, {"producer_byte_rate": "199000"}, client_id=None)
    loop = house.broker.broker.services.loop
    began_s = loop.time()

    await house.mine.send(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * 2_020_000), acks=0))
    answer = await fetch(house.mine, "orders", partition_max_bytes=10)

    assert loop.time() - began_s > 0.1
    assert values(answer.records) == [b"x" * 2_020_000]


async def test_a_throttled_fetch_has_no_data_and_is_not_counted(house: House) -> None:
    await house.topic()
    await house.mine.call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * 9_000)))
    await house.broker.set_quota(MINE, {"consumer_byte_rate": "1000"}, client_id=None)

    answers = []
    for _ in range(3):
        client = await house.broker.client(house.my_port)
        answers.append(await client.call(ApiKey.FETCH, 12, fetch_request("orders")))

    assert (answers[0].throttle_time_ms, len(answers[0].responses)) == (0, 1)
    assert answers[1].responses == []
    assert answers[1].throttle_time_ms > 7_000
    # The second one changed nothing: the third sees the same state, only a moment later.
    assert answers[2].throttle_time_ms == pytest.approx(answers[1].throttle_time_ms, abs=500)


async def test_a_fetch_asks_for_no_more_than_its_quota_can_ever_bring(house: House) -> None:
    """QUO-19."""
    await house.topic()
    for _ in range(8):
        await house.mine.call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * 5_000)))
    await house.broker.set_quota(MINE, {"consumer_byte_rate": "1200"}, client_id=None)

    answer = await fetch(house.mine, "orders")

    assert len(values(answer.records)) == 2


async def test_the_instances_bandwidth_holds_without_any_client_quota(house: House) -> None:
    await house.topic()
    await house.broker.update_instance(MINE, produce_bps=1_000)

    delay_ms = await _delay(house)

    assert delay_ms > 9_000
    (entry,) = house.broker.broker.accountings.get_or_create(MINE).ledger.as_json(0)
    rule = entry["rule"]
    assert isinstance(rule, dict)
    assert rule["kind"] == "instance_bandwidth"


async def test_usage_counts_the_batches_in_and_out_to_the_byte(house: House) -> None:
    await house.topic()
    sent = batch(b"a" * 500)
    await house.mine.call(ApiKey.PRODUCE, 9, produce_request("orders", sent))
    await house.mine.call(ApiKey.PRODUCE, 9, produce_request("orders", b"\x00" * 80))
    await fetch(house.mine, "orders")
    await fetch(house.mine, "orders", 1, max_wait_ms=1)

    counted = {
        counter.key: (counter.bytes, counter.requests)
        for counter in house.broker.broker.accountings.get_or_create(MINE).usage.counters()
        if not counter.is_reported
    }

    assert counted == {
        ("orders", "ANONYMOUS", "test", "produce"): (len(sent), 1),
        ("orders", "ANONYMOUS", "test", "consume"): (len(sent), 1),
    }


async def test_a_usage_report_is_one_batch_in_the_usage_topic(house: House) -> None:
    await house.topic()
    sent = batch(b"a" * 500)
    await house.mine.call(ApiKey.PRODUCE, 9, produce_request("orders", sent))

    assert await house.broker.broker.metering.report()
    assert await house.broker.broker.metering.report(), "nothing changed: nothing is said, and that is fine"

    operator = await house.broker.internal_client("penstock")
    answer = await fetch(operator, USAGE_TOPIC)
    (event,) = (UsageEvent.from_json(value) for value in values(answer.records) if value is not None)
    assert (event.instance_id, event.topic, event.bytes, event.sequence) == (MINE, "orders", len(sent), 1)


@pytest.mark.parametrize("version", [1, 2])
async def test_the_usage_of_all_is_reported_whatever_client_ids_one_of_them_invents(house: House, version: int) -> None:
    from brokers.engine.throttling.usage import UsageCounter, allocate_in_memory

    house.broker.broker.metering.record_version = version
    await house.topic()
    await house.mine.call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"a")))
    usage = house.broker.broker.accountings.get_or_create(THEIRS).usage
    for number in range(1_000):
        usage.counter("t", "ANONYMOUS", f"{number}" + "\U0001f600" * 32_000, "produce").add(1)
    # Includes counters that an earlier process may have left.
    key = ("t", "ANONYMOUS", "\x01" * 32_767, "produce")
    usage._counters.update(
        {(*key[:2], f"{number}", "produce"): UsageCounter(key, allocate_in_memory(key)) for number in range(9)}
    )
    for number in range(9):
        usage.counter("t", "ANONYMOUS", f"{number}", "produce").add(1)

    assert await house.broker.broker.metering.report()

    operator = await house.broker.internal_client("penstock")
    answer = await fetch(operator, USAGE_TOPIC, partition_max_bytes=50_000_000)
    events = [event for value in values(answer.records) if value is not None for event in events_in(value)]
    assert len(events) == 1_010
    assert MINE in {event.instance_id for event in events}


@pytest.fixture
def no_collections() -> Iterator[None]:
    """Garbage is not collected in the middle of a request, as in a broker's process (`brokers.engine.garbage`)."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", ["\U0001f600" * 244, "\x01" * 244, ""], ids=["wide", "escaped", "short"])
@pytest.mark.usefixtures("no_collections")
async def test_no_step_of_the_report_of_all_counters_of_an_instance_holds_the_loop(
    house: House, version: int, name: str
) -> None:
    house.broker.broker.metering.record_version = version
    metering, longest_s = house.broker.broker.metering, list[float]()
    await house.broker.until(lambda: metering.broker_epoch is not None and metering._partition() is not None)
    usage = house.broker.broker.accountings.get_or_create(THEIRS).usage
    for _ in range(STEP_TRIES):
        for number in range(USAGE_KEYS_PER_INSTANCE_MAX):
            usage.counter("t", "ANONYMOUS", f"{number}" + name, "produce").add(1)
        steps, took_s = metering._steps(), list[float]()
        began_s = time.thread_time()
        for _ in steps:
            took_s.append(time.thread_time() - began_s)
            began_s = time.thread_time()
        assert usage.is_reported and len(took_s) >= USAGE_KEYS_PER_INSTANCE_MAX // COUNTERS_PER_RECORD_MAX
        longest_s.append(max(took_s))
    assert min(longest_s) <= STEP_S_MAX


class TestDelayedResponses:
    """Responses that come after their delay: `quota.delay.style=before_response` (DEC-17)."""

    @pytest.fixture
    def overrides(self) -> dict[str, str]:
        return {"quota.burst.ms": "-1", "quota.delay.style": "before_response"}

    @pytest.mark.parametrize("acks", [1, -1])
    async def test_a_throttled_producer_is_answered_when_its_delay_is_over(self, house: House, acks: int) -> None:
        await house.topic()
        await house.broker.set_quota(MINE, {"producer_byte_rate": "199000"}, client_id=None)
        loop = house.broker.broker.services.loop
        began_s = loop.time()

        await house.mine.send(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * 2_020_000), acks=acks))
        await house.mine.send(ApiKey.METADATA, 9, MetadataRequest(topics=[]))
        answer = await house.mine.receive(ApiKey.PRODUCE, 9)
        delay_s = answer.throttle_time_ms / 1000
        assert 0.1 < delay_s < 0.3
        assert loop.time() - began_s >= delay_s - 0.02
        await house.mine.receive(ApiKey.METADATA, 9)

    async def test_a_throttled_fetch_is_answered_when_its_delay_is_over(self, house: House) -> None:
        await house.topic()
        await house.mine.call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * 9_000)))
        await house.broker.set_quota(MINE, {"consumer_byte_rate": "1710"}, client_id=None)
        assert (await fetch(house.mine, "orders")).records
        loop = house.broker.broker.services.loop
        began_s = loop.time()
        answer = await house.mine.call(ApiKey.FETCH, 12, fetch_request("orders"))
        assert answer.responses == []
        assert answer.throttle_time_ms > 0
        assert loop.time() - began_s >= answer.throttle_time_ms / 1000 - 0.02

    async def test_a_response_that_is_held_back_goes_with_its_connection(self, house: House) -> None:
        await house.topic()
        await house.broker.set_quota(MINE, {"producer_byte_rate": "1000"}, client_id=None)
        listeners = house.broker.broker.listeners
        before = listeners.count
        client = await house.broker.client(house.my_port)
        await client.send(ApiKey.PRODUCE, 9, produce_request("orders", FULL))
        partition = house.broker.broker.table.get(f"{MINE}.orders", 0)
        assert partition is not None
        await house.broker.until(lambda: partition.log_end_offset == 1)
        await client.close()
        await house.broker.until(lambda: listeners.count == before)
