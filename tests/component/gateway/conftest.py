"""A gateway in front of two of Penstock's brokers and, where its jars are, of an Apache Kafka; with three instances."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from brokers.engine import lifecycle
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from brokers.engine.upstream import settings
from brokers.engine.upstream.gateway import Gateway
from tests.testkit import records
from tests.testkit.gateway import (
    PASSWORD,
    UPSTREAM_INSTANCE,
    GatewayProcess,
    Upstream,
    apache_kafka_upstream,
    gateway_instance,
    penstock_upstream,
)
from tests.testkit.in_process import InProcessBroker
from tests.testkit.wire import HOST, WireClient

FIRST, SECOND, OPEN = "ins-aaaaaaaa", "ins-bbbbbbbb", "ins-cccccccc"
# Instances of a gateway in the loop of the test.
HOSTILE, NEIGHBOUR = FIRST, SECOND
TOPIC = "orders"


@pytest.fixture(scope="package", params=["penstock", "apache-kafka"])
def upstream(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upstream]:
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "penstock":
        with penstock_upstream(request.getfixturevalue("zookeeper_address"), directory / "brokers") as running:
            yield running
    else:
        with apache_kafka_upstream(directory / "kafka") as running:
            yield running


@pytest.fixture(scope="package")
def gateway(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with two closed instances, in which everything has the same names, and an open one without users."""
    users = [
        {"name": "app", "password": PASSWORD, "superuser": True},
        {"name": "reader", "password": PASSWORD},
    ]
    acls = [
        {"resource_type": "topic", "name": "orders", "user": "reader", "operation": "read"},
        {"resource_type": "group", "name": "readers", "user": "reader", "operation": "read"},
    ]
    instances = [
        gateway_instance(FIRST, upstream.nodes, users=users, acls=acls, partitions_max=60),
        gateway_instance(SECOND, upstream.nodes, users=users, acls=acls),
        gateway_instance(OPEN, upstream.nodes, users=[], open=True, security="plaintext"),
    ]
    with GatewayProcess(tmp_path_factory.mktemp("gateway"), upstream.bootstrap, instances) as running:
        yield running


@dataclass
class Running:
    gateway: Gateway
    stop: lifecycle.Stop
    ports: dict[str, int]

    @property
    def faults(self) -> int:
        return sum(node.listeners.counters.faults for node in self.gateway.nodes)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with InProcessBroker(tmp_path / "broker") as broker:
        upstream_port = await broker.create_instance(UPSTREAM_INSTANCE)
        instances = [
            gateway_instance(instance_id, [1], users=[], open=True, security="plaintext")
            for instance_id in (HOSTILE, NEIGHBOUR)
        ]
        file = tmp_path / "gateway.json"
        file.touch(mode=0o600)
        upstream = {"bootstrap_servers": f"{HOST}:{upstream_port}"}
        file.write_text(json.dumps({"upstream": upstream, "instances": instances}))
        stop = lifecycle.Stop()
        gateway = Gateway(settings.read(file), stop, connections_max=1_000)
        await gateway.start()
        ports = {instance["id"]: instance["nodes"][0]["port"] for instance in instances}
        yield Running(gateway, stop, ports)
        await gateway.stop()
        assert stop.fault is None


WRITTEN_S_MAX = 30
RETRIABLE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER,
}  # fmt: skip


async def write_and_read(port: int, value: bytes) -> None:
    """Creates the topic if it is not there, writes a record, and reads it."""
    client = await WireClient.connect(port)
    try:
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        await client.call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        async with asyncio.timeout(WRITTEN_S_MAX):
            # A request before this may have deleted the topic: its leader may not lead the next one yet.
            while (result := await records.produce(client, TOPIC, records.batch_of_now(value))).error_code:
                assert result.error_code in RETRIABLE, result
                await asyncio.sleep(0.02)
        fetched = await client.call(ApiKey.FETCH, 12, records.fetch_request(TOPIC, result.base_offset))
        assert records.values(fetched.responses[0].partitions[0].records) == [value]
    finally:
        await client.close()
