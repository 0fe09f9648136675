"""Batches whose topic requires another codec are recompressed in a thread; other clients do not wait (REC-32)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from brokers.engine.handlers.produce import legacy, recompression
from brokers.engine.handlers.produce.recompression import RECOMPRESSED_AT_ONCE_BYTES_MAX
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from brokers.engine.records import batch as layout
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.records.compression import GZIP, LZ4, SNAPPY, ZSTD
from tests.testkit.records import batch, fetch, produce, produce_request, values
from tests.unit.brokers.engine.handlers.conftest import MINE, House

LARGE = os.urandom(RECOMPRESSED_AT_ONCE_BYTES_MAX)


@contextlib.contextmanager
def busy(house: House) -> Iterator[threading.Event]:
    """Blocks the recompressing threads until the event is set."""
    may_pack = threading.Event()
    converters = house.broker.broker.services.storage.converters
    assert converters is not None
    waiting = [converters.submit(may_pack.wait, 60) for _ in range(2)]
    try:
        yield may_pack
    finally:
        may_pack.set()
        for item in waiting:
            item.result(60)


async def codecs(house: House, topic: str = "orders") -> list[int]:
    records = (await fetch(house.mine, topic)).records
    return [header.codec for _, header in layout.scan_headers(records)]


@pytest.mark.parametrize("codec", [0, LZ4, ZSTD])
async def test_nobody_waits_while_a_batch_is_packed(house: House, codec: int) -> None:
    await house.topic(compression_type="gzip")
    await house.broker.create_topic(house.theirs, "others", 1)
    with busy(house) as may_pack:
        large = asyncio.create_task(produce(house.mine, "orders", batch(LARGE, codec=codec)))
        assert (await produce(house.theirs, "others", batch(b"v"))).error_code == 0
        assert not large.done()
        may_pack.set()
        assert (await large).error_code == 0
    assert await codecs(house) == [GZIP]
    assert values((await fetch(house.mine, "orders")).records) == [LARGE]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
async def test_nobody_waits_while_a_batch_that_inflates_to_much_is_checked(house: House, codec: int) -> None:
    await house.topic()
    await house.broker.create_topic(house.theirs, "others", 1)
    bomb = bytes(build_batch([Record(0, None, bytes(4 * 1024 * 1024))], codec=codec))
    with busy(house) as may_check:
        large = asyncio.create_task(produce(house.mine, "orders", bomb))
        assert (await produce(house.theirs, "others", batch(b"v"))).error_code == 0
        assert not large.done()
        may_check.set()
        assert (await large).error_code == 0
    assert (await fetch(house.mine, "orders")).high_watermark == 1


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
async def test_an_ordinary_compressed_batch_is_checked_at_once(house: House, codec: int) -> None:
    await house.topic()
    with busy(house):
        assert (await produce(house.mine, "orders", batch(b"v" * 10_000, codec=codec))).error_code == 0


async def test_a_producer_waits_for_the_time_its_batches_take_to_check(house: House) -> None:
    """The thread time is charged to the instance: a few megabytes may decompress to gigabytes."""
    await house.topic(max_message_bytes="100000000")
    bomb = bytes(build_batch([Record(0, None, bytes(31 * 1024 * 1024))], codec=GZIP))
    accounting = house.broker.broker.services.accounting.accountings.get_or_create(MINE)
    answer = await house.mine.call(ApiKey.PRODUCE, 9, produce_request("orders", bomb))
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert accounting.request_time.used_us > 1_000
    clock = house.broker.broker.services.clock
    owed_ms = accounting.request_time.charge(300_000, clock.monotonic_ms())
    began_ms = clock.monotonic_ms()
    await house.mine.call(ApiKey.PRODUCE, 9, produce_request("orders", bomb))
    assert clock.monotonic_ms() - began_ms >= owed_ms - 1 > 500
    (entry,) = accounting.ledger.as_json(0)
    assert entry["rule"] == {"kind": "request_time", "quota": "request_time", "level": None, "entity": {}}
    assert entry["limit_bytes_per_s"] is None


@pytest.mark.parametrize(("module", "name", "version"), [(recompression, "_check", 9), (legacy, "_convert", 2)])
async def test_a_client_that_hangs_up_while_a_thread_checks_its_batches_pays_for_it(
    house: House, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, version: int
) -> None:
    """Otherwise a tenant could keep threads busy for free, with connections of some milliseconds."""
    await house.topic(max_message_bytes="100000000")
    looked, may_end, real = threading.Event(), threading.Event(), getattr(module, name)

    def held(*given: Any) -> Any:
        spent_s = real(*given)
        looked.set()
        may_end.wait(60)
        return spent_s

    monkeypatch.setattr(module, name, held)
    accounting = house.broker.broker.services.accounting.accountings.get_or_create(MINE)
    listener = house.broker.broker.listeners.get(MINE)
    assert listener is not None
    many = bytes(build_batch([Record(0, None, bytes(31 * 1024 * 1024))], codec=GZIP))
    await house.mine.send(ApiKey.PRODUCE, version, produce_request("orders", many))
    await house.broker.until(looked.is_set)
    used_us = accounting.request_time.used_us
    await house.mine.close()
    await house.broker.until(lambda: not listener.connections)
    may_end.set()
    await house.broker.until(lambda: accounting.request_time.used_us > used_us)


async def test_a_small_batch_is_packed_at_once(house: House) -> None:
    await house.topic(compression_type="gzip")
    with busy(house):
        assert (await produce(house.mine, "orders", batch(b"v"))).error_code == 0
    assert await codecs(house) == [GZIP]


async def test_a_batch_behind_the_wanted_codec_is_not_packed(house: House) -> None:
    await house.topic(compression_type="gzip")
    with busy(house):
        assert (await produce(house.mine, "orders", batch(LARGE, codec=GZIP))).error_code == 0
    assert await codecs(house) == [GZIP]


async def test_a_setting_changed_meanwhile_counts(house: House) -> None:
    await house.topic(compression_type="gzip")
    table = house.broker.broker.services.storage.table
    with busy(house) as may_pack:
        large = asyncio.create_task(produce(house.mine, "orders", batch(LARGE)))
        await produce(house.theirs, "nothing", batch(b"v"))
        table.update_config(f"{MINE}.orders", {"compression.type": "zstd"})
        may_pack.set()
        assert (await large).error_code == 0
    partition = table.get(f"{MINE}.orders", 0)
    assert partition is not None
    result = partition.read(0, 1_000_000, min_one_batch=True).slice
    assert result is not None
    assert layout.read_header(result.read()).codec == ZSTD
    result.release()


async def test_a_damaged_batch_is_refused_and_never_sealed_anew(house: House) -> None:
    await house.topic(compression_type="gzip")
    damaged = bytearray(batch(LARGE))
    damaged[-1] ^= 1
    assert (await produce(house.mine, "orders", bytes(damaged))).error_code == ErrorCode.CORRUPT_MESSAGE
    assert (await fetch(house.mine, "orders")).high_watermark == 0


async def test_every_set_of_a_request_keeps_its_own_records(house: House) -> None:
    """Two sets are for one partition, and one is rejected."""
    await house.topic(partitions=2, compression_type="gzip")
    await house.broker.create_topic(house.mine, "plain", 1)
    sets: list[tuple[str, int, bytes]] = [
        ("orders", 0, batch(b"a" + LARGE)),
        ("orders", 0, batch(b"b" + LARGE, codec=LZ4)),
        ("orders", 1, batch(b"c")),
        ("plain", 0, batch(b"d" + LARGE)),
        ("orders", 9, batch(b"e" + LARGE)),
    ]
    topics = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=index, records=records)])
        for name, index, records in sets
    ]
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1_000, topic_data=topics)
    answer: Any = await house.mine.call(ApiKey.PRODUCE, 9, request)
    lines = [topic.partition_responses[0] for topic in answer.responses]
    assert [line.error_code for line in lines] == [0, 0, 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert values((await fetch(house.mine, "orders")).records) == [b"a" + LARGE, b"b" + LARGE]
    assert await codecs(house) == [GZIP, GZIP]
    assert values((await fetch(house.mine, "orders", partition=1)).records) == [b"c"]
    assert await codecs(house, "plain") == [0]


async def test_an_idempotent_batch_sent_twice_is_there_once(house: House) -> None:
    await house.topic(compression_type="lz4")
    data = batch(LARGE, producer_id=7, producer_epoch=0, base_sequence=0)
    first = await produce(house.mine, "orders", data)
    again = await produce(house.mine, "orders", data)
    assert (first.error_code, again.error_code, first.base_offset, again.base_offset) == (0, 0, 0, 0)
    assert await codecs(house) == [LZ4]


async def test_inflated_bytes_of_all_sets_of_a_request_are_limited(house: House) -> None:
    """The limit applies in the thread and on the event loop (REC-62)."""
    await house.topic(compression_type="lz4", max_message_bytes="100000000")
    bomb = bytes(build_batch([Record(0, None, bytes(31 * 1024 * 1024))], codec=ZSTD))
    sets = [PartitionProduceData(index=0, records=bomb) for _ in range(6)]
    request = ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name="orders", partition_data=sets)],
    )
    answer: Any = await house.mine.call(ApiKey.PRODUCE, 9, request)
    codes = [line.error_code for line in answer.responses[0].partition_responses]
    assert codes == [0] * 5 + [ErrorCode.MESSAGE_TOO_LARGE]
