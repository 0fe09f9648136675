"""Clients that read all settings of a topic and write them back: MirrorMaker, Terraform, librdkafka's own tests."""

from __future__ import annotations

import pytest

from brokers.contract.process import CLUSTER_USER
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.topics import CreatableTopicConfig
from tests.unit.brokers.engine.handlers.asking import alter, config_of, create, wanted_topic
from tests.unit.brokers.engine.handlers.conftest import MINE, House
from tests.unit.brokers.engine.handlers.test_alter_configs import own_settings, replace

SET, DELETE, APPEND, SUBTRACT = range(4)
LEADER, FOLLOWER = (f"{role}.replication.throttled.replicas" for role in ("leader", "follower"))
OPERATORS = {"preallocate": "true", LEADER: "0:1", FOLLOWER: "*"}


async def all_settings(house: House) -> dict[str, str]:
    return {line.name: line.value for line in (await config_of(house.mine, "orders")).configs}


async def throttled(house: House) -> None:
    """The operator throttles the replicas of the topic."""
    operator = await house.broker.internal_client(CLUSTER_USER)
    assert await replace(operator, {LEADER: "0:1,0:2"}, f"{MINE}.orders") == 0


@pytest.mark.parametrize("is_throttled", [False, True])
async def test_all_settings_may_be_written_back(house: House, is_throttled: bool) -> None:
    await house.topic(retention_ms="1000")
    if is_throttled:
        await throttled(house)
    before = await all_settings(house)
    assert set(OPERATORS) <= before.keys()

    assert await alter(house, *((key, SET, value) for key, value in before.items())) == 0
    assert await all_settings(house) == before
    changed = before | {"retention.ms": "2000"}
    assert await replace(house.mine, dict(changed)) == 0
    assert await all_settings(house) == changed
    own = await own_settings(house.mine)
    assert set(OPERATORS) & own.keys() == ({LEADER} if is_throttled else set()), "nothing of theirs is kept as its own"


async def test_a_topic_may_be_made_with_all_settings_of_another(house: House) -> None:
    await house.topic()
    copy = wanted_topic("copy")
    copy.configs = [CreatableTopicConfig(name=key, value=value) for key, value in (await all_settings(house)).items()]

    assert [topic.error_code for topic in await create(house.mine, copy)] == [0]
    assert not OPERATORS.keys() & (await own_settings(house.mine, "copy")).keys()


@pytest.mark.parametrize(("key", "value"), OPERATORS.items())
async def test_another_value_is_refused(house: House, key: str, value: str) -> None:
    await house.topic()
    made = wanted_topic("made")
    made.configs = [CreatableTopicConfig(name=key, value=value)]

    refused = ErrorCode.INVALID_CONFIG
    assert await alter(house, (key, SET, value)) == refused
    assert await replace(house.mine, {key: value}) == refused
    assert [topic.error_code for topic in await create(house.mine, made)] == [refused]


async def test_settings_of_the_operator_are_neither_deleted_nor_changed(house: House) -> None:
    await house.topic()
    await throttled(house)

    for change in ((LEADER, SET, ""), (LEADER, DELETE, None), (LEADER, APPEND, "0:3"), (LEADER, SUBTRACT, "0:1")):
        assert await alter(house, change) == ErrorCode.INVALID_CONFIG, change
    assert await replace(house.mine, {LEADER: ""}) == ErrorCode.INVALID_CONFIG
    assert (await all_settings(house))[LEADER] == "0:1,0:2"


async def test_a_change_without_effect_is_accepted(house: House) -> None:
    """Kafka accepts a deletion of a key that is not set, and a list with the elements it has already."""
    await house.topic()

    assert await alter(house, *((key, DELETE, None) for key in OPERATORS)) == 0
    await throttled(house)
    assert await alter(house, (LEADER, APPEND, "0:2"), (FOLLOWER, SUBTRACT, "0:1")) == 0
    assert (await all_settings(house))[LEADER] == "0:1,0:2"


async def test_an_operator_appends_to_a_list_and_subtracts_from_it(house: House) -> None:
    await house.topic()
    await throttled(house)
    topic, operator = f"{MINE}.orders", await house.broker.internal_client(CLUSTER_USER)
    as_operator = House(house.broker, operator, house.theirs, house.my_port)

    assert await alter(as_operator, (LEADER, APPEND, "0:3"), (FOLLOWER, APPEND, "0:1"), name=topic) == 0
    assert await alter(as_operator, (LEADER, SUBTRACT, "0:1"), name=topic) == 0
    settings = await all_settings(house)
    assert (settings[LEADER], settings[FOLLOWER]) == ("0:2,0:3", "0:1")
