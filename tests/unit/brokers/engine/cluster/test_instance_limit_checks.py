"""Usage of an instance equals a complete recount."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.cluster import errors, instance_limit_checks, stored_bytes
from brokers.engine.cluster.image import InstanceImage, PartitionImage, TopicImage
from brokers.engine.cluster.in_flight_creations import CreatedTopic
from tests.testkit.cluster import instance_document

INSTANCE = "ins-aaaaaaaa"
PARTITIONS_MAX = 20

sizes = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 5), max_size=6)


def shown(name: str, partitions: int) -> TopicImage:
    states = tuple(PartitionImage(index, (1, 2, 3)) for index in range(partitions))
    return TopicImage(f"{INSTANCE}.{name}", name, INSTANCE, bytes(16), states, {"retention.ms": "1"})


def made(name: str, partitions: int) -> CreatedTopic:
    return CreatedTopic(
        internal_name=f"{INSTANCE}.{name}", user_name=name, instance_id=INSTANCE, topic_id=bytes(16),
        assignment=dict.fromkeys(range(partitions), (1, 2, 3)), config={"retention.ms": "1"},
    )  # fmt: skip


def weight(name: str, partitions: int) -> int:
    return stored_bytes.of_topic(f"{INSTANCE}.{name}", name, {"retention.ms": "1"}, partitions, 3 * partitions)


def instance(topics: Sequence[TopicImage]) -> InstanceImage:
    return InstanceImage(
        INSTANCE,
        instance_document([1, 2, 3], partitions_max=PARTITIONS_MAX),
        {topic.user_name.encode(): topic for topic in topics},
        {topic.name: topic.user_name for topic in topics},
    )


@given(sizes, sizes, st.integers(1, 20))
def test_topics_in_the_image_and_in_flight_count_once(
    there: dict[str, int], in_flight: dict[str, int], added: int
) -> None:
    image = instance([shown(name, count) for name, count in there.items()])
    pending_creations = [made(name, count) for name, count in in_flight.items()]
    together = {name: max(there.get(name, 0), in_flight.get(name, 0)) for name in there.keys() | in_flight.keys()}

    assert instance_limit_checks.documents_bytes(image, pending_creations) == sum(
        weight(*counted) for counted in together.items()
    )
    if sum(together.values()) + added <= PARTITIONS_MAX:
        instance_limit_checks.check_partitions(image, added, pending_creations)
    else:
        with pytest.raises(errors.PolicyViolation):
            instance_limit_checks.check_partitions(image, added, pending_creations)
