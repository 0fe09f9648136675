"""Three brokers in the test's event loop, and follower fetches sent by the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brokers.contract.process import CLUSTER_USER
from brokers.engine.cluster.image import BrokerInfo
from brokers.engine.partitions.partition import Partition
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from brokers.engine.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.testkit.fake_store import FakeEnsemble
from tests.testkit.in_process import InProcessBroker
from tests.testkit.wire import WireClient

VERSION = 17
IDS = (1, 2, 3)


@dataclass
class Trio:
    """Three brokers, and a connection of the cluster itself to each internal port."""

    brokers: dict[int, InProcessBroker]
    clients: dict[int, WireClient]

    async def topic(self, name: str = "orders", *, replicas: int = 3, **config: str) -> bytes:
        """Creates a topic of one partition, and returns its id when every replica is there."""
        topic = CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=replicas,
            assignments=[],
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()],
        )
        answer = await self.clients[1].call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic]))
        assert answer.topics[0].error_code == 0, answer
        await self.until(lambda: sum(self.held(name, id) is not None for id in IDS) == replicas)
        return bytes(answer.topics[0].topic_id)

    def held(self, name: str, broker: int) -> Partition | None:
        return self.brokers[broker].broker.table.get(name, 0)

    def replica(self, name: str, broker: int) -> Partition:
        result = self.held(name, broker)
        assert result is not None
        return result

    def leader(self, name: str = "orders") -> int:
        return self.brokers[1].broker.current.image.topics[name].partitions[0].leader

    def followers(self, name: str = "orders") -> list[int]:
        return [id for id in IDS if id != self.leader(name)]

    async def until(self, holds: Any) -> None:
        await self.brokers[1].until(holds)

    def epoch(self, broker: int) -> int:
        """Returns the epoch of a broker's registration."""
        return self.brokers[broker].broker.session.broker_epoch

    async def ask(self, client: WireClient, topic_id: bytes, offset: int = 0, *, replica: int, **more: Any) -> Any:
        """Returns the response to a follower's fetch sent by the test."""
        if "replica_epoch" not in more:
            more["replica_epoch"] = self.epoch(replica)
        return await client.call(ApiKey.FETCH, VERSION, follower_fetch(topic_id, offset, replica=replica, **more))

    def stop_following(self, broker: int) -> None:
        stop_following(self.brokers[broker])


class Nobody:
    """Follows no leader, whatever the metadata says."""

    def follow(self, partition: Partition) -> None: ...
    def unfollow(self, topic: str, index: int) -> None: ...
    def on_brokers(self, brokers: Mapping[int, BrokerInfo]) -> None: ...


def stop_following(broker: InProcessBroker) -> None:
    """Keeps a broker alive but stops all its fetches."""
    replication = broker.broker.replication
    replication.fetchers.close()
    replication.roles._fetchers = Nobody()


@asynccontextmanager
async def running_trio(
    directory: Path, racks: Mapping[int, str] | None = None, **overrides: str
) -> AsyncIterator[Trio]:
    """Starts the brokers. `racks` are those of the brokers. `overrides` are broker settings, with _ for dots."""
    ensemble = FakeEnsemble()
    settings = {"replica.lag.time.max.ms": "600"} | {key.replace("_", "."): value for key, value in overrides.items()}
    async with AsyncExitStack() as stack:
        brokers = {}
        for id in IDS:
            rack = None if racks is None else racks[id]
            made = InProcessBroker(directory / str(id), broker_id=id, ensemble=ensemble, overrides=settings, rack=rack)
            brokers[id] = await stack.enter_async_context(made)
        await brokers[1].until(
            lambda: all(len(broker.broker.current.image.brokers) == 3 for broker in brokers.values())
        )
        yield Trio(brokers, {id: await broker.internal_client(CLUSTER_USER) for id, broker in brokers.items()})


def follower_fetch(
    topic_id: bytes,
    offset: int = 0,
    *,
    replica: int,
    replica_epoch: int = -1,
    leader_epoch: int = 0,
    last_fetched_epoch: int = -1,
    session_id: int = 0,
    session_epoch: int = 0,
    max_wait_ms: int = 0,
    lines: bool = True,
    forgotten: bool = False,
) -> FetchRequest:
    line = FetchPartition(
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_fetched_epoch,
        log_start_offset=0,
        partition_max_bytes=1_000_000,
    )
    return FetchRequest(
        replica_state=ReplicaState(replica_id=replica, replica_epoch=replica_epoch),
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=10_000_000,
        isolation_level=0,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic_id=topic_id, partitions=[line])] if lines else [],
        forgotten_topics_data=[],
        rack_id="",
    )
