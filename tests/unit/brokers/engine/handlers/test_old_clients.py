"""Produce 0 to 2, Fetch 0 to 3 and ListOffsets 0 over a real socket (REC-30, REC-31, LOG-29)."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest

from brokers.engine.handlers.fetch import legacy
from brokers.engine.handlers.produce import legacy as produce_legacy
from brokers.engine.partitions.transactions import append_marker
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from brokers.engine.protocol.messages.produce import PartitionProduceData
from brokers.engine.records import batch as layout
from brokers.engine.records.builder import Record, read_records
from brokers.engine.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from brokers.engine.records.message_set import Message, compress_old, encode_message, read_set
from tests.testkit.records import NOW_MS, batch, fetch, fetch_request, produce, produce_request
from tests.unit.brokers.engine.handlers.conftest import MINE, House

PRODUCE_OLD = [0, 1, 2]
FETCH_OLD = [0, 1, 2, 3]


def messages(*values: bytes | None, magic: int = 1, codec: int = NONE, key: bytes | None = b"k") -> bytes:
    block = b"".join(encode_message(magic, at, NOW_MS + at, key, value) for at, value in enumerate(values))
    if codec == NONE:
        return block
    return encode_message(magic, len(values) - 1, NOW_MS, None, compress_old(codec, block, magic), codec)


async def old_fetch(house: House, offset: int = 0, *, version: int = 2, **more: Any) -> tuple[Any, list[Message]]:
    answer = await house.mine.call(ApiKey.FETCH, version, fetch_request("orders", offset, **more))
    line = answer.responses[0].partitions[0]
    return line, list(read_set(line.records))


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("version", PRODUCE_OLD)
async def test_an_old_set_is_stored_as_one_batch_with_its_codec(
    house: House, version: int, magic: int, codec: int
) -> None:
    await house.topic()

    first = await produce(house.mine, "orders", messages(b"a", b"b", magic=magic, codec=codec), version=version)
    second = await produce(house.mine, "orders", messages(b"c", magic=magic, codec=codec), version=version, acks=-1)

    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (0, 2)
    stored = (await fetch(house.mine, "orders")).records
    header = layout.read_header(stored)
    assert (header.magic, header.codec, header.record_count) == (2, codec, 2)
    times = [NOW_MS, NOW_MS + 1] if magic else [-1, -1]
    wanted = [Record(time_ms, b"k", value) for time_ms, value in zip(times, (b"a", b"b"), strict=True)]
    assert read_records(stored[: header.size_bytes]) == list(enumerate(wanted))


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("version", FETCH_OLD)
async def test_an_old_fetch_gets_messages(house: House, version: int, codec: int) -> None:
    await house.topic()
    for values in ((b"a", b"b"), (b"c",)):
        await produce(house.mine, "orders", batch(*values, codec=codec))

    line, result = await old_fetch(house, version=version)

    assert (line.error_code, line.high_watermark) == (0, 3)
    assert [(m.offset, m.value) for m in result] == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert {m.timestamp_ms for m in result} == {NOW_MS if version >= 2 else -1}


async def test_the_brokers_time_is_given_and_read(house: House) -> None:
    await house.topic(message_timestamp_type="LogAppendTime")

    answer = await produce(house.mine, "orders", messages(b"a", magic=0), version=2)
    _, result = await old_fetch(house)

    assert answer.log_append_time_ms > NOW_MS
    assert [m.timestamp_ms for m in result] == [answer.log_append_time_ms]


async def test_one_request_has_no_more_converted_than_its_share(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Message sets beyond the share are rejected, and a reader gets them in its next requests (REC-30, REC-31)."""
    monkeypatch.setattr("brokers.engine.handlers.produce.legacy.DECOMPRESSED_PER_REQUEST_MAX", 100_000)
    monkeypatch.setattr("brokers.engine.handlers.fetch.legacy.DECOMPRESSED_BYTES_MAX", 100_000)
    await house.topic(partitions=3)
    many = messages(*[b""] * 1_000, codec=GZIP)
    request = produce_request("orders", many)
    request.topic_data[0].partition_data += [PartitionProduceData(index=index, records=many) for index in (1, 2)]

    answer = await house.mine.call(ApiKey.PRODUCE, 2, request)

    lines = answer.responses[0].partition_responses
    assert [line.error_code for line in lines] == [0, *[ErrorCode.MESSAGE_TOO_LARGE] * 2]
    for line in lines[1:]:
        assert (await produce(house.mine, "orders", many, version=2, partition=line.index)).error_code == 0
    asked = fetch_request("orders", max_wait_ms=0)
    first = asked.topics[0].partitions[0]
    asked.topics[0].partitions = [dataclasses.replace(first, partition=index) for index in (0, 1, 2)]
    fetched = (await house.mine.call(ApiKey.FETCH, 2, asked)).responses[0].partitions
    assert [(line.error_code, len(list(read_set(line.records)))) for line in fetched] == [(0, 1_000), (0, 0), (0, 0)]


async def test_conversion_keeps_no_thread_that_others_wait_for(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flushes and the cleaner use threads of the event loop's default pool."""
    seen: list[str] = []
    for module in (produce_legacy, legacy):
        real = module._convert

        def noted(*given: Any, real: Any = real) -> Any:
            seen.append(threading.current_thread().name)
            return real(*given)

        monkeypatch.setattr(module, "_convert", noted)
    await house.topic()

    await produce(house.mine, "orders", messages(b"a"), version=2)
    await old_fetch(house)

    assert [name.split("_")[0] for name in seen] == ["convert", "convert"]


async def test_acks_zero_is_not_answered_and_the_next_request_is(house: House) -> None:
    await house.topic()

    await house.mine.send(ApiKey.PRODUCE, 1, produce_request("orders", messages(b"a"), acks=0))
    _, result = await old_fetch(house)

    assert [m.value for m in result] == [b"a"]


async def test_a_failed_append_with_acks_zero_ends_the_connection(house: House) -> None:
    await house.mine.send(ApiKey.PRODUCE, 1, produce_request("nowhere", messages(b"a"), acks=0))

    assert await house.mine.is_closed()


@pytest.mark.parametrize("version", PRODUCE_OLD)
@pytest.mark.parametrize(
    ("records", "acks", "code"),
    [
        (None, 1, ErrorCode.INVALID_RECORD),
        (messages(b"a"), 2, ErrorCode.INVALID_REQUIRED_ACKS),
        (messages(b"a")[:-1] + b"b", 1, ErrorCode.CORRUPT_MESSAGE),
        (messages(b"a") + messages(b"b", magic=0), 1, ErrorCode.INVALID_RECORD),
        (messages(b"a", codec=GZIP) * 2, 1, ErrorCode.INVALID_RECORD),
        (messages(b"x" * 2_000_000), 1, ErrorCode.MESSAGE_TOO_LARGE),
        (messages(b"x" * 2_000_000, codec=GZIP), 1, ErrorCode.NONE),
        (batch(b"a") * 2, 1, ErrorCode.INVALID_RECORD),
        (batch(b"a", codec=ZSTD), 1, ErrorCode.NONE),
        (b"", 1, ErrorCode.NONE),
    ],
    ids=[
        "null",
        "acks",
        "checksum",
        "mixed",
        "wrappers",
        "large",
        "large inside",
        "two batches",
        "a batch of zstd",
        "nothing",
    ],
)
async def test_wrong_sets_get_their_code_and_change_nothing(
    house: House, version: int, records: bytes | None, acks: int, code: ErrorCode
) -> None:
    await house.topic()

    answer = await produce(house.mine, "orders", records, acks=acks, version=version)

    assert answer.error_code == code
    accepted = code == ErrorCode.NONE and records != b""
    assert answer.base_offset == (0 if accepted else -1)
    assert (await fetch(house.mine, "orders")).high_watermark == int(accepted)


@pytest.mark.parametrize("version", PRODUCE_OLD)
async def test_a_batch_of_a_transaction_refuses_the_old_messages_beside_it_too(house: House, version: int) -> None:
    """These versions cannot name a transaction (REC-44)."""
    await house.topic()
    await house.topic("clicks")
    without_transactional_id = batch(
        b"b", attributes=layout.TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0
    )
    request = produce_request("orders", messages(b"a"))
    request.topic_data += produce_request("clicks", without_transactional_id).topic_data

    answer = await house.mine.call(ApiKey.PRODUCE, version, request)

    codes = [topic.partition_responses[0].error_code for topic in answer.responses]
    assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert (await fetch(house.mine, "orders")).high_watermark == 0


@pytest.mark.parametrize("version", [0, 2, 3, 9])
async def test_each_partition_of_a_request_may_have_a_format_of_its_own(house: House, version: int) -> None:
    """From version 3 on only format 2 is allowed; others are unaffected by a rejection (REC-42, REC-49, REC-63)."""
    old, older, wrapper = messages(b"a"), messages(b"b", magic=0), messages(b"c", codec=GZIP)
    sent = [old, older, wrapper, batch(b"d"), old + older, batch(b"e") + old, old + batch(b"f"), wrapper + wrapper]
    unknown = bytearray(old)
    unknown[layout.MAGIC_AT] = 3
    sent.append(bytes(unknown))
    await house.topic(partitions=len(sent))
    request = produce_request("orders", None)
    request.topic_data[0].partition_data = [
        PartitionProduceData(index=index, records=records) for index, records in enumerate(sent)
    ]

    answer = await house.mine.call(ApiKey.PRODUCE, version, request)

    codes = [line.error_code for line in answer.responses[0].partition_responses]
    invalid, corrupt = ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE
    taken = [0, 0, 0, 0] if version < 3 else [invalid, invalid, invalid, 0]
    assert codes == [*taken, invalid, invalid, invalid, invalid, corrupt]
    ends = [(await fetch(house.mine, "orders", partition=index)).high_watermark for index in range(len(sent))]
    assert ends == [int(code == 0) for code in codes]


@pytest.mark.parametrize("stored", ["0.9.0", "0.10.2", "2.8"])
async def test_records_are_stored_in_format_2_under_any_format_of_a_topic(house: House, stored: str) -> None:
    """Apache Kafka 3.9 does the same, so that a producer with an id is never rejected (REC-29, REC-53, LOG-29)."""
    await house.topic(message_format_version=stored)

    old = await produce(house.mine, "orders", messages(b"a", magic=0), version=2)
    idempotent = await produce(
        house.mine, "orders", batch(b"b", producer_id=7, producer_epoch=0, base_sequence=0), acks=-1
    )

    assert (old.error_code, idempotent.error_code, idempotent.base_offset) == (0, 0, 1)
    data = (await fetch(house.mine, "orders")).records
    assert [header.magic for _, header in layout.scan_headers(data)] == [2, 2]


async def test_a_compacted_topic_wants_keys(house: House) -> None:
    """REC-55."""
    await house.topic(cleanup_policy="compact")

    with_key = await produce(house.mine, "orders", messages(b"a"), version=2)
    without = await produce(house.mine, "orders", messages(b"a", key=None, codec=GZIP), version=2)

    assert (with_key.error_code, without.error_code) == (0, ErrorCode.INVALID_RECORD)


async def test_a_topic_with_a_codec_of_its_own_recompresses(house: House) -> None:
    """REC-32."""
    await house.topic(compression_type="lz4")

    await produce(house.mine, "orders", messages(b"a", codec=GZIP), version=2)

    assert layout.read_header((await fetch(house.mine, "orders")).records).codec == LZ4


async def test_zstd_is_refused_to_an_old_reader(house: House) -> None:
    await house.topic()
    await produce(house.mine, "orders", batch(b"a", codec=ZSTD))

    answer = await house.mine.call(ApiKey.FETCH, 3, fetch_request("orders"))

    line = answer.responses[0].partitions[0]
    wanted = (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1, None)
    assert (line.error_code, line.high_watermark, line.records) == wanted


@pytest.mark.parametrize(("version", "code"), [(3, 76), (4, 76), (9, 76), (10, 0), (12, 0)])
async def test_a_topic_of_zstd_is_refused_to_who_cannot_inflate_it(house: House, version: int, code: int) -> None:
    await house.topic(compression_type="zstd")
    await produce(house.mine, "orders", batch(b"a"))

    answer = await house.mine.call(ApiKey.FETCH, version, fetch_request("orders"))

    assert answer.responses[0].partitions[0].error_code == code


@pytest.mark.parametrize(("version", "seen"), [(0, []), (2, []), (3, [b"a"])])
async def test_a_batch_over_the_limit_is_given_from_version_3_on(house: House, version: int, seen: list[bytes]) -> None:
    """WIRE-28."""
    await house.topic()
    await produce(house.mine, "orders", batch(b"a"))

    line, result = await old_fetch(house, version=version, partition_max_bytes=10)

    assert (line.error_code, [m.value for m in result]) == (0, seen)


async def test_an_old_fetch_waits_for_the_next_append(house: House) -> None:
    await house.topic()
    other = await house.broker.client(house.my_port)
    await other.send(ApiKey.FETCH, 1, fetch_request("orders", max_wait_ms=60_000))

    await produce(house.mine, "orders", batch(b"a"))
    answer = await other.receive(ApiKey.FETCH, 1)

    assert [m.value for m in read_set(answer.responses[0].partitions[0].records)] == [b"a"]


def end_transaction(house: House) -> None:
    partition = house.broker.broker.services.storage.table.get(f"{MINE}.orders", 0)
    assert append_marker(partition, 7, 0, 0, True, NOW_MS).error_code == 0


async def test_an_old_reader_gets_past_the_ends_of_transactions(house: House) -> None:
    """The bytes read after the marker hold only a part of the next batch, without a message (REC-31)."""
    await house.topic()
    for _ in range(3):
        end_transaction(house)
    await produce(house.mine, "orders", batch(b"a" * 5_000))

    line, result = await old_fetch(house, version=3, partition_max_bytes=100)

    assert (line.error_code, [message.offset for message in result]) == (0, [3])


async def test_an_old_fetch_waits_behind_the_end_of_a_transaction(house: House) -> None:
    """If the marker were a response, the reader would retry at once, as long as nothing follows (WIRE-27)."""
    await house.topic()
    end_transaction(house)
    partition = house.broker.broker.services.storage.table.get(f"{MINE}.orders", 0)
    other = await house.broker.client(house.my_port)
    await other.send(ApiKey.FETCH, 1, fetch_request("orders", max_wait_ms=60_000))
    await house.broker.until(lambda: bool(partition.delayed_operations))

    await produce(house.mine, "orders", batch(b"a"))
    answer = await other.receive(ApiKey.FETCH, 1)

    assert [m.value for m in read_set(answer.responses[0].partitions[0].records)] == [b"a"]


@pytest.mark.parametrize("version", FETCH_OLD)
async def test_an_old_fetch_has_its_error_codes(house: House, version: int) -> None:
    await house.topic()

    line, _ = await old_fetch(house, 5, version=version)
    missing = await house.mine.call(ApiKey.FETCH, version, fetch_request("nowhere"))
    replica = await house.mine.call(ApiKey.FETCH, version, fetch_request("orders", replica_id=1))

    assert (line.error_code, line.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert missing.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replica.responses[0].partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_old_traffic_is_metered_like_any(house: House) -> None:
    await house.topic()
    await produce(house.mine, "orders", messages(b"a"), version=1)

    line, _ = await old_fetch(house, version=1)

    stored = len((await fetch(house.mine, "orders", max_wait_ms=0)).records)
    counters = house.broker.broker.services.accounting.accountings.get_or_create(MINE).usage.counters()
    counted = {counter.key[3]: counter.bytes for counter in counters}
    assert counted == {"produce": stored, "consume": len(line.records) + stored}


@pytest.mark.parametrize("count", [0, 1, 2, 9])
async def test_list_offsets_0_tells_segments_newest_first(house: House, count: int) -> None:
    await house.topic()
    log = house.broker.broker.services.storage.table.get(f"{MINE}.orders", 0).log
    for value in (b"a", b"b", b"c"):
        if log.active.size_bytes:
            log.roll(NOW_MS)
        await produce(house.mine, "orders", batch(value))

    async def listed(timestamp: int, partition: int = 0) -> tuple[int, list[int]]:
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, max_num_offsets=count)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="orders", partitions=[wanted])])
        line = (await house.mine.call(ApiKey.LIST_OFFSETS, 0, request)).topics[0].partitions[0]
        return line.error_code, line.old_style_offsets

    assert await listed(-1) == (0, [3, 2, 1, 0][:count])
    assert await listed(-2) == (0, [0][:count])
    assert await listed(0) == (0, [])
    assert await listed(-3) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert await listed(-1, partition=7) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
