"""Metadata, DescribeCluster and FindCoordinator, as one instance's owner sees them."""

from __future__ import annotations

import pytest

from brokers.contract.documents import InstanceSettings
from brokers.engine.handlers.cluster import group_partition
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fields import UUID_ZERO
from brokers.engine.protocol.messages.cluster import BROKER_ENDPOINTS, DescribeClusterRequest
from brokers.engine.protocol.messages.coordinators import FindCoordinatorRequest
from brokers.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.brokers.engine.handlers.asking import metadata_of
from tests.brokers.engine.handlers.conftest import MINE, House


@pytest.mark.parametrize("version", range(13))
async def test_every_metadata_version_shows_my_topics_and_nobody_elses(house: House, version: int) -> None:
    await house.topic("orders", 2)
    await house.broker.create_topic(house.theirs, "secret")

    answer = await metadata_of(house.mine, version=version)

    assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("orders", 2)]
    assert [broker.port for broker in answer.brokers] == [house.my_port]


async def test_an_unknown_topic_is_made_when_client_and_owner_want_it(house: House) -> None:
    first = await metadata_of(house.mine, "auto", auto_create=True)
    await house.broker.until(lambda: b"auto" in house.broker.broker.current.image.instances[MINE].topics)

    assert first.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (await metadata_of(house.mine, "auto")).topics[0].name == "auto"


async def test_nothing_is_made_when_the_client_or_the_owner_does_not_want_it(house: House) -> None:
    unwanted = await metadata_of(house.mine, "auto", auto_create=False)
    await house.broker.update_instance(MINE, settings=InstanceSettings(auto_create_topics=False))
    forbidden = await metadata_of(house.mine, "auto", auto_create=True)

    assert unwanted.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert forbidden.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_metadata_by_id_finds_my_topics_only(house: House) -> None:
    mine = await house.topic()
    foreign = await house.broker.create_topic(house.theirs, "secret")

    answer = await house.mine.call(
        ApiKey.METADATA,
        12,
        MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=id) for id in (mine, foreign, UUID_ZERO)]),
    )

    assert [topic.error_code for topic in answer.topics] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
    ]
    assert answer.topics[0].name == "orders"


async def test_two_instances_seem_to_be_two_clusters(house: House) -> None:
    request = DescribeClusterRequest()
    mine, theirs = [await client.call(ApiKey.DESCRIBE_CLUSTER, 1, request) for client in (house.mine, house.theirs)]

    assert mine.cluster_id != theirs.cluster_id
    assert (await metadata_of(house.mine)).cluster_id == mine.cluster_id
    assert [broker.port for broker in mine.brokers] == [house.my_port]


@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
async def test_other_endpoints_than_brokers_are_not_described(
    house: House, endpoint_type: int, code: ErrorCode
) -> None:
    request = DescribeClusterRequest(endpoint_type=endpoint_type)

    answer = await house.mine.call(ApiKey.DESCRIBE_CLUSTER, 1, request)

    assert (answer.error_code, answer.endpoint_type, answer.brokers) == (code, BROKER_ENDPOINTS, [])


@pytest.mark.parametrize("version", range(7))
async def test_a_group_has_the_same_living_coordinator_in_every_version(house: House, version: int) -> None:
    request = FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=["g"])

    answer = await house.mine.call(ApiKey.FIND_COORDINATOR, version, request)

    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.port) == (0, house.my_port)


async def test_a_transactions_coordinator_is_refused_with_the_reason(house: House) -> None:
    answer = await house.mine.call(
        ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest(key="tx", key_type=1, coordinator_keys=[])
    )

    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert "does not offer transactions" in answer.error_message


@pytest.mark.parametrize(
    ("group", "partition"),
    [("test-group", 12), ("g1", 42), ("my-group", 12), ("", 0), ("组", 2), ("polygenelubricants", 0)],
)
def test_a_group_lives_in_the_partition_kafka_puts_it_in(group: str, partition: int) -> None:
    assert group_partition(group) == partition
