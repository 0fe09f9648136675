"""Topic names in the namespace of a connection: its own topics are found in one lookup, those of other instances never
(CKA-9, CKA-10, CKA-16, CKA-19).
"""

from __future__ import annotations

from brokers.engine.access.namespace import Namespace
from brokers.engine.cluster.image import ClusterImage, ImageDelta, PartitionImage, TopicImage
from instances import naming
from tests.testkit.cluster import instance_document

OURS, THEIRS = "ins-aaaaaaaa", "ins-bbbbbbbb"


def topic(instance_id: str | None, name: str, number: int, deleting: bool = False) -> TopicImage:
    internal = name if instance_id is None else naming.internal_topic(instance_id, name)
    partitions = (PartitionImage(0, (1,)),)
    return TopicImage(internal, name, instance_id, bytes([number]) * 16, partitions, {}, deleting=deleting)


def cluster_image() -> ClusterImage:
    topics = [topic(OURS, "orders", 1), topic(THEIRS, "orders", 2), topic(None, "__usage", 3), topic(OURS, "h.x", 4)]
    return ClusterImage("cl").with_changes(
        ImageDelta(
            topics={item.name: item for item in topics},
            instances={OURS: instance_document([1]), THEIRS: instance_document([1])},
        )
    )


def view(image: ClusterImage, instance_id: str | None) -> Namespace[TopicImage]:
    topics = image.topics_by_encoded_name if instance_id is None else image.instances[instance_id].topics
    return Namespace(instance_id, topics, image.topics_by_id)


def test_equal_names_of_two_instances_are_two_topics() -> None:
    image = cluster_image()
    ours, theirs = view(image, OURS), view(image, THEIRS)
    assert ours.topics[b"orders"].name == "ins-aaaaaaaa.orders"
    assert theirs.topics[b"orders"].name == "ins-bbbbbbbb.orders"
    assert ours.shown(ours.topics[b"orders"]) == "orders"


def test_hashed_names_are_found_and_shown_as_the_tenant_wrote_them() -> None:
    ours = view(cluster_image(), OURS)
    assert ours.shown(ours.topics[b"h.x"]) == "h.x"
    assert ours.topics[b"h.x"].name == ours.internal_topic("h.x") != "ins-aaaaaaaa.h.x"


def test_foreign_internal_and_unknown_names_are_the_same_miss() -> None:
    ours = view(cluster_image(), OURS)
    for name in (b"ins-bbbbbbbb.orders", b"ins-aaaaaaaa.orders", b"__usage", b"nothing", b"\xff", b""):
        assert ours.topics.get(name) is None


def test_a_topic_id_of_another_instance_is_unknown() -> None:
    image = cluster_image()
    ours = view(image, OURS)
    assert ours.topic_by_id(bytes([1]) * 16) is ours.topics[b"orders"]
    assert ours.topic_by_id(bytes([2]) * 16) is None
    assert ours.topic_by_id(bytes([3]) * 16) is None
    assert ours.topic_by_id(bytes(16)) is None


def test_the_cluster_itself_sees_internal_names() -> None:
    cluster = view(cluster_image(), None)
    assert set(cluster.topics) == {name.encode() for name in cluster_image().topics}
    result = cluster.topic_by_id(bytes([2]) * 16)
    assert result is not None and cluster.shown(result) == "ins-bbbbbbbb.orders"
    assert cluster.internal_topic("x") == cluster.internal_id("x") == cluster.client_id_of("x") == "x"


def test_groups_of_others_cannot_be_named_or_shown() -> None:
    ours = view(cluster_image(), OURS)
    assert ours.internal_id("g") == "ins-aaaaaaaa.g"
    assert ours.client_id_of("ins-aaaaaaaa.g") == "g"
    assert ours.client_id_of("ins-bbbbbbbb.g") is None


def test_a_topic_being_deleted_is_gone_for_its_owner_but_not_for_the_cluster() -> None:
    image = cluster_image()
    leaving = topic(OURS, "orders", 1, deleting=True)
    image = image.with_changes(ImageDelta(topics={leaving.name: leaving}))
    assert view(image, OURS).topics.get(b"orders") is None
    assert view(image, OURS).topic_by_id(leaving.topic_id) is None
    assert leaving.name in image.topics


def test_an_instance_that_arrives_after_its_topics_finds_them_and_one_that_leaves_takes_its_view_along() -> None:
    image = cluster_image().with_changes(ImageDelta(instances={OURS: None}))
    assert OURS not in image.instances and "ins-aaaaaaaa.orders" in image.topics
    back = image.with_changes(ImageDelta(instances={OURS: instance_document([1])}))
    assert set(back.instances[OURS].topics) == {b"orders", b"h.x"}
    assert back.instances[THEIRS] is image.instances[THEIRS]
