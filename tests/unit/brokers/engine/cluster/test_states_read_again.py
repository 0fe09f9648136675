"""A change names the states that were written; other states of a topic are kept from the image (ZK-32, decision 20)."""

from __future__ import annotations

from collections.abc import Sequence

from brokers.contract import paths
from brokers.contract.documents import PartitionStateDocument, TopicDocument
from brokers.engine.cluster import changes
from brokers.engine.cluster.changes import STATES_NAMED_MAX
from brokers.engine.cluster.controller_epoch import StateWrite
from brokers.engine.cluster.tree import Node, Operation, Set
from tests.testkit.cluster import Member, run_pending_callbacks
from tests.testkit.fake_store import FakeEnsemble


async def test_states_written_while_a_topic_was_unreadable_are_read_later() -> None:
    """Its image did not change meanwhile, so it lacks more than the states that a change names."""
    ensemble = FakeEnsemble()
    member = Member(ensemble.connect(), broker_id=1)
    await member.start()
    topic = await member.create_topic(None, "orders", partitions=2)
    good = await member.tree.get(paths.topic_config("orders"))
    assert good is not None
    await member.crash()

    async def write(index: int, *also: Operation) -> None:
        document = PartitionStateDocument(leader=1, leader_epoch=7, controller_epoch=1, isr=(1,))
        written = StateWrite("orders", index, document, topic.partitions[index].version)
        await member.tree.commit([*also, *written.operations(), changes.states_announcement([written])])
        await run_pending_callbacks()

    await write(0, Set(paths.topic_config("orders"), b"{", None))
    assert member.image.topics["orders"].partitions[0].leader_epoch == 0
    await write(1, Set(paths.topic_config("orders"), good.data, None))
    assert [partition.leader_epoch for partition in member.image.topics["orders"].partitions] == [7, 7]
    await member.stop()


async def test_an_invalid_topic_id_does_not_stop_a_read_of_states() -> None:
    """QUO-75."""
    member = Member(FakeEnsemble().connect(), broker_id=1)
    await member.start()
    before = await member.create_topic(None, "orders", partitions=1)
    good = await member.tree.get(paths.topic("orders"))
    assert good is not None
    await member.crash()
    document = PartitionStateDocument(leader=1, leader_epoch=7, controller_epoch=1, isr=(1,))
    written = StateWrite("orders", 0, document, before.partitions[0].version)
    body = TopicDocument(topic_id="?", assignment={0: (1,)}).to_json()
    await member.tree.commit(
        [Set(paths.topic("orders"), body, None), *written.operations(), changes.states_announcement([written])]
    )
    await run_pending_callbacks()
    assert member.image.topics["orders"] is before
    await member.tree.commit([Set(paths.topic("orders"), good.data, None), changes.states_announcement([], ["orders"])])
    await run_pending_callbacks()
    assert member.image.topics["orders"].partitions[0].leader_epoch == 7
    await member.stop()


async def test_only_written_states_of_a_large_topic_are_read() -> None:
    ensemble = FakeEnsemble()
    member = Member(ensemble.connect(), broker_id=1)
    await member.start()
    topic = await member.create_topic(None, "orders", partitions=STATES_NAMED_MAX + 1)
    await member.crash()
    requested: list[str] = []
    get_many = member.tree.get_many

    async def noted(wanted: Sequence[str]) -> list[Node | None]:
        requested.extend(path for path in wanted if path.endswith("/state"))
        return await get_many(wanted)

    member.tree.get_many = noted  # type: ignore[method-assign]

    def raised(index: int) -> StateWrite:
        document = PartitionStateDocument(leader=1, leader_epoch=7, controller_epoch=1, isr=(1,))
        return StateWrite("orders", index, document, topic.partitions[index].version, identity=topic.identity)

    assert not await member.store.write_isrs([raised(3), raised(70)])
    await run_pending_callbacks()
    shown = member.image.topics["orders"].partitions
    assert sorted(requested) == sorted(paths.partition_state("orders", index) for index in (3, 70))
    assert [partition.index for partition in shown if partition.leader_epoch == 7] == [3, 70]
    assert shown[4] is topic.partitions[4]

    del requested[:]
    rest = [raised(index) for index in range(len(shown)) if index not in (3, 70)]
    assert not await member.store.write_isrs(rest)
    await run_pending_callbacks()
    assert all(partition.leader_epoch == 7 for partition in member.image.topics["orders"].partitions)
    await member.stop()


async def test_a_config_change_reads_no_states() -> None:
    """Otherwise a tenant that sets one key of a topic of 1,000 partitions makes each broker read as many nodes."""
    member = Member(FakeEnsemble().connect(), broker_id=1)
    await member.start()
    await member.create_topic(None, "orders", partitions=3)
    await run_pending_callbacks()
    requested: list[str] = []
    get_many = member.tree.get_many

    async def noted(wanted: Sequence[str]) -> list[Node | None]:
        requested.extend(path for path in wanted if path.endswith("/state") and "/orders/" in path)
        return await get_many(wanted)

    member.tree.get_many = noted  # type: ignore[method-assign]
    await member.store.alter_topic_config(
        member.image, instance_id=None, name="orders", change=lambda config: {**config, "retention.ms": "7"}
    )
    await run_pending_callbacks()
    assert member.image.topics["orders"].config["retention.ms"] == "7"
    assert len(member.image.topics["orders"].partitions) == 3
    assert requested == []
    await member.stop()
