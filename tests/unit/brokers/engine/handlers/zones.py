"""An instance on three brokers in three zones, in the test's event loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.testkit.ports import unused_port
from tests.testkit.wire import HOST, WireClient
from tests.unit.brokers.engine.handlers.trio import IDS, Trio

ZONES = {1: "east", 2: "west", 3: "north"}
MINE = "ins-aaaaaaaa"
TOPIC = "orders"


@dataclass
class Zones:
    """An instance on three brokers. `at` has a connection of one of its clients to each."""

    trio: Trio
    at: dict[int, WireClient]
    instance_id: str = MINE

    async def topic(self, *replicas: int, name: str = TOPIC, partitions: int = 1, **config: str) -> bytes:
        """Creates a topic whose partitions the first of `replicas` leads."""
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas)) for index in range(partitions)
        ]
        configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()]
        topic = CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=configs
        )
        answer = await self.at[1].call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic]))
        assert answer.topics[0].error_code == 0, answer
        for index in range(partitions):
            await self._replicated(replicas, name, index)
        followers = [self.services(id).storage for id in replicas[1:]]
        await self.trio.until(lambda: all(storage.reaches_leader(replicas[0]) for storage in followers))
        return bytes(answer.topics[0].topic_id)

    async def _replicated(self, replicas: tuple[int, ...], name: str, index: int) -> None:
        """Waits until the partition has its leader, and each follower has fetched from it."""

        def held() -> list[Any]:
            return [self.replica(id, name, index) for id in replicas]

        await self.trio.until(lambda: all(found is not None and found.leader == replicas[0] for found in held()))
        leadership = self.replica(replicas[0], name, index).leadership
        await self.trio.until(lambda: all(follower.end_offset >= 0 for follower in leadership.followers.values()))

    def replica(self, broker: int, name: str = TOPIC, index: int = 0) -> Any:
        return self.trio.brokers[broker].broker.table.get(f"{self.instance_id}.{name}", index)

    def services(self, broker: int) -> Any:
        return self.trio.brokers[broker].broker.services

    async def committed(self, broker: int, offset: int) -> None:
        """Waits until the replica knows that all records below `offset` are committed, and may serve them."""
        storage = self.services(broker).storage

        def is_served() -> bool:
            replica = self.replica(broker)
            in_sync = broker in replica.isr and storage.reaches_leader(replica.leader)
            return bool(in_sync and replica.high_watermark >= offset)

        await self.trio.until(is_served)


async def with_instance(trio: Trio, instance_id: str = MINE, **changes: Any) -> Zones:
    """Creates an instance that all three brokers serve."""
    ports = {id: unused_port() for id in IDS}
    endpoints = {id: f"{HOST}:{port}" for id, port in ports.items()}
    await trio.brokers[1].create_instance(instance_id, endpoints=endpoints, ports=ports, **changes)
    for broker in trio.brokers.values():
        groups = broker.broker.listeners.groups
        await trio.until(lambda groups=groups: any(group.name == instance_id for group in groups()))
    return Zones(trio, {id: await trio.brokers[id].client(port) for id, port in ports.items()}, instance_id)
