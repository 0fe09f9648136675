"""What a broker does by itself takes turns as well: making the topics of coordinators, loading them, opening ports.

The broker tells of its longest turns itself (`tests.testkit.measured_broker`), in time of the processor: what else runs
on the machine does not count.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.coordinators import FindCoordinatorRequest
from tests.adversarial.conftest import with_topic
from tests.testkit.engine import EngineCluster
from tests.testkit.wire import WireClient

# As a cluster has them by default; other tests make do with five.
STATE_PARTITIONS: Final = 50
GROUP, TRANSACTION = 0, 1
# Of the processor. On the loop at large the aim is 10 ms; a collection of garbage may come into any turn.
TURN_CPU_MS_MAX: Final = 15.0


@pytest.fixture
def measured(zookeeper_address: str, tmp_path: Path) -> Iterator[EngineCluster]:
    cluster = EngineCluster(
        zookeeper_address,
        tmp_path,
        overrides={
            "offsets.topic.num.partitions": str(STATE_PARTITIONS),
            "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
        },
        module=("tests.testkit.measured_broker",),
    )
    with cluster:
        yield cluster


def longest_turns(cluster: EngineCluster, since_s: float) -> list[dict[str, Any]]:
    """Of those that ended after `since_s`, by the clock on the wall."""
    file = cluster.brokers[0].settings_file.with_name("turns.json")
    turns = [turn for turn in json.loads(file.read_text()) if turn["at_s"] >= since_s]
    for turn in turns[:8]:
        print(turn)
    return turns


async def until_coordinated(port: int, key_type: int, key: str) -> None:
    client = await WireClient.connect(port)
    async with asyncio.timeout(30):
        while True:
            request = FindCoordinatorRequest(key="", key_type=key_type, coordinator_keys=[key])
            answer = await client.call(ApiKey.FIND_COORDINATOR, 4, request)
            if not answer.coordinators[0].error_code:
                break
            await asyncio.sleep(0.02)
    await client.close()


async def test_the_first_group_and_transaction_of_a_cluster_do_not_hold_the_loop(measured: EngineCluster) -> None:
    instance = with_topic(measured, "ins-aaaaaaaa")
    port = next(iter(instance.document.ports.values()))
    began_s = time.time()
    await until_coordinated(port, GROUP, "g")
    await until_coordinated(port, TRANSACTION, "t")
    await asyncio.sleep(1)
    turns = longest_turns(measured, began_s)
    assert turns[0]["cpu_ms"] <= TURN_CPU_MS_MAX
