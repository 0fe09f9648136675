"""Partitions are reserved by compare-and-set: brokers asked concurrently never use the same capacity twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from brokers.contract import paths
from brokers.engine.cluster import errors
from brokers.engine.cluster.changes import Reservation, versions_in
from brokers.engine.cluster.topic_plans import TopicGrowth, TopicSpec
from brokers.engine.cluster.tree import Create, Set
from tests.testkit.cluster import Member
from tests.testkit.fake_store import FakeEnsemble

OURS = "ins-aaaaaaaa"
PARTITIONS_MAX = 40


@pytest.fixture
async def ensemble() -> FakeEnsemble:
    return FakeEnsemble()


@pytest.fixture
async def members(ensemble: FakeEnsemble) -> AsyncIterator[list[Member]]:
    """Returns three brokers of one instance with a partition limit."""
    result = [Member(ensemble.connect(), broker_id=id, controls=id == 1) for id in (1, 2, 3)]
    for member in result:
        await member.start()
    for member in result:
        await member.until(lambda image: len(image.brokers) == 3)
    await result[0].publish_instance(OURS, [1, 2, 3], partitions_max=PARTITIONS_MAX)
    for member in result:
        await member.until(lambda image: OURS in image.instances)
    yield result
    for member in result:
        await member.stop()


async def creations(member: Member, count: int) -> tuple[int, int]:
    """Creates topics of 2 partitions through one broker, one after the other; returns how many succeeded and failed."""
    made = refused = 0
    for number in range(count):
        try:
            await member.store.create_topic(
                member.image, TopicSpec(OURS, f"t-{member.broker_id}-{number}", partitions=2)
            )
            made += 1
        except errors.PolicyViolation:
            refused += 1
    return made, refused


async def test_three_brokers_asked_concurrently_create_exactly_the_partition_limit(members: list[Member]) -> None:
    results = await asyncio.gather(*(creations(member, 20) for member in members))

    assert sum(made for made, _ in results) * 2 == PARTITIONS_MAX
    assert sum(refused for _, refused in results) == 60 - PARTITIONS_MAX // 2
    for member in members:
        image = await member.until(lambda image: len(image.instances[OURS].topics) == PARTITIONS_MAX // 2)
        assert sum(len(topic.partitions) for topic in image.instances[OURS].topics.values()) == PARTITIONS_MAX


async def test_concurrent_growth_and_creation_respect_the_limit_too(members: list[Member]) -> None:
    for member in members:
        await member.create_topic(OURS, f"own-{member.broker_id}", partitions=1)

    async def grow(member: Member) -> int:
        try:
            made = await member.store.create_partitions(
                member.image, TopicGrowth(OURS, f"own-{member.broker_id}", total=25)
            )
        except errors.PolicyViolation:
            return 1
        return len(made.assignment)

    sizes = await asyncio.gather(*map(grow, members))

    assert sorted(sizes) == [1, 1, 25]


async def test_deleted_partitions_free_capacity(members: list[Member]) -> None:
    first = members[0]
    await first.create_topic(OURS, "large", partitions=PARTITIONS_MAX)
    with pytest.raises(errors.PolicyViolation, match="may have 40 partitions"):
        await first.store.create_topic(first.image, TopicSpec(OURS, "more", partitions=1))

    await first.store.delete_topic(first.image, instance_id=OURS, name="large")
    await first.until(lambda image: not image.instances[OURS].topics)

    assert len((await first.create_topic(OURS, "more", partitions=PARTITIONS_MAX)).partitions) == PARTITIONS_MAX


async def test_a_broker_that_reads_everything_again_knows_the_last_creation(members: list[Member]) -> None:
    first, second = members[:2]
    await first.create_topic(OURS, "orders", partitions=1)
    await second.until(lambda image: image.creations.get(OURS) == 0)

    image = await second.watcher.load()

    assert image.creations == {OURS: 0}
    assert len((await second.create_topic(OURS, "more", partitions=1)).partitions) == 1


async def test_an_instance_without_a_limit_reserves_nothing(members: list[Member], ensemble: FakeEnsemble) -> None:
    await members[0].publish_instance("ins-cccccccc", [1, 2, 3])
    await members[0].create_topic("ins-cccccccc", "orders", partitions=1)
    assert paths.instance_creations("ins-cccccccc") not in ensemble.nodes


def test_a_reservation_sets_the_version_that_it_announces() -> None:
    first, next_one = Reservation(OURS, -1), Reservation(OURS, 7)
    assert first.operation == Create(f"/ckafka/creations/{OURS}") and first.change == f"creations/{OURS}/0"
    assert next_one.operation == Set(f"/ckafka/creations/{OURS}", b"", 7) and next_one.change == f"creations/{OURS}/8"
    assert versions_in(["topics/a", first.change, next_one.change, "creations/x", f"creations/{OURS}/no"]) == {OURS: 8}
