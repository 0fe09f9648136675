"""Metadata, DescribeCluster and FindCoordinator, as one instance's owner sees them."""

from __future__ import annotations

import pytest

from brokers.contract.documents import InstanceSettings
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fields import UUID_ZERO
from brokers.engine.protocol.messages.cluster import BROKER_ENDPOINTS, DescribeClusterRequest
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
    """CTL-21; whether a topic may be made so is a setting of the instance, on unless its owner says otherwise."""
    first = await metadata_of(house.mine, "auto", auto_create=True)
    await house.broker.until(lambda: b"auto" in house.broker.broker.current.image.instances[MINE].topics)

    assert first.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    made = (await metadata_of(house.mine, "auto")).topics[0]
    defaults = InstanceSettings()
    assert (made.error_code, made.name, len(made.partitions)) == (0, "auto", defaults.default_partitions)
    invalid = await metadata_of(house.mine, "a/b", auto_create=True)
    assert invalid.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


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
