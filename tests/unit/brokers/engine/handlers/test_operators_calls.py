"""OffsetForLeaderEpoch for tenants, ElectLeaders and reassignments for the cluster's own identity: their rights, and
their results on two brokers (LOG-31, REP-31…33).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from brokers.contract import paths
from brokers.contract.documents import InstanceTopicDocument, change_to_json
from brokers.contract.process import CLUSTER_USER
from brokers.engine.cluster.tree import Create
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.list_offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from brokers.engine.protocol.messages.reassignment import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from brokers.engine.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from tests.testkit.in_process import InProcessBroker
from tests.testkit.records import batch, produce
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.conftest import MINE, House

TOPIC = "moved"


async def end_of_epoch(client: WireClient, name: str, epoch: int = 0, index: int = 0, version: int = 4) -> Any:
    line = OffsetForLeaderPartition(partition=index, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=name, partitions=[line])])
    return (await client.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request)).topics[0].partitions[0]


def election(*names: str, kind: int = 0, timeout_ms: int = 10_000) -> ElectLeadersRequest:
    asked = [ElectLeadersTopicPartitions(topic=name, partitions=[0]) for name in names]
    return ElectLeadersRequest(election_type=kind, topic_partitions=asked or None, timeout_ms=timeout_ms)


def move(name: str, replicas: list[int] | None, timeout_ms: int = 10_000) -> AlterPartitionReassignmentsRequest:
    line = ReassignablePartition(partition_index=0, replicas=replicas)
    return AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms, topics=[ReassignableTopic(name=name, partitions=[line])]
    )


def listing(*names: str) -> ListPartitionReassignmentsRequest:
    asked = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 9]) for name in names]
    return ListPartitionReassignmentsRequest(topics=asked or None)


# -- answers to tenants ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
async def test_a_tenant_learns_where_an_epoch_ends(house: House, version: int) -> None:
    await house.topic()
    await produce(house.mine, "orders", batch(b"a", b"b"))
    line = await end_of_epoch(house.mine, "orders", version=version)
    assert (line.error_code, line.end_offset) == (0, 2)
    assert line.leader_epoch == (0 if version else -1)


async def test_epochs_of_another_instance_are_as_unknown_as_those_of_no_topic(house: House) -> None:
    """CKA-10."""
    await house.topic()
    foreign = await end_of_epoch(house.theirs, "orders")
    none = await end_of_epoch(house.theirs, "no-topic")
    assert foreign == none
    assert foreign.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_client_that_may_not_consume_does_not_learn_of_epochs_either(house: House) -> None:
    """CKA-11."""
    await house.topic()
    document = InstanceTopicDocument(name="orders", consume_ips=("10.0.0.1",))
    change = change_to_json([f"topics/{MINE}.orders"])
    tree = house.broker.tree
    if await tree.get(paths.instance_topics(MINE)) is None:
        await tree.commit([Create(paths.instance_topics(MINE))])
    written = Create(paths.instance_topic(MINE, f"{MINE}.orders"), document.to_json())
    await tree.commit([written, Create(paths.CHANGE_PREFIX, change, sequence=True)])
    current = house.broker.broker.current
    await house.broker.until(lambda: current.image.instances[MINE].topics[b"orders"].consume_ips)
    line = await end_of_epoch(house.mine, "orders")
    assert (line.error_code, line.end_offset) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)


@pytest.mark.parametrize(
    ("api_key", "version", "request_message"),
    [
        (ApiKey.ELECT_LEADERS, 2, election("orders")),
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, move("orders", [1])),
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, listing()),
    ],
    ids=["elect", "move", "list"],
)
async def test_where_replicas_are_is_not_the_tenants_to_ask(
    house: House, api_key: ApiKey, version: int, request_message: Any
) -> None:
    """The tenant port does not know the call; the owner is rejected on the internal listener."""
    await house.topic()
    owner = await house.broker.internal_client(MINE)
    answer = await owner.call(api_key, version, request_message)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    await house.mine.send(api_key, version, request_message)
    assert await house.mine.is_closed()


# -- two brokers -------------------------------------------------------------------------------------------------------


class Pair:
    """Brokers 1 and 2, and a connection of the cluster's own identity to each."""

    def __init__(self, first: InProcessBroker, second: InProcessBroker) -> None:
        self.brokers = {1: first, 2: second}
        self.clients: dict[int, WireClient] = {}

    async def create(self, name: str, replicas: list[int]) -> None:
        line = CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[line])
        answer = await self.clients[1].call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic]))
        assert answer.topics[0].error_code == 0, answer

    def partition(self, name: str, seen_by: int = 1) -> Any:
        return self.brokers[seen_by].broker.current.image.topics[name].partitions[0]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    overrides = {"auto.leader.rebalance.enable": "false"}
    async with InProcessBroker(tmp_path / "1", broker_id=1, overrides=overrides) as first:
        second = InProcessBroker(tmp_path / "2", broker_id=2, ensemble=first.ensemble, overrides=overrides)
        async with second:
            pair = Pair(first, second)
            await first.until(lambda: len(first.broker.current.image.brokers) == 2)
            for id, broker in pair.brokers.items():
                pair.clients[id] = await broker.internal_client(CLUSTER_USER)
            yield pair


async def test_a_leader_is_elected_by_whichever_broker_is_asked(pair: Pair) -> None:
    await pair.create(TOPIC, [1, 2])
    await pair.clients[2].call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, move(TOPIC, [2, 1]))
    assert pair.partition(TOPIC, seen_by=2).leader == 1

    answer = await pair.clients[2].call(ApiKey.ELECT_LEADERS, 2, election(TOPIC))

    assert answer.replica_election_results[0].partition_result[0].error_code == 0
    assert pair.partition(TOPIC, seen_by=2).leader == 2
    await pair.brokers[2].until(lambda: pair.brokers[2].broker.table.get(TOPIC, 0).is_leader)


async def test_an_election_that_is_not_waited_for_is_answered_as_unfinished(pair: Pair) -> None:
    await pair.create(TOPIC, [1, 2])
    await pair.clients[1].call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, move(TOPIC, [2, 1]))
    answer = await pair.clients[1].call(ApiKey.ELECT_LEADERS, 2, election(TOPIC, timeout_ms=0))
    code = answer.replica_election_results[0].partition_result[0].error_code
    assert code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
    await pair.brokers[1].until(lambda: pair.partition(TOPIC).leader == 2)


async def test_an_election_for_all_topics_lists_only_those_that_changed(pair: Pair) -> None:
    await pair.create(TOPIC, [1, 2])
    await pair.create("stays", [1, 2])
    await pair.clients[1].call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, move(TOPIC, [2, 1]))
    answer = await pair.clients[1].call(ApiKey.ELECT_LEADERS, 2, election())
    assert [result.topic for result in answer.replica_election_results] == [TOPIC]


async def test_a_move_brings_the_records_and_takes_the_old_log_away(pair: Pair) -> None:
    await pair.create(TOPIC, [1])
    await produce(pair.clients[1], TOPIC, batch(b"a", b"b"))

    answer = await pair.clients[2].call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, move(TOPIC, [2]))

    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
    await pair.brokers[2].until(lambda: pair.partition(TOPIC, seen_by=2).replicas == (2,))
    await pair.brokers[2].until(lambda: pair.brokers[2].broker.table.get(TOPIC, 0).is_leader)
    assert pair.brokers[2].broker.table.get(TOPIC, 0).high_watermark == 2
    await pair.brokers[1].until(lambda: pair.brokers[1].broker.table.get(TOPIC, 0) is None)
    listed = await pair.clients[2].call(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, listing())
    assert listed.topics == []


async def test_the_listing_names_only_what_is_asked_for_and_moves(pair: Pair) -> None:
    """Without a controller the move does not end."""
    await pair.create(TOPIC, [1])
    await pair.create("stays", [1])
    for broker in pair.brokers.values():
        await broker.broker.controller.stop()
    await pair.clients[1].call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, move(TOPIC, [2]))

    listed = await pair.clients[1].call(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, listing(TOPIC, "stays", "none"))

    (topic,) = listed.topics
    (line,) = topic.partitions
    assert (topic.name, line.partition_index) == (TOPIC, 0)
    assert (line.replicas, line.adding_replicas, line.removing_replicas) == ([2, 1], [2], [1])


async def test_a_topic_deleted_while_it_moves_is_gone_from_both(pair: Pair) -> None:
    await pair.create(TOPIC, [1])
    await pair.clients[1].call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, move(TOPIC, [2]))
    request = DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=10_000)
    assert (await pair.clients[1].call(ApiKey.DELETE_TOPICS, 5, request)).responses[0].error_code == 0
    for broker in pair.brokers.values():
        await broker.until(lambda broker=broker: broker.broker.table.get(TOPIC, 0) is None)
