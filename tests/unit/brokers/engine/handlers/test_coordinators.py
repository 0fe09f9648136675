"""FindCoordinator: the state topic is created at the first request, and all brokers return the same coordinator."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from brokers.contract.process import CLUSTER_USER
from brokers.engine.coordinators.settings import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.groups import FindCoordinatorRequest
from brokers.engine.protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.conftest import House

WAIT_S = 10.0


async def find(client: WireClient, version: int, key: str = "g", key_type: int = 0) -> Any:
    answer = await client.call(
        ApiKey.FIND_COORDINATOR,
        version,
        FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key]),
    )
    return answer.coordinators[0] if version >= 4 else answer


async def found(client: WireClient, version: int, key: str = "g", key_type: int = 0) -> Any:
    """Finds the coordinator like a client, with retries while there is none (GRP-3)."""
    async with asyncio.timeout(WAIT_S):
        while True:
            answer = await find(client, version, key, key_type)
            if answer.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
                return answer


@pytest.mark.parametrize("version", range(7))
async def test_a_group_has_a_coordinator_in_every_version(house: House, version: int) -> None:
    answer = await found(house.mine, version)

    assert (answer.error_code, answer.port) == (0, house.my_port)


async def test_the_state_topics_are_made_when_somebody_asks_and_are_nobodys(house: House) -> None:
    current = house.broker.broker.current
    assert GROUPS_TOPIC not in current.image.topics

    await found(house.mine, 3)
    await found(house.mine, 3, key_type=1)

    for name, keys in ((GROUPS_TOPIC, {"cleanup.policy"}), (TRANSACTIONS_TOPIC, {"min.insync.replicas"})):
        topic = current.image.topics[name]
        assert topic.instance_id is None
        assert keys <= topic.config.keys()
        assert topic.config["cleanup.policy"] == "compact"


async def test_an_unknown_kind_of_coordinator_is_refused(house: House) -> None:
    answer = await find(house.mine, 3, key_type=7)

    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_an_empty_group_id_has_a_coordinator(house: House) -> None:
    assert (await found(house.mine, 3, key="")).error_code == 0


@pytest.mark.parametrize(("key_type", "name"), [(0, GROUPS_TOPIC), (1, TRANSACTIONS_TOPIC)])
async def test_a_state_topic_never_grows(house: House, key_type: int, name: str) -> None:
    """An id's partition follows from the number of partitions: after a change its state would be lost."""
    await found(house.mine, 3, key_type=key_type)
    before = len(house.broker.broker.current.image.topics[name].partitions)
    operator = await house.broker.internal_client(CLUSTER_USER)

    wanted = CreatePartitionsTopic(name=name, count=before + 1, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=5_000, validate_only=False)
    (result,) = (await operator.call(ApiKey.CREATE_PARTITIONS, 3, request)).results

    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert len(house.broker.broker.current.image.topics[name].partitions) == before
