"""One Produce and one Fetch for many partitions: unchanged bytes, and a result for each partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.fetch import FetchPartition
from brokers.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from brokers.engine.records import batch as layout
from brokers.engine.records.compression import DECOMPRESSED_BYTES_MAX, GZIP, compress
from tests.testkit.records import FETCH_VERSION, PRODUCE_VERSION, batch, fetch, fetch_request, produce, values
from tests.unit.brokers.engine.handlers.conftest import MINE, House
from tests.unit.brokers.engine.records.hostile import batch as batch_of
from tests.unit.brokers.engine.records.hostile import record

PARTITIONS = 6
# The broker sets the offset and the leader epoch of a batch; all other bytes stay as they are (REC-21).
GIVEN_UNTIL, LENGTH = 16, slice(8, 12)


def produce_to(topics: dict[str, dict[int, bytes]], acks: int = 1) -> ProduceRequest:
    data = [
        TopicProduceData(
            name=name,
            partition_data=[PartitionProduceData(index=index, records=sent) for index, sent in partitions.items()],
        )
        for name, partitions in topics.items()
    ]
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=1_000, topic_data=data)


def file_of(house: House, index: int = 0) -> bytes:
    (path,) = Path(house.broker.config.data_dirs[0]).glob(f"{MINE}.orders-{index}/*.log")
    return path.read_bytes()


@pytest.mark.parametrize("codec", range(5))
async def test_producer_file_and_consumer_have_the_same_bytes(house: House, codec: int) -> None:
    """REC-2, WIRE-33."""
    await house.topic()
    sent = [batch(b"a" * 300, b"b", codec=codec), batch(b"c" * 20_000, codec=codec)]
    for item in sent:
        assert (await produce(house.mine, "orders", item)).error_code == 0

    fetched = (await fetch(house.mine, "orders")).records

    assert fetched == file_of(house)
    result = [fetched[at : at + header.size_bytes] for at, header in layout.scan_headers(fetched)]
    assert [(item[LENGTH], item[GIVEN_UNTIL:]) for item in result] == [
        (item[LENGTH], item[GIVEN_UNTIL:]) for item in sent
    ]


async def test_one_produce_and_one_fetch_hold_many_records_of_many_partitions(house: House) -> None:
    """EFF-6."""
    await house.topic(partitions=PARTITIONS)
    await house.topic("clicks", PARTITIONS)
    wanted = {
        name: {index: [b"%s %d %d" % (name.encode(), index, at) for at in range(50)] for index in range(PARTITIONS)}
        for name in ("orders", "clicks")
    }
    sent = {name: {at: batch(*result) for at, result in partitions.items()} for name, partitions in wanted.items()}

    answer = await house.mine.call(ApiKey.PRODUCE, PRODUCE_VERSION, produce_to(sent, acks=-1))

    lines = [
        (topic.name, line.index, line.error_code) for topic in answer.responses for line in topic.partition_responses
    ]
    assert lines == [(name, index, 0) for name in wanted for index in range(PARTITIONS)]
    asked = fetch_request("orders")
    asked.topics += fetch_request("clicks").topics
    for topic in asked.topics:
        topic.partitions = [
            FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=100_000) for index in range(PARTITIONS)
        ]
    brought = await house.mine.call(ApiKey.FETCH, FETCH_VERSION, asked)
    assert {
        topic.topic: {line.partition_index: values(line.records) for line in topic.partitions}
        for topic in brought.responses
    } == wanted


async def test_each_partition_of_a_produce_is_answered_for_itself(house: House) -> None:
    """An error of one partition does not affect the others (REC-41, REC-48, REC-59, REC-63)."""
    await house.topic(partitions=PARTITIONS)
    await house.broker.until(lambda: house.broker.broker.table.get(f"{MINE}.orders", 4))
    led = house.broker.broker.table.get(f"{MINE}.orders", 4)
    known = {"producer_id": 7, "producer_epoch": 3}
    await produce(house.mine, "orders", batch(b"before", base_sequence=0, **known), partition=1)
    await produce(house.mine, "orders", batch(b"before", base_sequence=0, **known), partition=2)
    assert led is not None
    led.resign()
    fenced = batch(b"x", base_sequence=1, producer_id=7, producer_epoch=2)
    sent = {
        "orders": {
            0: batch(b"good"),
            1: batch(b"x", base_sequence=9, **known),
            2: fenced,
            3: batch(b"x")[:-1] + b"?",
            4: batch(b"x"),
            5: batch(b"good too"),
            6: batch(b"x"),
        },
        "nowhere": {0: batch(b"x")},
    }

    answer = await house.mine.call(ApiKey.PRODUCE, PRODUCE_VERSION, produce_to(sent))

    codes = {topic.name: [line.error_code for line in topic.partition_responses] for topic in answer.responses}
    assert codes == {
        "orders": [
            0,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            0,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ],
        "nowhere": [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    }
    kept = [values((await fetch(house.mine, "orders", partition=index)).records) for index in (0, 1, 2, 3, 5)]
    assert kept == [[b"good"], [b"before"], [b"before"], [], [b"good too"]]


@pytest.mark.parametrize("version", [1, 9])
@pytest.mark.parametrize("rotten", [False, True], ids=["sound", "rotten at the end"])
async def test_inflated_bytes_of_a_request_are_limited(house: House, version: int, rotten: bool) -> None:
    """Batches that were checked before the limit are stored (REC-62)."""
    await house.topic(partitions=2)
    recompressed = compress(GZIP, record(b"k", bytes(DECOMPRESSED_BYTES_MAX - 1_000)))
    bomb = bytes(batch_of(recompressed[:-4] + b"????" if rotten else recompressed, attributes=GZIP))
    assert len(bomb) < 50_000
    request = produce_to({"orders": {}})
    sets = [PartitionProduceData(index=0, records=bomb) for _ in range(12)]
    request.topic_data[0].partition_data = [*sets, PartitionProduceData(index=1, records=batch(b"x"))]

    answer = await house.mine.call(ApiKey.PRODUCE, version, request)

    # Checked batches are valid or invalid; batches rejected as too large were not inflated.
    codes = [line.error_code for line in answer.responses[0].partition_responses]
    looked_at = codes.index(ErrorCode.MESSAGE_TOO_LARGE)
    assert 4 <= looked_at <= 5
    assert set(codes[:looked_at]) == {ErrorCode.CORRUPT_MESSAGE if rotten else 0}
    assert set(codes[looked_at : len(sets)]) == {ErrorCode.MESSAGE_TOO_LARGE}
    assert (await fetch(house.mine, "orders")).high_watermark == (0 if rotten else looked_at)
    assert (await produce(house.mine, "orders", batch(b"x"), partition=1, version=version)).error_code == 0


@pytest.mark.parametrize("version", range(12))
@pytest.mark.parametrize("acks", [2, -2, 127])
async def test_acks_are_all_one_or_none(house: House, version: int, acks: int) -> None:
    """REC-40."""
    await house.topic()

    answer = await produce(house.mine, "orders", batch(b"a"), version=version, acks=acks)

    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert (await fetch(house.mine, "orders")).high_watermark == 0
