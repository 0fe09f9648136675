"""Long Produce requests are processed in turns, with the same results as in one turn (decision 89)."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.handlers.produce.recompression import (
    HEADERS_AT_ONCE_MAX,
    SKIPPED_AT_ONCE_RECORDS_MAX,
    WALKED_AT_ONCE_RECORDS_MAX,
)
from brokers.engine.handlers.produce.request import BATCHES_AT_ONCE_MAX
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.records.walk import has_headers_at_most
from tests.testkit.records import PRODUCE_VERSION, batch, fetch, produce, values
from tests.unit.brokers.engine.handlers.conftest import MINE, House
from tests.unit.brokers.engine.handlers.test_recompression import busy

BYTES_PER_TURN_MAX = 1024 * 1024


def long_request(partitions: int, records: bytes, acks: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records) for index in range(partitions)]
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name="orders", partition_data=data)],
    )


async def topic_with(house: House, partitions: int) -> None:
    """Creates a topic, and waits until all its partitions have leaders."""
    await house.topic(partitions=partitions)
    table, last = house.broker.broker.services.storage.table, partitions - 1
    await house.broker.until(
        lambda: (partition := table.get(f"{MINE}.orders", last)) is not None and partition.is_leader
    )


@pytest.mark.parametrize(
    ("partitions", "value_bytes"),
    [(2 * BATCHES_AT_ONCE_MAX + 50, 100), (5, BYTES_PER_TURN_MAX - 1_000), (3, 0)],
    ids=["many partitions", "many bytes", "no more than one turn"],
)
async def test_a_long_request_stores_and_answers_what_it_would_at_once(
    house: House, partitions: int, value_bytes: int
) -> None:
    await topic_with(house, partitions)
    records = batch(b"v" * value_bytes)
    answer = await house.mine.call(ApiKey.PRODUCE, PRODUCE_VERSION, long_request(partitions, records, acks=-1))
    (topic,) = answer.responses
    assert [(line.index, line.error_code, line.base_offset) for line in topic.partition_responses] == [
        (index, 0, 0) for index in range(partitions)
    ]
    for index in (0, partitions - 1):
        assert values((await fetch(house.mine, "orders", partition=index)).records) == [b"v" * value_bytes]
    assert house.broker.broker.listeners.buffers.rented_bytes == 0


async def test_a_client_that_goes_in_the_middle_pays_for_its_request(house: House) -> None:
    """Otherwise a client that disconnects in time would send for free."""
    await topic_with(house, 5)
    await house.broker.update_instance(MINE, produce_bps=1_000_000)
    buffers = house.broker.broker.listeners.buffers
    await house.mine.send(ApiKey.PRODUCE, PRODUCE_VERSION, long_request(5, batch(b"v" * (BYTES_PER_TURN_MAX - 1_000))))
    await house.broker.until(lambda: buffers.rented_bytes)
    await house.mine.close()
    await house.broker.until(lambda: not buffers.rented_bytes)
    limiter = house.broker.broker.accountings.get_or_create(MINE).shares.produce
    assert limiter is not None
    assert limiter.debt_ms(house.broker.broker.clock.monotonic_ms()) > 1_000


@pytest.mark.parametrize(
    ("records", "settings"),
    [
        ([Record(0, None, b"")] * (SKIPPED_AT_ONCE_RECORDS_MAX + 1), {}),
        ([Record(0, b"k", b"")] * (WALKED_AT_ONCE_RECORDS_MAX + 1), {"cleanup_policy": "compact"}),
        ([Record(0, None, b"", [("", b"")] * (HEADERS_AT_ONCE_MAX + 1))], {}),
    ],
    ids=["records", "records of which every field is looked at", "headers"],
)
async def test_nobody_waits_while_very_many_records_or_headers_are_looked_at(
    house: House, records: list[Record], settings: dict[str, str]
) -> None:
    await house.topic(**settings)
    await house.broker.create_topic(house.theirs, "others", 1)
    many = bytes(build_batch(records))
    with busy(house) as may_check:
        large = asyncio.create_task(produce(house.mine, "orders", many))
        assert (await produce(house.theirs, "others", batch(b"v"))).error_code == 0
        assert not large.done()
        may_check.set()
        assert (await large).error_code == 0
    assert (await fetch(house.mine, "orders")).high_watermark == len(records)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 20))
def test_headers_are_counted_without_being_looked_at(headers: list[int], headers_max: int) -> None:
    records = [Record(0, b"k", None, [("n", b"v")] * count) for count in headers]
    block = memoryview(bytes(build_batch(records)))[61:]
    assert has_headers_at_most(block, len(records), headers_max) == (sum(headers) <= headers_max)


@given(st.binary(max_size=200), st.integers(1, 4))
def test_bytes_that_are_no_record_have_no_headers_to_speak_of(block: bytes, count: int) -> None:
    assert has_headers_at_most(memoryview(block), count, 2**31)
