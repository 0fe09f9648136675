"""Unreadable documents of topics and instances at the start of a broker: they count as existing and are listed (QUO-75,
decision 79).
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from brokers.contract import documents, paths
from brokers.contract.own_topics import LED_BY_EACH_BROKER
from brokers.engine.cluster import loader
from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.image import ClusterImage, TopicImage
from brokers.engine.cluster.tree import Create, Set, Tree
from brokers.engine.cluster.watcher import ClusterWatcher
from tests.testkit.cluster import CLUSTER_ID, Member, instance_document, run_pending_callbacks
from tests.testkit.fake_store import FakeEnsemble

INSTANCES = ("ins-aaaaaaaa", "ins-bbbbbbbb")


async def fresh_load(ensemble: FakeEnsemble) -> ClusterImage:
    current = CurrentImage(ClusterImage(CLUSTER_ID))
    return await ClusterWatcher(ensemble.connect(), current).load()


async def test_a_malformed_document_at_start_still_counts_as_an_existing_topic() -> None:
    """Otherwise it would take the topic's log for one of a deleted topic."""
    ensemble = FakeEnsemble()
    member = Member(ensemble.connect(), broker_id=1)
    await member.start()
    for name in ("orders", "bills"):
        await member.create_topic(None, name, partitions=1)
    await member.tree.commit([Set(paths.topic_config("orders"), b"{", None)])

    image = await fresh_load(ensemble)

    assert (image.topics.keys(), image.unreadable_topics) == ({"bills", *LED_BY_EACH_BROKER}, {"orders"})
    await member.stop()


async def test_unreadable_documents_at_start_are_listed_until_they_are_readable_or_deleted() -> None:
    """Topics and instances: their committed offsets and pending markers wait as long."""
    ensemble = FakeEnsemble()
    writer = Member(ensemble.connect(), broker_id=1)
    await writer.start()
    for instance_id in INSTANCES:
        document = instance_document([1]).to_json()
        change = Create(paths.CHANGE_PREFIX, documents.change_to_json([f"instances/{instance_id}"]), sequence=True)
        await writer.tree.commit([Create(paths.instance(instance_id), document), change])
    for name in ("orders", "bills"):
        await writer.create_topic(None, name, partitions=1)
    await writer.until(lambda image: {"orders", "bills"} <= image.topics.keys() and len(image.instances) == 2)
    sense = {paths.topic_config("orders"): b"", paths.instance(INSTANCES[0]): b""}
    for path in sense:
        sense[path] = ensemble.nodes[path].data
    nonsense = [*sense, paths.topic_config("bills"), paths.instance(INSTANCES[1])]
    await writer.tree.commit([Set(path, b"{", None) for path in nonsense])
    reader = Member(ensemble.connect(), broker_id=2, controls=False)
    await reader.start()

    assert reader.image.unreadable_topics == {"orders", "bills"}
    assert reader.image.unreadable_instances == set(INSTANCES)
    assert not any(map(reader.image.is_topic_deleted, ("orders", "bills")))
    assert not any(map(reader.image.is_instance_deleted, INSTANCES))

    named = ["topics/orders", "topics/bills", *(f"instances/{id}" for id in INSTANCES)]
    change = Create(paths.CHANGE_PREFIX, documents.change_to_json(named), sequence=True)
    await writer.tree.commit([change])
    await run_pending_callbacks()
    assert (len(reader.image.unreadable_topics), len(reader.image.unreadable_instances)) == (2, 2), "still no sense"

    for path in (paths.topic("bills"), paths.instance(INSTANCES[1])):
        for gone in [node for node in ensemble.nodes if node == path or node.startswith(f"{path}/")]:
            del ensemble.nodes[gone]
    await writer.tree.commit([*(Set(path, data, None) for path, data in sense.items()), change])
    await reader.until(lambda image: "orders" in image.topics and INSTANCES[0] in image.instances)

    assert (reader.image.unreadable_topics, reader.image.unreadable_instances) == (frozenset(), frozenset())
    assert reader.image.is_topic_deleted("bills") and reader.image.is_instance_deleted(INSTANCES[1])
    await reader.stop()
    await writer.stop()


async def test_a_topic_deleted_during_a_complete_read_counts_as_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not count as unreadable: a broker that starts at that moment would keep its log."""
    ensemble = FakeEnsemble()
    member = Member(ensemble.connect(), broker_id=1)
    await member.start()
    await member.create_topic(None, "orders", partitions=1)
    read_topics = loader.read_topics

    async def delete_first(tree: Tree, names: Mapping[str, set[int] | None], known: Mapping[str, TopicImage]) -> object:
        ensemble.nodes.pop(paths.topic("orders"), None)
        return await read_topics(tree, names, known)

    monkeypatch.setattr(loader, "read_topics", delete_first)

    image = await fresh_load(ensemble)

    assert (image.topics.keys(), image.unreadable_topics) == (set(LED_BY_EACH_BROKER), frozenset())
    await member.stop()
