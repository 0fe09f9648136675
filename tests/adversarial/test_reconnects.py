"""Clients that connect anew for each request, or ask a broker that has nothing of theirs: what they owe is their
instance's, and no more passes than was bought (CKA-25).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import pytest

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from tests.adversarial.conftest import with_topic
from tests.adversarial.hostile import TOPIC, Neighbour
from tests.testkit.engine import EngineCluster
from tests.testkit.records import batch, fetch_request, produce_request
from tests.testkit.wire import WireClient

MB: Final = 1_000_000
BOUGHT_BPS: Final = MB
CONNECTIONS: Final = 16
ATTACK_S: Final = 4.0
RECORDS: Final = batch(bytes(100_000))
# The credit for idle time, rounded up, and one request for each connection, at most 1 MB in all.
ALLOWED_BYTES: Final = 1.02 * BOUGHT_BPS * ATTACK_S + 0.2 * BOUGHT_BPS + MB
# Limits are as exact where nothing is delivered: most of the bought bandwidth passes.
LEAST_BYTES: Final = 0.8 * BOUGHT_BPS * ATTACK_S
# For a machine with other work; on an idle one it is below 20 ms.
NEIGHBOUR_P99_MS_MAX: Final = 300.0

# Makes one request on a new connection; returns the bytes that it moved.
Step = Callable[[int], Coroutine[Any, Any, int]]


async def call_once(port: int, version: int, request: Any, api_key: ApiKey = ApiKey.PRODUCE) -> Any:
    client = await WireClient.connect(port, "app")
    try:
        return await client.call(api_key, version, request)
    finally:
        await client.close()


async def produce_once(port: int, version: int = 9, acks: int = 1, topic: str = TOPIC) -> int:
    answer = await call_once(port, version, produce_request(topic, RECORDS, acks=acks))
    code = answer.responses[0].partition_responses[0].error_code
    assert code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), code
    return len(RECORDS)


async def produce_old(port: int) -> int:
    return await produce_once(port, version=2)


async def produce_committed(port: int) -> int:
    return await produce_once(port, acks=-1)


async def produce_to_unknown_topic(port: int) -> int:
    return await produce_once(port, topic="nowhere")


async def produce_unacknowledged(port: int) -> int:
    """Produces without acknowledgement, and waits until the broker has taken the request."""
    client = await WireClient.connect(port, "app")
    # Answered after the Produce; a broker that does not lead the partition ends the connection instead.
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        try:
            await client.send(ApiKey.PRODUCE, 9, produce_request(TOPIC, RECORDS, acks=0))
            await client.call(ApiKey.API_VERSIONS, 0, None)
        finally:
            await client.close()
    return len(RECORDS)


async def fetch_once(port: int) -> int:
    answer = await call_once(port, 12, fetch_request(TOPIC), ApiKey.FETCH)
    return sum(len(partition.records or b"") for response in answer.responses for partition in response.partitions)


STEPS: Final[dict[str, Step]] = {
    "produce": produce_once,
    "produce, acks=all": produce_committed,
    "produce, acks=0": produce_unacknowledged,
    "produce, old version": produce_old,
    "produce, unknown topic": produce_to_unknown_topic,
    "fetch": fetch_once,
}


async def repeat_step(step: Step, port: int, seconds: float, connections: int = CONNECTIONS) -> int:
    """Runs a step repeatedly; returns the bytes moved by requests that were answered in time."""
    moved_bytes, ends_s = 0, time.monotonic() + seconds

    async def run() -> None:
        nonlocal moved_bytes
        while time.monotonic() < ends_s:
            size_bytes = await step(port)
            if time.monotonic() < ends_s:
                moved_bytes += size_bytes

    tasks = [asyncio.create_task(run()) for _ in range(connections)]
    finished, pending = await asyncio.wait(tasks, timeout=seconds)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    for task in finished:
        task.result()
    return moved_bytes


@pytest.mark.parametrize("name", STEPS)
async def test_a_new_connection_for_each_request_moves_no_more_than_was_bought(
    cluster: EngineCluster, neighbour_port: int, name: str
) -> None:
    instance = await asyncio.to_thread(with_topic, cluster, f"ins-{sorted(STEPS).index(name):08d}")
    port = next(iter(instance.document.ports.values()))
    for _ in range(8):
        await call_once(port, 9, produce_request(TOPIC, batch(bytes(900_000))))
    await asyncio.to_thread(cluster.update_instance, instance, produce_bps=BOUGHT_BPS, consume_bps=BOUGHT_BPS)
    neighbour, stop = Neighbour(neighbour_port, TOPIC), asyncio.Event()
    producing = asyncio.create_task(neighbour.produce_until(stop))
    moved = await repeat_step(STEPS[name], port, ATTACK_S)
    stop.set()
    await producing
    print(
        f"{name}: {moved / MB / ATTACK_S:.2f} MB/s of {BOUGHT_BPS / MB:g} bought, neighbour p99"
        f" {neighbour.percentile_ms(99):.1f} ms"
    )
    assert LEAST_BYTES <= moved <= ALLOWED_BYTES
    assert neighbour.errors == 0
    assert neighbour.percentile_ms(99) <= NEIGHBOUR_P99_MS_MAX
