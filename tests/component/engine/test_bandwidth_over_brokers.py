"""Sharing of a limit over three real brokers: shares follow demand, fall back when the flow master dies, and recover; a
client quota applies to all brokers together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from brokers.engine.protocol.errors import ErrorCode
from tests.testkit.engine import BrokerProcess, EngineCluster, TestInstance, eventually
from tests.testkit.records import batch, produce
from tests.testkit.wire import WireClient

MB = 1_000_000
BOUGHT_BPS = 20 * MB
STATIC_BPS = BOUGHT_BPS // 3
BATCH = batch(b"x" * 200_000)
CONNECTIONS = 4
SESSION_TIMEOUT_MS = 3_000
TIMEOUT_S = 30
# A policy may go back to the static shares slowly.
REST_S = 60
QUOTA_BPS = 3 * MB
# One partition on each broker, and a second replica for the time when a broker is down.
ASSIGNMENT = [[1, 2], [2, 3], [3, 1]]


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    directory: Path = tmp_path_factory.mktemp("flow")
    with EngineCluster(zookeeper_address, directory, size=3, session_timeout_ms=SESSION_TIMEOUT_MS) as running:
        yield running


def instance_with_topic(cluster: EngineCluster, id: str, bought_bps: int = BOUGHT_BPS) -> TestInstance:
    instance = cluster.create_instance(id, produce_bps=bought_bps, consume_bps=bought_bps)
    admin = AdminClient({"bootstrap.servers": instance.bootstrap, "log_level": 0})
    topic = NewTopic("hot", len(ASSIGNMENT), replica_assignment=ASSIGNMENT)
    admin.create_topics([topic])["hot"].result(TIMEOUT_S)
    eventually(
        lambda: [bandwidth(broker, instance)["produce"]["leaders"] for broker in cluster.brokers] == [1, 1, 1],
        "each broker leads a partition",
    )
    return instance


def bandwidth(broker: BrokerProcess, instance: TestInstance) -> dict[str, Any]:
    result = broker.admin(f"/v1/instances/{instance.id}/bandwidth")
    assert isinstance(result, dict)
    return result


def shares(cluster: EngineCluster, instance: TestInstance) -> list[int]:
    return [bandwidth(broker, instance)["produce"]["share_bps"] for broker in cluster.brokers if is_alive(broker)]


def is_alive(broker: BrokerProcess) -> bool:
    return broker.process is not None and broker.process.poll() is None


class Flood:
    """Produces to partitions over connections that send as soon as they are answered; counts accepted bytes."""

    def __init__(self) -> None:
        self.accepted_bytes = 0
        self.stopped = False

    async def send(self, port: int, partition: int, client_id: str) -> None:
        client = await WireClient.connect(port, client_id)
        try:
            while not self.stopped:
                answer = await produce(client, "hot", BATCH, partition=partition)
                assert answer.error_code in (0, ErrorCode.REQUEST_TIMED_OUT), answer
                self.accepted_bytes += 0 if answer.error_code else len(BATCH)
        finally:
            await client.close()

    async def rate_bps(self, seconds: float) -> float:
        before, began_s = self.accepted_bytes, time.monotonic()
        await asyncio.sleep(seconds)
        return (self.accepted_bytes - before) / (time.monotonic() - began_s)


@asynccontextmanager
async def flooding(instance: TestInstance, *partitions: int, client_id: str = "etl") -> AsyncIterator[Flood]:
    """Floods partitions that are each led by the next broker."""
    flood = Flood()
    tasks = [
        asyncio.create_task(flood.send(instance.document.ports[partition + 1], partition, client_id))
        for partition in partitions
        for _ in range(CONNECTIONS)
    ]
    try:
        yield flood
    finally:
        flood.stopped = True
        await asyncio.gather(*tasks)


async def until(holds: Callable[[], Any], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Waits for a condition during the flood."""
    await asyncio.to_thread(eventually, holds, what, timeout_s)


async def test_one_hot_partition_gets_nearly_all_that_was_bought(cluster: EngineCluster) -> None:
    instance = instance_with_topic(cluster, "ins-aaaaaaaa")
    assert shares(cluster, instance) == [STATIC_BPS + 1, STATIC_BPS + 1, STATIC_BPS]
    async with flooding(instance, 1) as flood:
        await until(lambda: shares(cluster, instance)[1] >= 0.92 * BOUGHT_BPS, "its broker has nearly all")
        assert sum(shares(cluster, instance)) <= BOUGHT_BPS
        shown = bandwidth(cluster.brokers[1], instance)
        assert (shown["policy"], shown["reason"]) == ("adaptive", "follows_demand")
        assert shown["produce"]["wanted_bps"] >= shown["produce"]["admitted_bps"]
        assert shown["flow_master"]["broker_id"] in (1, 2, 3)
        # Slow machines admit less than they may.
        assert STATIC_BPS * 1.5 <= await flood.rate_bps(5) <= 1.05 * BOUGHT_BPS
    await until(
        lambda: sorted(shares(cluster, instance)) == [STATIC_BPS, STATIC_BPS + 1, STATIC_BPS + 1],
        "all are static when nobody wants anything",
        REST_S,
    )


async def test_a_client_quota_holds_over_all_brokers_together(cluster: EngineCluster) -> None:
    instance = instance_with_topic(cluster, "ins-bbbbbbbb", 100 * MB)
    limits = {"producer_byte_rate": str(QUOTA_BPS)}
    await asyncio.to_thread(cluster.set_quota, instance.id, limits, user="ANONYMOUS", client_id="etl")
    async with flooding(instance, 0, 1, 2) as flood:
        await flood.rate_bps(2)
        assert await flood.rate_bps(6) <= 1.2 * QUOTA_BPS, "not three times as much"
    async with flooding(instance, 0) as flood:
        await until(
            lambda: limit_of_client(cluster.brokers[0], instance) >= 0.85 * QUOTA_BPS,
            "one broker has nearly all of it",
        )
        assert 0.7 * QUOTA_BPS <= await flood.rate_bps(6) <= 1.2 * QUOTA_BPS


def limit_of_client(broker: BrokerProcess, instance: TestInstance) -> float:
    entries = broker.admin(f"/v1/instances/{instance.id}/throttles")["entries"]
    return float(next((entry["limit_bytes_per_s"] for entry in entries if entry["client_id"] == "etl"), 0))


async def test_without_a_flow_master_shares_are_static_or_less_and_come_back_by_themselves(
    cluster: EngineCluster,
) -> None:
    instance = instance_with_topic(cluster, "ins-cccccccc")
    master_id = cluster.brokers[0].admin("/v1/status")["flow_master"]["broker_id"]
    master = cluster.brokers[master_id - 1]
    hot = next(partition for partition in range(3) if partition + 1 != master_id)
    broker = cluster.brokers[hot]
    async with flooding(instance, hot):
        await until(
            lambda: bandwidth(broker, instance)["produce"]["share_bps"] >= 0.92 * BOUGHT_BPS,
            "its broker has nearly all",
        )
        master.kill()
        await until(
            lambda: bandwidth(broker, instance)["produce"]["share_bps"] <= 0.7 * BOUGHT_BPS,
            "it has no more than its static share", timeout_s=5
        )  # fmt: skip
        # Brokers see that the leaders are others some milliseconds apart.
        await until(lambda: sum(shares(cluster, instance)) <= BOUGHT_BPS, "together they have what was bought", 5)
        await until(
            lambda: bandwidth(broker, instance)["produce"]["share_bps"] >= 0.85 * BOUGHT_BPS,
            "another flow master gives it nearly all"
        )  # fmt: skip
        assert bandwidth(broker, instance)["flow_master"]["broker_id"] != master_id
    master.start()
    master.wait_until_ready()
