"""Nodes of a recreated topic have the same versions as those of the deleted one.

A writer with an outdated image, which decided about the deleted topic, must not change them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from brokers.contract import paths
from brokers.contract.documents import PartitionStateDocument, TopicDocument
from brokers.engine.cluster import changes, errors
from brokers.engine.cluster.controller_epoch import StateWrite
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.cluster.tree import Delete, Set
from tests.testkit.cluster import Member
from tests.testkit.fake_store import FakeEnsemble

OURS = "ins-aaaaaaaa"
TOPIC = f"{OURS}.orders"


@pytest.fixture
async def ensemble() -> FakeEnsemble:
    return FakeEnsemble()


@pytest.fixture
async def member(ensemble: FakeEnsemble) -> AsyncIterator[Member]:
    made = Member(ensemble.connect(), broker_id=1)
    await made.start()
    await made.publish_instance(OURS, [1])
    await made.create_topic(OURS, "orders", partitions=1, replication_factor=1)
    yield made
    await made.stop()


async def _made_again(member: Member) -> ClusterImage:
    """Recreates the topic and returns the image before."""
    before = member.image
    await member.store.delete_topic(before, instance_id=OURS, name="orders")
    await member.until(lambda image: TOPIC not in image.topics)
    await member.create_topic(OURS, "orders", partitions=1, replication_factor=1)
    again = member.image.topics[TOPIC]
    assert again.topic_id != before.topics[TOPIC].topic_id
    assert again.partitions[0].version == before.topics[TOPIC].partitions[0].version
    return before


def _state_write(ensemble: FakeEnsemble, image: ClusterImage) -> StateWrite:
    """Returns the write that a long-time leader with `image` would send."""
    partition, topic = image.topics[TOPIC].partitions[0], image.topics[TOPIC]
    node = ensemble.nodes[paths.partition_state(TOPIC, 0)]
    document = replace(PartitionStateDocument.from_json(node.data), leader_epoch=7)
    return StateWrite(TOPIC, 0, document, partition.version, identity=topic.identity)


async def test_a_leader_of_a_deleted_topic_writes_no_isr_of_the_recreated_one(
    member: Member, ensemble: FakeEnsemble
) -> None:
    before = await _made_again(member)
    late, present = _state_write(ensemble, before), _state_write(ensemble, member.image)

    assert await member.store.write_isrs([late]) == [late]
    assert await member.store.write_isrs([present]) == []


async def test_a_controller_with_an_old_image_writes_no_state_of_the_recreated_topic(
    member: Member, ensemble: FakeEnsemble
) -> None:
    before = await _made_again(member)
    held_epoch = member.controller.state.held_epoch
    assert held_epoch is not None

    late = _state_write(ensemble, before)
    assert await member.store.write_states(held_epoch, [late]) == [late]


async def test_a_controller_with_an_old_image_does_not_delete_the_recreated_topic(
    member: Member, ensemble: FakeEnsemble
) -> None:
    before = await _made_again(member)
    held_epoch, nodes = member.controller.state.held_epoch, set(ensemble.nodes)
    assert held_epoch is not None

    with pytest.raises(errors.Conflict):
        await member.store.finish_deletion(held_epoch, before.topics[TOPIC])
    assert set(ensemble.nodes) == nodes


async def test_a_deletion_with_an_old_image_leaves_the_recreated_topic(member: Member, ensemble: FakeEnsemble) -> None:
    before = await _made_again(member)

    with pytest.raises(errors.UnknownTopic):
        await member.store.delete_topic(before, instance_id=OURS, name="orders")
    assert paths.topic_deletion(TOPIC) not in ensemble.nodes


async def test_a_topic_without_an_identity_node_is_written_and_deleted_too(
    member: Member, ensemble: FakeEnsemble
) -> None:
    topic = member.image.topics[TOPIC]
    assert topic.identity is not None
    document = TopicDocument.from_json(ensemble.nodes[paths.topic(TOPIC)].data)
    document = replace(document, identified=False)
    await member.tree.commit(
        [
            Set(paths.topic(TOPIC), document.to_json(), None),
            Delete(topic.identity, None),
            changes.topics_announcement([TOPIC]),
        ]
    )
    await member.until(lambda image: image.topics[TOPIC].identity is None)

    assert await member.store.write_isrs([_state_write(ensemble, member.image)]) == []
    await member.store.delete_topic(member.image, instance_id=OURS, name="orders")
    await member.until(lambda image: TOPIC not in image.topics)
    assert not [path for path in ensemble.nodes if TOPIC in path]
