"""Thousands of fetches of one instance that wait and end together: by one append, or in one tick of the clock. Each is
served when the turn of its instance comes, and its neighbour is served meanwhile (CKA-4).
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.adversarial.hostile import TOPIC, Neighbour
from tests.adversarial.test_long_produces import WIDE
from tests.adversarial.waiting_swarm import KINDS
from tests.testkit.engine import EngineCluster

CONNECTIONS: Final = 2_000
PARTITIONS: Final = 200
ATTACK_S: Final = 3
# For a machine with other work. Served in one turn, they take more than a second.
NEIGHBOUR_MS_MAX: Final = 300.0


@pytest.fixture(scope="module")
def wide_port(hostile_port: int) -> int:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{hostile_port}"})
    for future in admin.create_topics([NewTopic(WIDE, PARTITIONS, 1)]).values():
        future.result(30)
    return hostile_port


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("leaving")])
async def test_fetches_that_end_together_leave_the_neighbour_served(
    cluster: EngineCluster, wide_port: int, neighbour_port: int, kind: str
) -> None:
    neighbour, stop = Neighbour(neighbour_port, TOPIC), asyncio.Event()
    swarm = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.adversarial.waiting_swarm", kind, str(wide_port), str(CONNECTIONS), str(ATTACK_S),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert swarm.stdout is not None
    assert json.loads(await swarm.stdout.readline())["stands"] == CONNECTIONS
    producing = asyncio.create_task(neighbour.produce_until(stop))
    results = json.loads(await swarm.stdout.readline())
    assert await swarm.wait() == 0
    stop.set()
    await producing
    turns = await asyncio.to_thread(lambda: cluster.brokers[0].admin("/v1/status")["loop_turns"])
    print(
        f"{kind}: {results}, "
        f"neighbour p50 {neighbour.percentile_ms(50):.1f} ms, p99 {neighbour.percentile_ms(99):.1f} ms,"
        f" longest {neighbour.percentile_ms(100):.1f} ms of {len(neighbour.latencies_ms)}, turns {turns}"
    )
    assert results["answers"] == results["rounds"] * CONNECTIONS, "each was answered"
    assert neighbour.errors == 0
    assert neighbour.percentile_ms(100) <= NEIGHBOUR_MS_MAX
