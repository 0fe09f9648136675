"""Nodes in ZooKeeper: Kafka's paths and contents, and the transactions that write them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

import pytest

from brokers.contract import paths
from brokers.contract.documents import PartitionStateDocument
from brokers.engine.cluster import errors
from brokers.engine.cluster.controller_epoch import StateWrite
from brokers.engine.cluster.quota_image import QuotaEntity
from brokers.engine.cluster.tree import Check, Create, Operation, Set
from tests.testkit.cluster import CLUSTER_ID, Member
from tests.testkit.fake_store import FakeEnsemble, FakeTree

OURS = "ins-aaaaaaaa"
TOPIC = f"{OURS}.orders"


class Recorded(FakeEnsemble):
    """Records every transaction that succeeded."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Sequence[Operation]] = []

    def commit(self, session: FakeTree, operations: Sequence[Operation]) -> list[str]:
        answer = super().commit(session, operations)
        self.kept.append(tuple(operations))
        return answer

    def states(self) -> list[tuple[Sequence[Operation], str, PartitionStateDocument]]:
        """Yields every partition state that was written: its transaction, its path, the state."""
        return [
            (operations, operation.path, PartitionStateDocument.from_json(operation.data))
            for operations in self.kept
            for operation in operations
            if isinstance(operation, Create | Set) and operation.path.endswith("/state")
        ]


@pytest.fixture
async def ensemble() -> Recorded:
    return Recorded()


@pytest.fixture
async def members(ensemble: Recorded) -> AsyncIterator[list[Member]]:
    """Returns three brokers, of which the first two may be controllers, and creates a topic with three replicas."""
    result = [Member(ensemble.connect(), broker_id=id, controls=id < 3) for id in (1, 2, 3)]
    for member in result:
        await member.start()
    for member in result:
        await member.until(lambda image: len(image.brokers) == 3)
    await result[0].publish_instance(OURS, [1, 2, 3])
    await result[0].create_topic(OURS, "orders", partitions=4, replication_factor=3)
    yield result
    for member in result:
        await member.stop()


def body(ensemble: FakeEnsemble, path: str) -> object:
    return json.loads(ensemble.nodes[path].data)


async def test_nodes_have_kafkas_names_and_contents(members: list[Member], ensemble: Recorded) -> None:
    """ZK-2, ZK-5, ZK-9, ZK-11, ZK-14, ZK-20, ZK-31."""
    store = members[0].store
    await store.next_producer_id_block(2)
    await store.alter_client_quotas(
        members[0].image,
        instance_id=OURS,
        entity=QuotaEntity(True, "alice", True, None),
        changes={"producer_byte_rate": 1_000.0},
    )
    assert set(paths.PERSISTENT_AT_START) <= ensemble.nodes.keys()
    assert body(ensemble, "/cluster/id") == {"version": "1", "id": CLUSTER_ID}
    assert ensemble.nodes["/controller_epoch"].data == b"1"
    assert ensemble.nodes[f"/brokers/topics/{TOPIC}/partitions/3"].data in (b"", b"null")
    quota = body(ensemble, f"/config/users/{OURS}.alice/clients/{OURS}.<default>")
    assert quota == {"version": 1, "config": {"producer_byte_rate": "1000"}}
    block = body(ensemble, "/latest_producer_id_block")
    assert block == {"version": 1, "broker": 2, "block_start": "0", "block_end": "999"}
    assert ensemble.nodes[f"/ckafka/instances/{OURS}"].owner == 0
    # Requests that others send to a controller through the tree go to any broker through Kafka (decisions 20 and 64).
    for nobodys in ("/admin/reassign_partitions", "/admin/preferred_replica_election", "/delegation_token"):
        assert nobodys not in ensemble.nodes
    for child in ensemble.nodes:
        assert not child.startswith(("/isr_change_notification/", "/log_dir_event_notification/"))


async def test_no_broker_id_is_taken_from_the_sequence(members: list[Member], ensemble: Recorded) -> None:
    """ZK-7: the operator assigns broker ids (decision 20), so the sequence exists and does not change."""
    late = Member(ensemble.connect(), broker_id=1_001, controls=False)
    await late.start()
    await members[0].until(lambda image: 1_001 in image.brokers)

    sequence = ensemble.nodes["/brokers/seqid"]
    assert (sequence.data, sequence.version, sequence.owner) == (b"", 0, 0)
    assert set(members[0].image.brokers) == {1, 2, 3, 1_001}
    await late.stop()


async def test_a_deletion_is_an_empty_marker_until_everything_is_deleted(
    members: list[Member], ensemble: Recorded
) -> None:
    """ZK-16, CTL-16, CTL-20: no node of the topic is left afterwards."""
    await members[0].store.delete_topic(members[0].image, instance_id=OURS, name="orders")
    await members[2].until(lambda image: TOPIC not in image.topics)
    marker = paths.topic_deletion(TOPIC)
    made = [
        operation
        for operations in ensemble.kept
        for operation in operations
        if isinstance(operation, Create) and operation.path == marker
    ]
    assert [operation.data for operation in made] == [b""]
    assert not [path for path in ensemble.nodes if TOPIC in path]


async def test_every_state_write_of_a_controller_checks_its_epoch_and_has_the_next_leader_epoch(
    members: list[Member], ensemble: Recorded
) -> None:
    """ZK-4, REP-2: also those of the next controller, which continues the epochs."""
    first, second, third = members
    held_epoch = first.image.controller_id
    ensemble.expire(third.tree)  # type: ignore[arg-type]
    await first.until(lambda image: all(set(p.isr) == {1, 2} for p in image.topics[TOPIC].partitions))
    await first.stop()
    await second.until(lambda image: image.controller_id == 2 != held_epoch)
    await second.until(lambda image: all(p.leader == 2 for p in image.topics[TOPIC].partitions))

    epochs: dict[str, int] = {}
    for operations, path, state in ensemble.states():
        guard = operations[0]
        assert isinstance(guard, Check) and guard.path == paths.CONTROLLER_EPOCH
        assert guard.version == state.controller_epoch, "Kafka's epoch and the node's version count the same terms"
        assert state.leader_epoch == epochs.get(path, -1) + 1
        epochs[path] = state.leader_epoch
    assert {state.controller_epoch for _, _, state in ensemble.states()} == {1, 2}


async def test_a_deposed_controller_changes_nothing(members: list[Member], ensemble: Recorded) -> None:
    """ZK-4, CTL-4: regardless of its decisions."""
    store, image = members[0].store, members[0].image
    old = await store.elect(1)
    assert old is not None
    await members[0].stop()
    await members[1].until(lambda image: image.controller_id == 2)
    topic = members[1].image.topics[TOPIC]
    partition = topic.partitions[0]
    assert partition.version is not None
    state = PartitionStateDocument(
        leader=3, leader_epoch=partition.leader_epoch + 1, controller_epoch=old.epoch, isr=(3,)
    )
    before = ensemble.transactions
    with pytest.raises(errors.ControllerMoved):
        await members[2].store.write_states(old, [StateWrite(TOPIC, 0, state, partition.version)])
    with pytest.raises(errors.ControllerMoved):
        await members[2].store.finish_deletion(old, image.topics[TOPIC])
    assert ensemble.transactions == before


async def test_an_isr_write_keeps_the_leader_epoch_and_fails_on_another_version(
    members: list[Member], ensemble: Recorded
) -> None:
    """REP-2, REP-24, REP-25: only the version of the node increases."""
    partition = members[0].image.topics[TOPIC].partitions[0]
    assert partition.version is not None
    smaller = PartitionStateDocument(
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        controller_epoch=partition.controller_epoch,
        isr=partition.isr[:2],
    )
    write = StateWrite(TOPIC, 0, smaller, partition.version)
    assert await members[2].store.write_isrs([write]) == []
    assert await members[2].store.write_isrs([write]) == [write]
    image = await members[1].until(lambda image: len(image.topics[TOPIC].partitions[0].isr) == 2)
    shown = image.topics[TOPIC].partitions[0]
    assert (shown.leader_epoch, shown.version) == (partition.leader_epoch, partition.version + 1)
