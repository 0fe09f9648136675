"""Fixtures: a broker in the test's event loop with two instances, and a connection to each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from brokers.contract import paths
from brokers.contract.acls import CLUSTER_NAME, AclOperation, ResourceType
from brokers.contract.documents import InstanceTopicDocument, change_to_json
from brokers.contract.users import UserDocument
from brokers.engine.cluster.instance_documents import USERS, change_entry
from brokers.engine.cluster.tree import Create, Operation, Set
from instances.naming import internal_topic
from tests.testkit.in_process import InProcessBroker
from tests.testkit.rights import acl, client_as, create_acls
from tests.testkit.wire import WireClient

MINE, THEIRS = "ins-aaaaaaaa", "ins-bbbbbbbb"


@dataclass
class House:
    """A broker with two instances; `mine` and `theirs` are connections to their ports."""

    broker: InProcessBroker
    mine: WireClient
    theirs: WireClient
    my_port: int

    async def topic(self, name: str = "orders", partitions: int = 1, **config: str) -> bytes:
        topic_id = await self.broker.create_topic(self.mine, name, partitions, **config)
        table = self.broker.broker.services.storage.table

        def is_led() -> bool:
            led = [table.get(internal_topic(MINE, name), index) for index in range(partitions)]
            return all(partition is not None and partition.is_leader for partition in led)

        await self.broker.until(is_led)
        return topic_id

    async def allow(self, topic: str = "orders", **lists: tuple[str, ...]) -> None:
        """Publishes the allow-lists of a topic of `mine`, and waits until the broker has them."""
        internal = f"{MINE}.{topic}"
        document, tree = InstanceTopicDocument(name=topic, **lists), self.broker.tree
        path, folder = paths.instance_topic(MINE, internal), paths.instance_topics(MINE)
        writes: list[Operation] = [Create(folder)] if await tree.get(folder) is None else []
        is_new = await tree.get(path) is None
        writes.append(Create(path, document.to_json()) if is_new else Set(path, document.to_json(), None))
        change = change_to_json([f"topics/{internal}"])
        await tree.commit([*writes, Create(paths.CHANGE_PREFIX, change, sequence=True)])

        def in_force() -> bool:
            topic = self.broker.broker.current.image.topics[internal]
            return (topic.produce_ips, topic.consume_ips, topic.administer_ips) == (
                document.produce_ips,
                document.consume_ips,
                document.administer_ips,
            )

        await self.broker.until(in_force)


@pytest.fixture
def overrides() -> dict[str, str]:
    """Returns the broker settings of `house`; a module may override them."""
    return {}


@pytest.fixture
async def house(tmp_path: Path, overrides: dict[str, str]) -> AsyncIterator[House]:
    async with InProcessBroker(tmp_path, overrides=overrides) as broker:
        my_port = await broker.create_instance(MINE)
        their_port = await broker.create_instance(THEIRS)
        yield House(broker, await broker.client(my_port), await broker.client(their_port), my_port)


@pytest.fixture
async def administered(house: House) -> None:
    """Adds a rule to each instance that lets every client administer it: an open instance has none of its own."""
    for instance_id in (MINE, THEIRS):
        owner = await house.broker.internal_client(instance_id)
        rule = acl("User:*", AclOperation.ALL, ResourceType.CLUSTER, CLUSTER_NAME)
        assert await create_acls(owner, rule) == [0]


@pytest.fixture
async def superusers(house: House) -> None:
    """Replaces `mine` and `theirs` by connections of a superuser of each instance."""
    tree, users = house.broker.tree, house.broker.broker.current
    for instance_id in (MINE, THEIRS):
        root = UserDocument(name="root", created_at_ms=0, superuser=True)
        change = change_to_json([change_entry(instance_id, USERS, root.name)])
        await tree.commit(
            [
                Create(paths.instance_users(instance_id)),
                Create(paths.instance_user(instance_id, root.name), root.to_json()),
                Create(paths.CHANGE_PREFIX, change, sequence=True),
            ]
        )
    await house.broker.until(lambda: all(map(users.image.users.of_instance, (MINE, THEIRS))))
    house.mine = await client_as(house.broker, MINE, "root")
    house.theirs = await client_as(house.broker, THEIRS, "root")
