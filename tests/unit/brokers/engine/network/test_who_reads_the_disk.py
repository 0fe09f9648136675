"""Reading ahead belongs in a thread as well: allocating memory takes the kernel milliseconds (LOG-22, decision 55)."""

from __future__ import annotations

import random
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.testkit.in_process import InProcessBroker
from tests.testkit.records import batch, fetch, produce, values
from tests.testkit.uncached import evict

INSTANCE, TOPIC = "ins-aaaaaaaa", "archive"
BLOCK_BYTES = 512
VALUE = random.Random(15).randbytes(900_000)
COUNT = 40


@pytest.fixture
async def broker(disk_path: Path) -> AsyncIterator[InProcessBroker]:
    async with InProcessBroker(disk_path) as running:
        yield running


def blocks_read(who: int) -> int:
    return resource.getrusage(who).ru_inblock


async def test_the_loop_has_nothing_read_ahead_of_a_reader_of_an_old_log(broker: InProcessBroker) -> None:
    client = await broker.client(await broker.create_instance(INSTANCE))
    await broker.create_topic(client, TOPIC, 1)
    for _ in range(COUNT):
        assert (await produce(client, TOPIC, batch(VALUE))).error_code == 0
    partition = broker.broker.table.get(f"{INSTANCE}.{TOPIC}", 0)
    assert partition is not None
    partition.log.free_memory()
    evict(Path(partition.log.active.file.path))
    by_process, by_loop = blocks_read(resource.RUSAGE_SELF), blocks_read(resource.RUSAGE_THREAD)

    offset = 0
    while offset < COUNT:
        answer = await fetch(client, TOPIC, offset, partition_max_bytes=1 << 20)
        assert values(answer.records) == [VALUE]
        offset += 1

    by_process = blocks_read(resource.RUSAGE_SELF) - by_process
    by_loop = blocks_read(resource.RUSAGE_THREAD) - by_loop
    assert by_process * BLOCK_BYTES >= COUNT * len(VALUE), "it lay on the disk"
    assert by_loop * BLOCK_BYTES < COUNT * len(VALUE) / 50
