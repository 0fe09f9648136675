"""Deletions wait until partitions without leaders have been served, and instances take turns with theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from brokers.engine.cluster.image import TopicImage
from brokers.engine.controller.deletion_queue import DeletionQueue
from tests.testkit.cluster import Member
from tests.testkit.fake_store import FakeEnsemble

HOSTILE, NEIGHBOUR, TWIN = "ins-aaaaaaaa", "ins-bbbbbbbb", "ins-aaaaaaab"
TOPICS = 400


def topic(instance_id: str | None, name: str) -> TopicImage:
    return TopicImage(f"{instance_id}.{name}", name, instance_id, bytes(16), (), {}, deleting=True)


def test_tenants_take_turns_then_their_instances() -> None:
    queue = DeletionQueue(lambda instance_id: "tenant" if instance_id in (HOSTILE, TWIN) else instance_id)
    for number in range(3):
        queue.put(topic(HOSTILE, f"h{number}"))
    queue.put(topic(TWIN, "t0"))
    for number in range(2):
        queue.put(topic(NEIGHBOUR, f"n{number}"))
    queue.put(topic(None, "own"))

    order = []
    while queue:
        order.append(queue.pop().user_name)

    assert order == ["h0", "n0", "own", "t0", "n1", "h1", "h2"]


@pytest.fixture
async def member() -> AsyncIterator[Member]:
    result = Member(FakeEnsemble().connect(), broker_id=1)
    await result.start()
    await result.until_complete()
    for instance_id in (HOSTILE, NEIGHBOUR):
        await result.publish_instance(instance_id, [1])
    yield result
    await result.stop()


async def test_a_topic_gets_its_leaders_while_many_of_another_instance_are_deleted(member: Member) -> None:
    await asyncio.gather(*(member.create_topic(HOSTILE, f"t{number}", partitions=1) for number in range(TOPICS)))
    for number in range(TOPICS):
        await member.store.delete_topic(member.image, instance_id=HOSTILE, name=f"t{number}")
    await member.until(lambda image: not image.instances[HOSTILE].topics)

    waiting = deleted_of(member, HOSTILE)
    made = await member.create_topic(NEIGHBOUR, "orders", partitions=1)

    assert made.has_leaders
    assert waiting > TOPICS // 20
    assert deleted_of(member, HOSTILE) > waiting // 2, "the neighbour's topic did not wait for them"
    await member.until(lambda image: not any(item.instance_id == HOSTILE for item in image.topics.values()))


def deleted_of(member: Member, instance_id: str) -> int:
    """Returns the number of topics of an instance that are still there."""
    return sum(item.instance_id == instance_id for item in member.image.topics.values())
