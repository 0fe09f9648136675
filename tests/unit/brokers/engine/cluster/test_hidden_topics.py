"""A topic that its owner has deleted and may restore: clients have none of it, limits count it, its name is taken."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from brokers.contract import paths
from brokers.contract.documents import InstanceTopicDocument, TopicDocument
from brokers.engine.access.namespace import Namespace
from brokers.engine.cluster import changes, errors
from brokers.engine.cluster.topic_plans import TopicSpec
from brokers.engine.cluster.tree import Create, Operation, Set
from tests.testkit.cluster import Member
from tests.testkit.fake_store import FakeEnsemble

OURS = "ins-aaaaaaaa"
TOPIC = f"{OURS}.orders"
PARTITIONS = 3


@pytest.fixture
async def ensemble() -> FakeEnsemble:
    return FakeEnsemble()


@pytest.fixture
async def member(ensemble: FakeEnsemble) -> AsyncIterator[Member]:
    made = Member(ensemble.connect(), broker_id=1)
    await made.start()
    await made.publish_instance(OURS, [1])
    await made.create_topic(OURS, "orders", partitions=PARTITIONS, replication_factor=1)
    yield made
    await made.stop()


async def publish(member: Member, ensemble: FakeEnsemble, document: InstanceTopicDocument) -> None:
    """Writes a document of the topic, and announces it to brokers."""
    path = paths.instance_topic(OURS, TOPIC)
    operations: list[Operation] = []
    if paths.instance_topics(OURS) not in ensemble.nodes:
        operations.append(Create(paths.instance_topics(OURS)))
    write = Set(path, document.to_json(), None) if path in ensemble.nodes else Create(path, document.to_json())
    await member.tree.commit([*operations, write, changes.topics_announcement([TOPIC])])


async def hide(member: Member, ensemble: FakeEnsemble, **lists: tuple[str, ...]) -> None:
    topic_id = TopicDocument.from_json(ensemble.nodes[paths.topic(TOPIC)].data).topic_id
    await publish(member, ensemble, InstanceTopicDocument(name="orders", deleted_topic_id=topic_id, **lists))
    await member.until(lambda image: TOPIC in image.instances[OURS].hidden)


async def test_a_hidden_topic_is_in_no_namespace_of_clients_and_counts_for_limits(
    member: Member, ensemble: FakeEnsemble
) -> None:
    before = member.image.instances[OURS]
    await hide(member, ensemble)
    image = member.image
    instance = image.instances[OURS]
    assert (dict(instance.topics), dict(instance.topic_names), instance.sorted_names) == ({}, {}, ())
    assert (instance.partition_count, instance.stored_bytes) == (before.partition_count, before.stored_bytes)
    topic_id = image.topics[TOPIC].topic_id
    assert Namespace(OURS, instance.topics, image.topics_by_id).topic_by_id(topic_id) is None
    assert (
        Namespace(None, image.topics_by_encoded_name, image.topics_by_id).topic_by_id(topic_id) is image.topics[TOPIC]
    )
    assert not image.is_topic_deleted(TOPIC), "offsets of groups stay"

    await publish(member, ensemble, InstanceTopicDocument(name="orders"))
    await member.until(lambda image: TOPIC not in image.instances[OURS].hidden)
    assert member.image.instances[OURS].topic("orders") is not None


async def test_the_name_of_a_hidden_topic_is_refused_and_clients_cannot_delete_it(
    member: Member, ensemble: FakeEnsemble
) -> None:
    await hide(member, ensemble)
    with pytest.raises(errors.PolicyViolation, match="can be restored"):
        member.store.plan_topic(member.image, TopicSpec(OURS, "orders"))
    with pytest.raises(errors.UnknownTopic):
        await member.store.delete_topic(member.image, instance_id=OURS, name="orders")


async def test_the_cluster_deletes_it_and_one_made_again_is_shown_though_its_document_is_old(
    member: Member, ensemble: FakeEnsemble
) -> None:
    await hide(member, ensemble, produce_ips=("10.0.0.1",))
    await member.store.delete_topic(member.image, instance_id=None, name=TOPIC)
    await member.until(lambda image: TOPIC not in image.topics)
    assert not member.image.instances[OURS].hidden
    assert paths.instance_topic(OURS, TOPIC) in ensemble.nodes, "address lists outlive the topic, and so does this"
    await member.create_topic(OURS, "orders", partitions=1, replication_factor=1)
    instance = member.image.instances[OURS]
    assert instance.topic("orders") is not None
    assert not instance.hidden


async def test_a_broker_that_starts_anew_hides_it_too(member: Member, ensemble: FakeEnsemble) -> None:
    await hide(member, ensemble)
    other = Member(ensemble.connect(), broker_id=2, controls=False)
    await other.start()
    try:
        await other.until(lambda image: OURS in image.instances and TOPIC in image.topics)
        instance = other.image.instances[OURS]
        assert (set(instance.hidden), dict(instance.topics)) == ({TOPIC}, {})
    finally:
        await other.stop()
