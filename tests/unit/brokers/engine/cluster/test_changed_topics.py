"""Images after many changes have the totals that are added up from the start, and name the topics that changed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from brokers.contract.documents import InstanceDocument
from brokers.contract.partitions import NO_LEADER
from brokers.engine.cluster.image import ClusterImage, ImageDelta, InstanceImage, PartitionImage, TopicImage
from instances.naming import collision_key
from tests.testkit.cluster import instance_document

INSTANCES = ("ins-aaaaaaaa", "ins-bbbbbbbb")
CARRIED = {"partition_count", "stored_bytes", "layout_totals"}
NAMES = ("orders", "a.b", "a_b", "events")

# Leader and leader epoch of each partition, and what is seen of the topic.
State = tuple[list[tuple[int, int]], str]

partitions = st.lists(st.tuples(st.sampled_from([NO_LEADER, 1, 2]), st.integers(0, 3)), min_size=1, max_size=3)
states = st.one_of(st.none(), st.tuples(partitions, st.sampled_from(["visible", "hidden", "deleting"])))
changes = st.dictionaries(st.tuples(st.sampled_from(INSTANCES), st.sampled_from(NAMES)), states, min_size=1)


def topic(instance_id: str, name: str, state: State) -> TopicImage:
    shape, visibility = state
    return TopicImage(
        name=f"{instance_id}.{name}",
        user_name=name,
        instance_id=instance_id,
        topic_id=f"{instance_id}.{name}".encode(),
        partitions=tuple(
            PartitionImage(index=index, leader=leader, leader_epoch=epoch, replicas=(1, 2), version=0)
            for index, (leader, epoch) in enumerate(shape)
        ),
        config={},
        deleting=visibility == "deleting",
        is_hidden=visibility == "hidden",
    )


def assert_totals(instance: InstanceImage) -> None:
    assert instance.partition_count == sum(len(topic.partitions) for topic in instance.stored_topics)
    assert instance.stored_bytes == sum(topic.stored_bytes for topic in instance.stored_topics)
    visible = [partition for topic in instance.topics.values() for partition in topic.partitions]
    totals = instance.layout_totals
    assert totals.leaders == Counter(each.leader for each in visible if each.leader != NO_LEADER)
    assert totals.replicas == Counter(replica for each in visible for replica in each.replicas)
    assert 0 not in totals.leaders.values(), "brokers without a partition have no entry"
    assert totals.moves == sum(each.leader_epoch for each in visible)
    names = instance.topic_names.values()
    assert instance.names_by_collision_key.keys() == {collision_key(name) for name in names}
    assert set(instance.names_by_collision_key.values()) <= set(names)


@given(st.lists(changes, max_size=8))
def test_totals_that_are_carried_over_are_those_added_up_from_the_start(
    rounds: list[dict[tuple[str, str], State | None]],
) -> None:
    documents: dict[str, InstanceDocument | None] = {id: instance_document([1, 2]) for id in INSTANCES}
    image = ClusterImage("c").with_changes(ImageDelta(instances=documents))
    for round in rounds:
        for instance in image.instances.values():
            assert_totals(instance)
        topics = {
            f"{id}.{name}": None if state is None else topic(id, name, state) for (id, name), state in round.items()
        }
        after = image.with_changes(ImageDelta(topics=topics))
        assert after.topic_changes is not None and after.changed_topics(image) is after.topic_changes.names
        for id in {id for id, _ in round}:
            assert vars(after.instances[id]).keys() >= CARRIED, "nothing is added up again"
        assert set(after.changed_topics(image)) >= differing(image, after)
        assert set(after.changed_topics(image)) <= topics.keys()
        assert set(after.changed_topics(ClusterImage("c"))) == after.topics.keys(), (
            "of an image that is not the one before"
        )
        assert not after.changed_topics(after)
        image = after
    for instance in image.instances.values():
        assert_totals(instance)


def test_topics_that_are_replaced_otherwise_are_compared_one_by_one() -> None:
    first = ClusterImage("c").with_changes(ImageDelta(topics={"t": cluster_topic("t")}))
    second = first.with_changes(ImageDelta(topics={"u": cluster_topic("u")}))
    other = replace(second, topics={"u": second.topics["u"], "v": cluster_topic("v")})
    assert set(other.changed_topics(first)) == {"t", "u", "v"}


def cluster_topic(name: str) -> TopicImage:
    return TopicImage(name=name, user_name=name, instance_id=None, topic_id=name.encode(), partitions=(), config={})


def differing(before: ClusterImage, after: ClusterImage) -> set[str]:
    names = before.topics.keys() | after.topics.keys()
    return {name for name in names if before.topics.get(name) != after.topics.get(name)}
