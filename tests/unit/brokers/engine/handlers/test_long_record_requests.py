"""Produce and Fetch of many partitions: processed in turns, with the same results as short requests (I.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from brokers.engine.handlers.api_table import limit_of
from brokers.engine.handlers.common.background import PARTITIONS_PER_TURN_MAX, split_into_parts
from brokers.engine.handlers.fetch import async_fetch, legacy
from brokers.engine.handlers.fetch.async_fetch import SYNCHRONOUS_REQUEST_BYTES_MAX
from brokers.engine.partitions.partition import Partition
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fast_codec_fetch_response import FetchResponseEncoder
from brokers.engine.protocol.fields import UUID_ZERO
from brokers.engine.protocol.messages.fetch import EpochEndOffset, FetchPartition, FetchRequest, FetchTopic
from brokers.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from brokers.engine.scheduling.permits import DECODED_BYTES_PER_INSTANCE_MAX, DELAYED_BYTES_PER_TENANT_MAX
from tests.testkit.records import batch, fetch_request, produce, values
from tests.unit.brokers.engine.handlers.conftest import MINE, House

MANY = 2 * PARTITIONS_PER_TURN_MAX + 50
NOT_US = ("203.0.113.7",)


def produce_of(topics: list[tuple[str, list[int]]], records: bytes, acks: int = 1) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=1_000,
        topic_data=[
            TopicProduceData(
                name=name, partition_data=[PartitionProduceData(index=index, records=records) for index in indexes]
            )
            for name, indexes in topics
        ],
    )


def fetch_of(topics: list[tuple[str, list[int]]], **more: Any) -> FetchRequest:
    request = fetch_request("", **more)
    request.topics = [
        FetchTopic(
            topic=name,
            topic_id=UUID_ZERO,
            partitions=[FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=100) for index in indexes],
        )
        for name, indexes in topics
    ]
    return request


def lines_of(topics: list[tuple[str, list[int]]], *, unknown: int) -> list[tuple[str, int, int]]:
    """Returns name, partition and error code, where partitions from `unknown` on do not exist."""
    missing = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return [(name, index, missing if index >= unknown else 0) for name, indexes in topics for index in indexes]


TOPICS = [("orders", list(range(MANY))), ("others", [0]), ("orders", [1]), ("others", list(range(MANY)))]


@pytest.mark.parametrize("acks", [1, -1])
async def test_every_batch_of_a_long_produce_is_appended_and_answered_in_its_place(house: House, acks: int) -> None:
    await house.topic(partitions=2)
    await house.topic("others", partitions=2)

    answer = await house.mine.call(ApiKey.PRODUCE, 9, produce_of(TOPICS, batch(b"a"), acks))

    lines = [
        (topic.name, line.index, line.error_code) for topic in answer.responses for line in topic.partition_responses
    ]
    assert lines == lines_of(TOPICS, unknown=2)
    offsets = [line.base_offset for line in answer.responses[2].partition_responses]
    assert offsets == [1]
    table = house.broker.broker.services.storage.table
    ends = [table.get(f"{MINE}.{name}", index) for name in ("orders", "others") for index in (0, 1)]
    assert [partition.log_end_offset for partition in ends if partition is not None] == [1, 2, 2, 1]


async def test_a_long_produce_without_acknowledgement_is_appended_before_what_follows(house: House) -> None:
    await house.topic()
    await house.mine.send(ApiKey.PRODUCE, 9, produce_of([("orders", [0] * MANY)], batch(b"a"), acks=0))

    assert (await produce(house.mine, "orders", batch(b"last"))).base_offset == MANY


@pytest.mark.parametrize(
    ("transactional_id", "code"),
    [
        (None, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("payments", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
async def test_a_long_produce_of_transactions_is_looked_through_in_turns(
    house: House, transactional_id: str | None, code: ErrorCode
) -> None:
    """A batch without a transactional id (REC-44), and two producers in one request (TXN-27)."""
    await house.topic(partitions=2)
    services = house.broker.broker.services
    request = produce_of([("orders", [0] * 2_000)], batch(b"a", attributes=0x10, producer_id=1, producer_epoch=0))
    request.transactional_id = transactional_id
    request.topic_data[0].partition_data[-1].records = batch(b"a", attributes=0x10, producer_id=2, producer_epoch=0)
    turns = 0
    record = services.accounting.loop_turns.record

    class Counted:
        def record(self, api_key: int, instance_id: str | None, spent_s: float) -> None:
            nonlocal turns
            turns += 1
            record(api_key, instance_id, spent_s)

    services.accounting.loop_turns = Counted()  # type: ignore[assignment]
    answer = await house.mine.call(ApiKey.PRODUCE, 9, request)

    assert {line.error_code for line in answer.responses[0].partition_responses} == {code}
    assert len(answer.responses[0].partition_responses) == 2_000
    assert turns >= 2_000 // PARTITIONS_PER_TURN_MAX


async def test_a_few_batches_of_many_bytes_take_turns_too(house: House) -> None:
    await house.topic()
    services = house.broker.broker.services
    turns: list[tuple[int, str | None]] = []
    record = services.accounting.loop_turns.record
    request = produce_of([("orders", [0] * 30)], batch(bytes(100_000)))

    class Recorded:
        def record(self, api_key: int, instance_id: str | None, spent_s: float) -> None:
            turns.append((api_key, instance_id))
            record(api_key, instance_id, spent_s)

    services.accounting.loop_turns = Recorded()  # type: ignore[assignment]
    answer = await house.mine.call(ApiKey.PRODUCE, 9, request)

    assert [line.base_offset for line in answer.responses[0].partition_responses] == list(range(30))
    assert turns.count((ApiKey.PRODUCE, MINE)) > 2


@pytest.mark.parametrize("session_epoch", [-1, 0])
async def test_every_partition_of_a_long_fetch_is_answered_in_its_place(house: House, session_epoch: int) -> None:
    await house.topic(partitions=2)
    await house.topic("others", partitions=2)
    for name in ("orders", "others"):
        assert (await produce(house.mine, name, batch(b"a"), partition=1)).error_code == 0
    topics = [(name, [*indexes, *range(2, MANY)]) for name, indexes in TOPICS]

    answer = await house.mine.call(ApiKey.FETCH, 12, fetch_of(topics, session_epoch=session_epoch, max_wait_ms=10_000))

    lines = [(topic.topic, line) for topic in answer.responses for line in topic.partitions]
    once = list(dict.fromkeys(lines_of(topics, unknown=2)))
    assert [(name, line.partition_index, line.error_code) for name, line in lines] == once
    read = [(name, line.partition_index, *values(line.records)) for name, line in lines if line.records]
    assert read == [("orders", 1, b"a"), ("others", 1, b"a")]


async def test_the_answer_to_a_long_fetch_is_encoded_in_turns(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.topic()
    added: list[int] = []

    class Counted:
        def __init__(self, *arguments: Any) -> None:
            encoder = FetchResponseEncoder(*arguments)
            self.begin_topic, self.end_topic, self.finish = encoder.begin_topic, encoder.end_topic, encoder.finish
            self._add, self.compact = encoder.add, encoder.compact

        def add(self, topic: bytes, partitions: Sequence[Any]) -> None:
            added.append(len(partitions))
            self._add(topic, partitions)

    monkeypatch.setattr(async_fetch, "FetchResponseEncoder", Counted)
    count = 3 * async_fetch.ENCODED_AT_ONCE_MAX + 1
    answer = await house.mine.call(ApiKey.FETCH, 12, fetch_of([("orders", list(range(count)))], max_wait_ms=0))

    assert len(answer.responses[0].partitions) == count
    assert added == [async_fetch.ENCODED_AT_ONCE_MAX] * 3 + [1]


async def a_wide_topic(house: House) -> tuple[int, Partition]:
    """Creates a topic with enough led partitions for a long fetch; returns their number, and one of them."""
    count = SYNCHRONOUS_REQUEST_BYTES_MAX // 30
    await house.topic(partitions=count)
    table = house.broker.broker.services.storage.table

    def led() -> bool:
        found = [table.get(f"{MINE}.orders", index) for index in range(count)]
        return all(partition is not None and partition.is_leader for partition in found)

    await house.broker.until(led)
    watched = table.get(f"{MINE}.orders", 3)
    assert watched is not None
    return count, watched


async def test_a_long_fetch_is_answered_when_there_is_something_to_read(house: House) -> None:
    partitions, watched = await a_wide_topic(house)
    request = fetch_of([("orders", list(range(partitions)))], max_wait_ms=60_000)
    writer = await house.broker.client(house.my_port)
    await house.mine.send(ApiKey.FETCH, 12, request)
    await house.broker.until(lambda: watched.delayed_operations)

    assert (await produce(writer, "orders", batch(b"new"), partition=3)).error_code == 0

    answer = await house.mine.receive(ApiKey.FETCH, 12)
    read = [(line.partition_index, *values(line.records)) for line in answer.responses[0].partitions if line.records]
    assert read == [(3, b"new")]
    assert not watched.delayed_operations


async def test_a_long_fetch_is_answered_when_its_time_is_over(house: House) -> None:
    partitions, _ = await a_wide_topic(house)

    answer = await house.mine.call(ApiKey.FETCH, 12, fetch_of([("orders", list(range(partitions)))], max_wait_ms=50))

    assert [line.error_code for line in answer.responses[0].partitions] == [0] * partitions


@pytest.mark.parametrize("session_epoch", [-1, 0])
async def test_a_long_fetch_of_a_log_that_parted_says_where(house: House, session_epoch: int) -> None:
    partitions, watched = await a_wide_topic(house)
    assert (await produce(house.mine, "orders", batch(b"a"), partition=3)).error_code == 0
    request = fetch_of([("orders", list(range(partitions)))], session_epoch=session_epoch, max_wait_ms=0)
    request.topics[0].partitions[3].last_fetched_epoch = watched.leader_epoch
    request.topics[0].partitions[3].fetch_offset = 100

    answer = await house.mine.call(ApiKey.FETCH, 12, request)

    lines = answer.responses[0].partitions
    parted = [(line.partition_index, line.diverging_epoch) for line in lines if line.diverging_epoch.epoch >= 0]
    assert parted == [(3, EpochEndOffset(epoch=watched.leader_epoch, end_offset=1))]
    assert [line.records for line in lines] == [b""] * partitions


async def test_partitions_with_records_in_a_long_fetch_are_limited(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions, _ = await a_wide_topic(house)
    for index in range(0, partitions, 10):
        assert (await produce(house.mine, "orders", batch(b"a"), partition=index)).error_code == 0
    monkeypatch.setattr(async_fetch, "SLICES_MAX", 5)

    answer = await house.mine.call(ApiKey.FETCH, 12, fetch_of([("orders", list(range(partitions)))], max_wait_ms=0))

    lines = answer.responses[0].partitions
    assert [line.error_code for line in lines] == [0] * partitions
    assert [line.partition_index for line in lines if line.records] == list(range(0, PARTITIONS_PER_TURN_MAX, 10))


async def test_long_fetches_of_an_instance_are_decoded_one_after_the_other(house: House) -> None:
    partitions, _ = await a_wide_topic(house)
    services = house.broker.broker.services
    permit = await services.accounting.decode_memory.acquire(MINE, DECODED_BYTES_PER_INSTANCE_MAX)
    await house.mine.send(ApiKey.FETCH, 12, fetch_of([("orders", list(range(partitions)))], max_wait_ms=0))
    await house.broker.until(lambda: MINE in services.accounting.decode_memory._waiters)

    permit.release()

    answer = await house.mine.receive(ApiKey.FETCH, 12)
    assert len(answer.responses[0].partitions) == partitions
    assert MINE not in services.accounting.decode_memory._waiters


@pytest.mark.parametrize("version", [3, 12])
async def test_a_long_fetch_does_not_wait_while_too_many_of_its_instance_do(
    house: House, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Each that waits keeps its decoded partitions in memory."""
    monkeypatch.setattr(legacy, "DECODED_AT_ONCE_BYTES_MAX", SYNCHRONOUS_REQUEST_BYTES_MAX // 4)
    partitions, watched = await a_wide_topic(house)
    limiter = house.broker.broker.services.accounting.decode_memory
    request = fetch_of([("orders", list(range(partitions)))], max_wait_ms=60_000)
    first = await house.broker.client(house.my_port)
    await first.send(ApiKey.FETCH, version, request)
    await house.broker.until(lambda: watched.delayed_operations)
    (delayed_bytes,) = limiter._delayed_bytes.values()
    monkeypatch.setattr(limiter, "_delayed_bytes_max", 2 * delayed_bytes - 1)

    answer = await asyncio.wait_for(house.mine.call(ApiKey.FETCH, version, request), 20)

    assert len(answer.responses[0].partitions) == partitions
    await first.close()
    await house.broker.until(lambda: not limiter._delayed_bytes)
    assert not limiter._used_bytes


@pytest.mark.parametrize("version", [3, 12])
async def test_short_fetches_do_not_wait_while_too_many_of_their_instance_do(
    house: House, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Five thousand connections may each have one of five hundred partitions."""
    await house.topic(partitions=2)
    await house.topic("others", partitions=1)
    limiter = house.broker.broker.services.accounting.decode_memory
    request = fetch_of([("orders", [0, 1])], max_wait_ms=60_000)
    first, writer = await house.broker.client(house.my_port), await house.broker.client(house.my_port)
    await first.send(ApiKey.FETCH, version, request)
    await house.broker.until(lambda: limiter._delayed_bytes)
    (delayed_bytes,) = limiter._delayed_bytes.values()
    monkeypatch.setattr(limiter, "_delayed_bytes_max", 2 * delayed_bytes - 1)

    answer = await asyncio.wait_for(house.mine.call(ApiKey.FETCH, version, request), 20)

    assert [line.error_code for line in answer.responses[0].partitions] == [0, 0]
    assert (await produce(writer, "orders", batch(b"new"), partition=1)).error_code == 0
    answer = await first.receive(ApiKey.FETCH, version)
    assert [line.partition_index for line in answer.responses[0].partitions if line.records] == [1]
    assert not limiter._delayed_bytes
    await first.send(ApiKey.FETCH, version, fetch_of([("others", [0])], max_wait_ms=60_000))
    await house.broker.until(lambda: limiter._delayed_bytes)
    await first.close()
    await house.broker.until(lambda: not limiter._delayed_bytes)
    assert not limiter._used_bytes


async def test_a_fetch_does_not_wait_while_other_instances_of_its_tenant_have_too_many(house: House) -> None:
    await house.topic()
    await house.broker.update_instance(MINE, tenant_id="ten-several")
    limiter = house.broker.broker.services.accounting.decode_memory
    limiter._delayed_bytes_of_tenants["ten-several"] = DELAYED_BYTES_PER_TENANT_MAX

    answer = await asyncio.wait_for(
        house.mine.call(ApiKey.FETCH, 12, fetch_of([("orders", [0])], max_wait_ms=60_000)), 20
    )

    assert [partition.error_code for partition in answer.responses[0].partitions] == [0]
    assert not limiter._delayed_bytes


async def test_a_long_fetch_that_waited_is_read_and_encoded_with_a_permit(house: House) -> None:
    """One record may wake all of them."""
    partitions, watched = await a_wide_topic(house)
    limiter = house.broker.broker.services.accounting.decode_memory
    writer = await house.broker.client(house.my_port)
    await house.mine.send(ApiKey.FETCH, 12, fetch_of([("orders", list(range(partitions)))], max_wait_ms=60_000))
    await house.broker.until(lambda: watched.delayed_operations)
    assert not limiter._used_bytes, "others may be decoded"
    permit = await limiter.acquire(MINE, DECODED_BYTES_PER_INSTANCE_MAX)

    assert (await produce(writer, "orders", batch(b"new"), partition=3)).error_code == 0
    await house.broker.until(lambda: MINE in limiter._waiters)
    permit.release()

    answer = await house.mine.receive(ApiKey.FETCH, 12)
    assert [line.partition_index for line in answer.responses[0].partitions if line.records] == [3]
    assert not limiter._used_bytes and not limiter._delayed_bytes


async def test_a_long_fetch_that_waits_ends_with_its_connection(house: House) -> None:
    partitions, watched = await a_wide_topic(house)
    client = await house.broker.client(house.my_port)
    await client.send(ApiKey.FETCH, 12, fetch_of([("orders", list(range(partitions)))], max_wait_ms=60_000))
    await house.broker.until(lambda: watched.delayed_operations)

    await client.close()

    await house.broker.until(lambda: not watched.delayed_operations)


async def test_a_partition_closed_between_two_turns_is_not_read(house: House) -> None:
    partitions, watched = await a_wide_topic(house)
    owner = await house.broker.internal_client(MINE)
    await house.mine.send(ApiKey.FETCH, 12, fetch_of([("orders", list(range(partitions)))], max_wait_ms=60_000))
    await house.broker.until(lambda: watched.delayed_operations)

    await house.allow(consume_ips=NOT_US)
    assert (await produce(owner, "orders", batch(b"secret"), partition=3)).error_code == 0

    answer = await house.mine.receive(ApiKey.FETCH, 12)
    codes = {line.error_code for line in answer.responses[0].partitions}
    assert codes == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("version", [1, 3, 8, 9])
async def test_a_produce_of_more_partitions_than_one_may_have_ends_the_connection(house: House, version: int) -> None:
    request = produce_of([("orders", [0] * limit_of(ApiKey.PRODUCE).items_max)], b"")
    await house.mine.send(ApiKey.PRODUCE, version, request)
    assert await house.mine.is_closed()


@pytest.mark.parametrize("version", [2, 4, 11, 12])
async def test_a_fetch_of_more_partitions_than_one_may_have_ends_the_connection(house: House, version: int) -> None:
    request = fetch_of([("orders", [0] * limit_of(ApiKey.FETCH).items_max)])
    await house.mine.send(ApiKey.FETCH, version, request)
    assert await house.mine.is_closed()


def test_a_consumer_and_a_producer_of_ten_thousand_topics_are_within_the_limits() -> None:
    assert min(limit_of(api_key).items_max for api_key in (ApiKey.PRODUCE, ApiKey.FETCH)) >= 20_000


@pytest.mark.parametrize("sizes", [[0], [1], [200], [201], [0, 0, 0], [199, 0, 5], [1] * 450, [1000], [3, 700, 0, 1]])
def test_parts_put_together_again_are_the_whole(sizes: list[int]) -> None:
    topics = [(b"%d" % number, list(range(size))) for number, size in enumerate(sizes)]
    whole: list[tuple[bytes, list[int]]] = []
    for part, goes_on in split_into_parts(topics):
        assert part
        assert sum(max(len(wanted), 1) for _, wanted in part) <= PARTITIONS_PER_TURN_MAX
        if goes_on:
            assert whole[-1][0] == part[0][0]
            whole[-1][1].extend(part[0][1])
        whole += [(name, list(wanted)) for name, wanted in part[1 if goes_on else 0 :]]
    assert whole == topics


def test_partitions_with_more_weight_come_in_smaller_parts() -> None:
    parts = list(split_into_parts([(b"t", list(range(10)))], lambda _: PARTITIONS_PER_TURN_MAX))
    assert [wanted for part, _ in parts for _, wanted in part] == [[number] for number in range(10)]
    assert [goes_on for _, goes_on in parts] == [False] + [True] * 9


async def test_others_are_answered_while_a_long_produce_is_appended(house: House) -> None:
    await house.topic()
    await house.broker.create_topic(house.theirs, "orders")
    answered: list[str] = []

    async def long() -> None:
        await house.mine.call(ApiKey.PRODUCE, 9, produce_of([("orders", [0] * 20_000)], batch(b"a")))
        answered.append("long")

    task = asyncio.create_task(long())
    partition = house.broker.broker.services.storage.table.get(f"{MINE}.orders", 0)
    assert partition is not None
    await house.broker.until(lambda: partition.log_end_offset > 0)
    assert (await produce(house.theirs, "orders", batch(b"b"))).error_code == 0
    answered.append("theirs")
    await task
    assert answered == ["theirs", "long"]


@pytest.mark.parametrize("version", [1, 3])
async def test_others_are_answered_while_an_old_client_fetches_very_many_partitions(house: House, version: int) -> None:
    await house.topic()
    await house.broker.create_topic(house.theirs, "orders")
    taken = house.broker.broker.services.accounting.decode_memory._used_bytes
    answered: list[str] = []

    async def long() -> None:
        request = fetch_of([("orders", list(range(20_000)))], max_wait_ms=0)
        answer = await house.mine.call(ApiKey.FETCH, version, request)
        unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 19_999
        assert [line.error_code for line in answer.responses[0].partitions] == [0, *unknown]
        answered.append("long")

    task = asyncio.create_task(long())
    await house.broker.until(lambda: MINE in taken)
    assert (await produce(house.theirs, "orders", batch(b"b"))).error_code == 0
    answered.append("theirs")
    await task
    assert answered == ["theirs", "long"]
    await house.broker.until(lambda: MINE not in taken)


@pytest.mark.parametrize("version", [4, 12])
async def test_a_long_fetch_that_cannot_be_is_refused_line_by_line(house: House, version: int) -> None:
    await house.topic()
    request = fetch_of([("orders", list(range(5_000))), ("others", [1])], max_wait_ms=0)
    request.isolation_level = 7

    answer = await house.mine.call(ApiKey.FETCH, version, request)

    refusals = [[line.error_code for line in topic.partitions] for topic in answer.responses]
    assert refusals == [[ErrorCode.UNKNOWN_SERVER_ERROR] * 5_000, [ErrorCode.UNKNOWN_SERVER_ERROR]]
