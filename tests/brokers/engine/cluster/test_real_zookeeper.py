"""The whole coordination against a real ZooKeeper: two and three sessions, elections, expiry, death, a thousand partitions."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from brokers.contract import paths
from brokers.engine.cluster import errors
from brokers.engine.cluster.tree import BadVersion, Check, Create, Delete, NodeExists, NoNode, Set
from brokers.engine.cluster.zookeeper import ZooKeeperTree
from tests.support.cluster import Member, is_settled

INSTANCE = "ins-7k2m9qxa"
SESSION_TIMEOUT_MS = 4_000
Join = Callable[..., Awaitable[Member]]

_chroots = itertools.count()


@pytest.fixture
async def hosts(zookeeper_address: str) -> str:
    return f"{zookeeper_address}/e4-{next(_chroots)}"


@pytest.fixture
async def connect(hosts: str) -> AsyncIterator[Callable[[], Awaitable[ZooKeeperTree]]]:
    trees: list[ZooKeeperTree] = []

    async def open_session() -> ZooKeeperTree:
        tree = ZooKeeperTree(hosts, session_timeout_ms=SESSION_TIMEOUT_MS)
        await tree.start()
        trees.append(tree)
        return tree

    yield open_session
    for tree in trees:
        await tree.stop()


@pytest.fixture
async def join(connect: Callable[[], Awaitable[ZooKeeperTree]]) -> AsyncIterator[Join]:
    members: list[Member] = []

    async def start_member(broker_id: int, **options: object) -> Member:
        member = Member(await connect(), broker_id=broker_id, **options)
        await member.start()
        members.append(member)
        return member

    yield start_member
    for member in members:
        await member.crash()
        await member.session.stop()


async def test_a_tree_keeps_what_the_port_promises(connect: Callable[[], Awaitable[ZooKeeperTree]]) -> None:
    tree = await connect()
    fired: list[str] = []
    assert await tree.get("/a", lambda: fired.append("a")) is None
    assert await tree.commit([Create("/a", b"1"), Create("/a/s_", sequence=True)]) == ["/a", "/a/s_0000000000"]
    node = await tree.get("/a")
    assert node is not None and (node.data, node.version, node.owner) == (b"1", 0, 0)
    assert node.czxid == node.mzxid > 0
    assert fired == ["a"]
    with pytest.raises(BadVersion) as refused:
        await tree.commit([Check("/a", 0), Set("/a", b"2", 5)])
    assert refused.value.index == 1
    with pytest.raises(NodeExists):
        await tree.commit([Set("/a", b"3", 0), Create("/a/s_0000000000")])
    with pytest.raises(NoNode):
        await tree.commit([Delete("/missing", None)])
    assert (await tree.get("/a")).data == b"1"  # type: ignore[union-attr]
    assert await tree.children("/a") == ["s_0000000000"]
    assert await tree.children("/missing") is None
    found = await tree.get_many(["/a", "/missing", "/a/s_0000000000"] * 500)
    assert [node is not None for node in found] == [True, False, True] * 500


async def test_a_topic_has_leaders_in_every_picture_within_moments(join: Join) -> None:
    members = [await join(1), await join(2), await join(3)]
    for member in members:
        await member.until(lambda image: is_settled(image) and len(image.brokers) == 3)
    await members[0].publish_instance(INSTANCE, [1, 2, 3])
    for member in members:
        await member.until(lambda image: INSTANCE in image.instances)
    took_ms = []
    for number in range(20):
        began = time.perf_counter()
        topic = await members[number % 3].create_topic(INSTANCE, f"topic-{number}", partitions=3)
        for member in members:
            await member.until(lambda image, name=topic.name: name in image.topics and image.topics[name].has_leaders)
        took_ms.append((time.perf_counter() - began) * 1000)
    print("create topic ms", sorted(round(ms, 1) for ms in took_ms))
    assert sorted(took_ms)[len(took_ms) // 2] < 200
