"""A client that reads from the disk does not delay others, and gets the right bytes (LOG-22, WIRE-9)."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, cast

import pytest

from brokers.engine.handlers.fetch.waits import PREFETCHED_TOGETHER_MAX, UncachedRead, prefetch
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.results import Uncached
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.fetch import FetchPartition
from brokers.engine.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from brokers.engine.protocol.messages.metadata import MetadataRequest
from tests.testkit.in_process import InProcessBroker
from tests.testkit.records import FETCH_VERSION, NOW_MS, batch, fetch, fetch_request, produce, values
from tests.testkit.uncached import ForgetfulReaders, ManualReaders, SlowDisk, drop_from_page_cache
from tests.testkit.wire import WireClient

INSTANCE, TOPIC = "ins-aaaaaaaa", "orders"
EVERYTHING = MetadataRequest(topics=None)
MIB = 1 << 20
SEED = 20
VALUES = [random.Random(SEED + at).randbytes(90_000) for at in range(40)]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    async with InProcessBroker(tmp_path, log_dirs=2) as running:
        yield running


@pytest.fixture
async def port(broker: InProcessBroker) -> int:
    return await broker.create_instance(INSTANCE)


@pytest.fixture
async def client(broker: InProcessBroker, port: int) -> WireClient:
    """Returns a client of a broker with 3.6 MB in three segments, none of it cached."""
    client = await broker.client(port)
    await broker.create_topic(client, TOPIC, 1, segment_bytes=str(3 * MIB // 2))
    await broker.until(lambda: leads(broker))
    for value in VALUES:
        assert (await produce(client, TOPIC, batch(value))).error_code == 0
    log = partition_of(broker).log
    for segment in log.segments:
        segment.finish()
    log.free_memory()
    return client


@pytest.fixture
def disk(broker: InProcessBroker, client: WireClient, monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    return SlowDisk(monkeypatch, map(str, paths_of(broker)))


def partition_of(broker: InProcessBroker) -> Partition:
    result = broker.broker.table.get(f"{INSTANCE}.{TOPIC}", 0)
    assert result is not None
    return result


def leads(broker: InProcessBroker) -> bool:
    """True if the broker accepts records: it creates a topic before it leads the partitions."""
    partition = broker.broker.table.get(f"{INSTANCE}.{TOPIC}", 0)
    return partition is not None and partition.is_leader


def paths_of(broker: InProcessBroker) -> list[Path]:
    segments = partition_of(broker).log.segments
    assert len(segments) == 3
    return [
        Path(path)
        for segment in segments
        for path in (segment.file.path, segment.offset_index.path, segment.time_index.path)
    ]


def hold_readers(broker: InProcessBroker) -> ManualReaders:
    held = ManualReaders()
    use_readers(broker, held)
    return held


def use_readers(broker: InProcessBroker, readers: Executor) -> None:
    broker.broker.services.storage.readers = readers
    broker.broker.listeners.readers = readers


async def run_until_answered(broker: InProcessBroker, held: ManualReaders, answering: asyncio.Task[Any]) -> Any:
    while not answering.done():
        await broker.until(lambda: held.pending_reads or answering.done())
        if held.pending_reads:
            held.run_first()
    return await answering


class FailingDisk:
    """A part of a log that the disk does not return."""

    def __init__(self) -> None:
        self.is_released = False

    def prefetch(self) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def release(self) -> None:
        self.is_released = True


async def test_a_disk_error_counts_although_nobody_waits_for_the_read_any_more(
    broker: InProcessBroker, client: WireClient
) -> None:
    partition, held, part = partition_of(broker), hold_readers(broker), FailingDisk()
    reading = asyncio.create_task(prefetch(broker.broker.services, [UncachedRead(partition, cast(Uncached, part))]))
    await broker.until(lambda: held.pending_reads)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert not part.is_released, "the thread still reads"
    held.run_first()
    await broker.until(lambda: partition.offline)
    assert part.is_released


async def test_a_reader_of_uncached_data_waits_alone(
    broker: InProcessBroker, port: int, client: WireClient, disk: SlowDisk
) -> None:
    held = hold_readers(broker)
    other = await broker.client(port)
    end = len(VALUES)

    reading = asyncio.create_task(fetch(client, TOPIC, partition_max_bytes=3 * MIB))
    stages = 0
    while not reading.done():
        await broker.until(lambda: held.pending_reads or reading.done())
        if held.pending_reads:
            assert (await other.call(ApiKey.METADATA, 12, EVERYTHING)).topics[0].error_code == 0
            assert (await produce(other, TOPIC, batch(b"meanwhile"))).error_code == 0
            assert not reading.done(), "nothing was read for it yet"
            stages += 1
            held.run_first()

    answer = await reading
    assert values(answer.records) == VALUES[: len(values(answer.records))]
    assert len(answer.records) > MIB
    assert stages == 3, "an index, a header, and the records were on the disk"
    assert partition_of(broker).log_end_offset == end + stages
    assert disk.stalls == []


async def test_a_reader_goes_on_through_a_uncached_log(
    broker: InProcessBroker, client: WireClient, disk: SlowDisk
) -> None:
    result: list[bytes | None] = []
    while len(result) < len(VALUES):
        result += values((await fetch(client, TOPIC, len(result), partition_max_bytes=500_000)).records)

    assert result == VALUES
    assert disk.stalls == []


async def test_pages_read_ahead_and_evicted_at_once_are_sent_all_the_same(
    broker: InProcessBroker, client: WireClient, disk: SlowDisk
) -> None:
    forgetful = ForgetfulReaders(disk)
    use_readers(broker, forgetful)

    answer = await fetch(client, TOPIC, partition_max_bytes=3 * MIB)

    assert values(answer.records) == VALUES[: len(values(answer.records))]
    assert 0 < forgetful.count < 100


async def test_reads_of_any_size_are_the_bytes_that_were_written(broker: InProcessBroker, client: WireClient) -> None:
    """Threads, files and memory are the real ones."""
    dice = random.Random(SEED)
    paths = paths_of(broker)
    for _ in range(40):
        for path in paths:
            drop_from_page_cache(path)
        first, size = dice.randrange(len(VALUES)), dice.choice([1, 100_000, dice.randrange(1, 2 * MIB)])
        answer = await fetch(client, TOPIC, first, partition_max_bytes=size)
        result = values(answer.records)
        assert result
        assert result == VALUES[first : first + len(result)]


@pytest.mark.parametrize("size", [100, 15_000])
async def test_small_answers_come_from_the_disk_as_well(
    broker: InProcessBroker, port: int, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    client = await broker.client(port)
    await broker.create_topic(client, TOPIC, 1)
    await broker.until(lambda: leads(broker))
    for at in range(3):
        await produce(client, TOPIC, batch(bytes([at]) * size))
    partition_of(broker).log.free_memory()
    disk = SlowDisk(monkeypatch, [partition_of(broker).log.active.file.path])
    held = hold_readers(broker)

    answer = await run_until_answered(broker, held, asyncio.create_task(fetch(client, TOPIC)))

    assert values(answer.records) == [bytes([at]) * size for at in range(3)]
    assert disk.stalls == []


async def test_many_uncached_partitions_are_pulled_in_together(
    broker: InProcessBroker, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 3 * PREFETCHED_TOGETHER_MAX
    client = await broker.client(port)
    await broker.create_topic(client, TOPIC, count)
    for index in range(count):
        await produce(client, TOPIC, batch(b"%d" % index), partition=index)
    logs = [broker.broker.table.get(f"{INSTANCE}.{TOPIC}", index).log for index in range(count)]
    for log in logs:
        log.free_memory()
    disk = SlowDisk(monkeypatch, [log.active.file.path for log in logs])
    held = hold_readers(broker)
    request = fetch_request(TOPIC)
    request.topics[0].partitions = [FetchPartition(index, partition_max_bytes=MIB) for index in range(count)]

    reading = asyncio.create_task(client.call(ApiKey.FETCH, FETCH_VERSION, request))
    answer = await run_until_answered(broker, held, reading)

    result = [values(line.records) for line in answer.responses[0].partitions]
    assert result == [[b"%d" % index] for index in range(count)]
    assert held.count == 3
    assert disk.stalls == []


async def test_answers_stay_in_order_behind_a_uncached_one(
    broker: InProcessBroker, client: WireClient, disk: SlowDisk
) -> None:
    held = hold_readers(broker)
    await client.send(ApiKey.METADATA, 12, EVERYTHING)
    await client.send(ApiKey.FETCH, FETCH_VERSION, fetch_request(TOPIC, partition_max_bytes=MIB))
    await client.send(ApiKey.METADATA, 12, EVERYTHING)

    async def receive() -> Any:
        assert (await client.receive(ApiKey.METADATA, 12)).topics
        fetched = await client.receive(ApiKey.FETCH, FETCH_VERSION)
        assert (await client.receive(ApiKey.METADATA, 12)).topics
        return fetched.responses[0].partitions[0]

    answer = await run_until_answered(broker, held, asyncio.create_task(receive()))
    assert values(answer.records) == VALUES[: len(values(answer.records))]


async def prefetch_until_sending(broker: InProcessBroker, held: ManualReaders) -> None:
    """Continues until the pending prefetch is that of the records, on their way to the socket."""
    await broker.until(lambda: held.pending_reads)
    while held.pending_reads[0][1].__name__ != "prefetch":
        held.run_first()
        await broker.until(lambda: held.pending_reads)


@pytest.mark.parametrize("sending", [False, True])
async def test_a_client_that_leaves_while_the_disk_is_read_leaves_no_file_open(
    broker: InProcessBroker, client: WireClient, disk: SlowDisk, sending: bool
) -> None:
    held = hold_readers(broker)
    await client.send(ApiKey.FETCH, FETCH_VERSION, fetch_request(TOPIC, partition_max_bytes=3 * MIB))
    await broker.until(lambda: held.pending_reads)
    if sending:
        await prefetch_until_sending(broker, held)
        assert partition_of(broker).log.segments[0].file.is_pinned
    before = broker.broker.listeners.count

    await client.close()
    await broker.until(lambda: broker.broker.listeners.count == before - 1)
    assert not sending or partition_of(broker).log.segments[0].file.is_pinned, "the thread still reads it"
    held.run_first()

    await broker.until(lambda: not any(segment.file.is_pinned for segment in partition_of(broker).log.segments))
    assert not held.pending_reads, "nobody asks for more"


@pytest.mark.parametrize("sending", [False, True])
async def test_a_disk_that_fails_behind_a_reader_is_given_up(
    broker: InProcessBroker, port: int, client: WireClient, disk: SlowDisk, sending: bool
) -> None:
    """Same as for a read by the event loop (LOG-3)."""
    held = hold_readers(broker)
    broken = OSError(errno.EIO, "Input/output error")
    if sending:
        await client.send(ApiKey.FETCH, FETCH_VERSION, fetch_request(TOPIC, partition_max_bytes=3 * MIB))
        await prefetch_until_sending(broker, held)
        held.fail_first(broken)
        assert await _ends(client)
    else:
        partition = partition_of(broker)
        await client.send(ApiKey.FETCH, FETCH_VERSION, fetch_request(TOPIC, partition_max_bytes=3 * MIB))
        await broker.until(lambda: held.pending_reads)
        _, _, (missing,) = held.pending_reads[0]
        missing[0] = (partition, Failing(missing[0][1], broken))
        held.run_first()
        answer = await client.receive(ApiKey.FETCH, FETCH_VERSION)
        assert answer.responses[0].partitions[0].error_code == 56

    root = partition_of(broker).log.root
    assert broker.broker.table.offline_directories == {root: str(broken)}
    other = await broker.client(port)
    assert (await fetch(other, TOPIC)).error_code == 56


class Failing:
    """An uncached range whose read fails."""

    def __init__(self, uncached: Any, error: OSError) -> None:
        self.release = uncached.release
        self.error = error

    def prefetch(self) -> None:
        raise self.error


async def _ends(client: WireClient) -> bool:
    """True if the connection ends, whatever it sent before."""
    try:
        await asyncio.wait_for(client.reader.read(), 10)
    except ConnectionError:
        return True
    return client.reader.at_eof()


@pytest.mark.parametrize("timestamp", [NOW_MS, -3])
async def test_looking_up_a_time_on_the_disk_keeps_nobody_waiting(
    broker: InProcessBroker, port: int, client: WireClient, disk: SlowDisk, timestamp: int
) -> None:
    held = hold_readers(broker)
    other = await broker.client(port)
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=[wanted])])

    looking = asyncio.create_task(client.call(ApiKey.LIST_OFFSETS, 7, request))
    await broker.until(lambda: held.pending_reads)
    assert (await other.call(ApiKey.METADATA, 12, EVERYTHING)).topics
    answer = await run_until_answered(broker, held, looking)

    line = answer.topics[0].partitions[0]
    assert (line.error_code, line.timestamp, line.offset) == (0, NOW_MS, 0)


async def test_an_old_client_reads_uncached_data_without_stopping_the_others(
    broker: InProcessBroker, port: int, client: WireClient, disk: SlowDisk
) -> None:
    held = hold_readers(broker)
    other = await broker.client(port)

    reading = asyncio.create_task(client.call(ApiKey.FETCH, 3, fetch_request(TOPIC, partition_max_bytes=MIB)))
    await broker.until(lambda: held.pending_reads)
    assert (await other.call(ApiKey.METADATA, 12, EVERYTHING)).topics
    answer = await run_until_answered(broker, held, reading)

    line = answer.responses[0].partitions[0]
    assert line.error_code == 0
    assert VALUES[0] in line.records
    assert disk.stalls == []
