"""Changes that wait for the turn of their instance are refused if their user lost the right in the meantime."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from brokers.contract import paths
from brokers.contract.documents import change_to_json
from brokers.contract.users import UserDocument
from brokers.engine.cluster.instance_documents import USERS, change_entry
from brokers.engine.cluster.tree import Create, Set
from brokers.engine.protocol.errors import ErrorCode
from tests.testkit.rights import client_as
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers import asking
from tests.unit.brokers.engine.handlers.asking import create, set_quota, wanted_topic
from tests.unit.brokers.engine.handlers.conftest import MINE, House
from tests.unit.brokers.engine.handlers.test_user_calls import alter, altered, scram, scram_users

CLUSTER_DENIED = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
TOPIC_DENIED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
WAIT_MS = 20_000


@asynccontextmanager
async def turn_taken(house: House) -> AsyncIterator[None]:
    """Holds the turn of the instance within the block."""
    services = house.broker.broker.services
    now_ms = services.clock.monotonic_ms
    rate = services.accounting.accountings.get_or_create(MINE).change_rate
    async with services.metadata.change_turns.turn(MINE, rate, now_ms=now_ms, deadline_ms=now_ms() + WAIT_MS):
        yield


async def until_waiting(house: House) -> None:
    """Waits until a request waits for the turn that is held."""
    turns = house.broker.broker.services.metadata.change_turns
    await house.broker.until(lambda: turns._instances[MINE].waiting == 2)


async def demote(house: House, name: str) -> None:
    """Makes a user no superuser, in the way of another broker."""
    present = house.broker.broker.current.image.users.of_instance(MINE)[name]
    document = UserDocument(name=name, created_at_ms=present.created_at_ms, secrets=present.secrets)
    change = change_to_json([change_entry(MINE, USERS, name)])
    await house.broker.tree.commit(
        [
            Set(paths.instance_user(MINE, name), document.to_json(), None),
            Create(paths.CHANGE_PREFIX, change, sequence=True),
        ]
    )
    users = house.broker.broker.current
    await house.broker.until(lambda: not users.image.users.of_instance(MINE)[name].superuser)


async def root(house: House) -> WireClient:
    owner = await house.broker.internal_client(MINE)
    assert await alter(owner, altered("root", "s1", superuser=1), altered("chief", "s1", superuser=1)) == [0, 0]
    await house.broker.update_instance(MINE, allow_everyone_if_no_acl=False)
    return await client_as(house.broker, MINE, "root")


async def in_turn_without_right(house: House, request: Any) -> Any:
    """Returns the response to a request that waits for its turn while its user is demoted."""
    async with turn_taken(house):
        answer = asyncio.create_task(request)
        await until_waiting(house)
        await demote(house, "root")
        assert not answer.done()
    return await answer


async def test_users_are_not_altered(house: House) -> None:
    client = await root(house)
    answer = await in_turn_without_right(house, scram(client, upserted=("alice", "bob")))
    assert answer == {"alice": CLUSTER_DENIED, "bob": CLUSTER_DENIED}
    assert set(await scram_users(await client_as(house.broker, MINE, "chief"))) == {"root", "chief"}


async def test_topics_are_not_created(house: House) -> None:
    client = await root(house)
    answer = await in_turn_without_right(house, create(client, wanted_topic("first"), wanted_topic("second")))
    assert [line.error_code for line in answer] == [TOPIC_DENIED, TOPIC_DENIED]
    assert not {"first", "second"} & {topic.user_name for topic in house.broker.broker.current.image.topics.values()}


@pytest.mark.parametrize("kind", ["quota", "config"])
async def test_settings_are_not_changed(house: House, kind: str) -> None:
    await house.topic()
    client = await root(house)
    house.mine = client
    if kind == "quota":
        request, denied = set_quota(client, {"user": "alice"}, "producer_byte_rate", 1.0), CLUSTER_DENIED
    else:
        request, denied = asking.alter(house, ("retention.ms", 0, "2000")), TOPIC_DENIED
    assert await in_turn_without_right(house, request) == denied
    image = house.broker.broker.current.image
    assert not image.quotas.of_instance(MINE)
    assert "retention.ms" not in image.topics[f"{MINE}.orders"].config
