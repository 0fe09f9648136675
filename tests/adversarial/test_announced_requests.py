"""Requests that are announced and never sent, by many instances at once: ordinary ones of a neighbour get memory."""

from __future__ import annotations

import asyncio
import contextlib
import time
from struct import pack
from typing import Final

import pytest

from brokers.engine.network.buffers import RENTED_BYTES_MAX
from brokers.engine.protocol.apis import ApiKey
from tests.adversarial.hostile import TOPIC
from tests.adversarial.test_connections import rss_bytes
from tests.testkit.engine import EngineCluster
from tests.testkit.records import batch, produce
from tests.testkit.wire import HOST, WireClient

INSTANCES: Final = 15
LARGEST_BYTES: Final = 100_000_000
LARGEST: Final = RENTED_BYTES_MAX // LARGEST_BYTES - 1
# By instance: each announces half of the memory that would be left if announced bytes were reserved at once.
ANNOUNCED_BYTES: Final = [LARGEST_BYTES] * LARGEST + [
    max((RENTED_BYTES_MAX - LARGEST * LARGEST_BYTES) >> (number + 1), 200_000) for number in range(INSTANCES - LARGEST)
]
# The second is more than the share of each, so that together they fill the memory.
SENT_BYTES: Final = (70_000, RENTED_BYTES_MAX // INSTANCES + 8_000_000)
ANSWERED_S_MAX: Final = 3.0


@pytest.fixture(scope="module")
def hostile_ports(cluster: EngineCluster) -> list[int]:
    instances = [cluster.create_instance(f"ins-c{number:07}") for number in range(INSTANCES)]
    return [next(iter(instance.document.ports.values())) for instance in instances]


async def announce(port: int, announced_bytes: int, sent_bytes: int) -> asyncio.StreamWriter:
    """Sends the beginning of a Produce, as far as the broker reads it."""
    _, writer = await asyncio.open_connection(HOST, port)
    writer.write(pack(">ihhi", announced_bytes, ApiKey.PRODUCE, 9, 1) + bytes(sent_bytes))
    return writer


@pytest.mark.parametrize("sent_bytes", SENT_BYTES)
async def test_requests_that_never_come_leave_memory_to_the_neighbour(
    cluster: EngineCluster, hostile_ports: list[int], neighbour_port: int, sent_bytes: int
) -> None:
    before = await asyncio.to_thread(rss_bytes, cluster)
    is_small = sent_bytes < min(ANNOUNCED_BYTES)
    announced = ANNOUNCED_BYTES if is_small else [LARGEST_BYTES] * INSTANCES
    partial_writers = [
        await announce(*port_and_size, sent_bytes) for port_and_size in zip(hostile_ports, announced, strict=True)
    ]
    for writer in partial_writers:
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(2):
                await writer.drain()
    neighbour = await WireClient.connect(neighbour_port)
    took_s = []
    for size_bytes in (200_000, 1_000_000, 1_000_000):
        began_s = time.monotonic()
        async with asyncio.timeout(ANSWERED_S_MAX):
            assert (await produce(neighbour, TOPIC, batch(bytes(size_bytes)))).error_code == 0
        took_s.append(time.monotonic() - began_s)
    rss_growth = await asyncio.to_thread(rss_bytes, cluster) - before
    print(f"{sent_bytes} bytes each: produces took {took_s} s, RSS grew by {rss_growth / 2**20:.1f} MiB")
    assert rss_growth <= RENTED_BYTES_MAX + LARGEST_BYTES
    await neighbour.close()
    for writer in partial_writers:
        writer.transport.abort()
