"""Thousands of connections of one instance: silent, half sent, unread, opened and closed at full speed, or busy with
tiny requests and long polls of a millisecond. Its neighbour is served meanwhile, and the broker's memory stays bounded
(QUO-50…52, CKA-4).
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Final

import pytest

from brokers.engine.protocol.errors import ErrorCode
from tests.adversarial.hostile import TOPIC, Neighbour
from tests.testkit import depth
from tests.testkit.engine import EngineCluster
from tests.testkit.records import batch, produce
from tests.testkit.wire import WireClient

ATTACK_S: Final = depth.number_from("PENSTOCK_ATTACK_SECONDS", short=3, long=10)
KINDS: Final = [
    ("silent", 2_000),
    ("half", 2_000),
    ("announced", 1_000),
    ("small-half", 2_000),
    ("deaf-fetch", 400),
    ("deaf-names", 400),
    ("churn", 200),
    ("empty-fetch", 24),
    ("beyond-fetch", 24),
    ("long-poll", 1_000),
    ("tiny", 1_000),
    ("tiny-fetch", 1_000),
    ("tiny-produce", 1_000),
    ("named-produce", 300),
]
# For a machine with other work; on an idle one it is below 20 ms.
NEIGHBOUR_P99_MS_MAX: Final = 300.0
RSS_GROWTH_BYTES_MAX: Final = 64 * 1024 * 1024
FILLED_BYTES: Final = 8_000_000


def rss_bytes(cluster: EngineCluster) -> int:
    return int(cluster.brokers[0].admin("/v1/status")["rss_bytes"])


async def fill(port: int) -> None:
    """Produces enough records for the largest fetch, if this broker leads the fetched partition."""
    client = await WireClient.connect(port)
    for _ in range(FILLED_BYTES // 800_000):
        code = (await produce(client, TOPIC, batch(bytes(800_000)))).error_code
        assert code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if code:
            break
    await client.close()


@pytest.mark.parametrize(("kind", "connections"), depth.day_share(KINDS, 7))
async def test_connections_of_one_instance_leave_the_neighbour_served(
    cluster: EngineCluster, hostile_port: int, neighbour_port: int, kind: str, connections: int
) -> None:
    if kind == "deaf-fetch":
        await fill(hostile_port)
    neighbour, stop = Neighbour(neighbour_port, TOPIC), asyncio.Event()
    before = await asyncio.to_thread(rss_bytes, cluster)
    producing = asyncio.create_task(neighbour.produce_until(stop))
    swarm = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.adversarial.swarm", kind, str(hostile_port), str(connections), str(ATTACK_S),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert swarm.stdout is not None
    growths = []
    open_count = json.loads(await swarm.stdout.readline())["stands"]
    reading = asyncio.create_task(swarm.stdout.readline())
    while not reading.done():
        await asyncio.wait((reading,), timeout=0.2)
        growths.append(await asyncio.to_thread(rss_bytes, cluster) - before)
    results = json.loads(await reading)
    assert await swarm.wait() == 0
    stop.set()
    await producing
    status = await asyncio.to_thread(cluster.brokers[0].admin, "/v1/status")
    print(
        f"{kind}: {open_count} connections, {results}, neighbour p50 {neighbour.percentile_ms(50):.1f} ms,"
        f" p99 {neighbour.percentile_ms(99):.1f} ms of {len(neighbour.latencies_ms)}, RSS grew by"
        f" {max(growths) / 2**20:.1f} MiB, refused {status['connections_refused']},"
        f" ended {status['connections_ended']}, longest turn {status['loop_turns']['longest_ms']} ms"
    )
    assert neighbour.errors == 0
    assert neighbour.percentile_ms(99) <= NEIGHBOUR_P99_MS_MAX
    assert max(growths) <= RSS_GROWTH_BYTES_MAX
