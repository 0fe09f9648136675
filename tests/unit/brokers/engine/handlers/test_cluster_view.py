"""Metadata, DescribeCluster and FindCoordinator, as the owner of an instance sees them."""

from __future__ import annotations

import pytest

from brokers.contract.documents import InstanceSettings
from brokers.contract.process import CLUSTER_USER
from brokers.engine.handlers.topics.metadata import CHECKED_AT_ONCE_MAX
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fields import UUID_ZERO
from brokers.engine.protocol.messages.cluster import BROKER_ENDPOINTS, DescribeClusterRequest
from brokers.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.brokers.engine.handlers.asking import create, metadata_of, wanted_topic
from tests.unit.brokers.engine.handlers.conftest import MINE, House


@pytest.mark.parametrize("version", range(13))
async def test_every_metadata_version_shows_my_topics_and_nobody_elses(house: House, version: int) -> None:
    await house.topic("orders", 2)
    await house.broker.create_topic(house.theirs, "secret")

    answer = await metadata_of(house.mine, version=version)

    assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("orders", 2)]
    assert [broker.port for broker in answer.brokers] == [house.my_port]


async def test_an_unknown_topic_is_made_when_client_and_owner_want_it(house: House) -> None:
    """Auto-creation is a setting of the instance, on by default (CTL-21)."""
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


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
async def test_names_of_kafkas_own_topics_are_refused(house: House, name: str) -> None:
    """Kafka answers a produce to these topics with the same code."""
    (created,) = await create(house.mine, wanted_topic(name))
    assert created.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert created.error_message == f"Topic name '{name}' is reserved for the service's own records."

    (asked,) = (await metadata_of(house.mine, name, auto_create=True)).topics
    assert asked.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    (looked_at,) = (await metadata_of(house.mine, name)).topics
    assert looked_at.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("validate_only", [True, False])
async def test_the_log_of_kafkas_controllers_cannot_be_made(house: House, validate_only: bool) -> None:
    """Neither a tenant nor the cluster can create it; with auto-creation clients show the code."""
    name = "__cluster_metadata"
    cluster = await house.broker.internal_client(CLUSTER_USER)
    for client in (house.mine, cluster):
        (created,) = await create(client, wanted_topic(name), validate_only=validate_only)
        assert created.error_code == ErrorCode.INVALID_REQUEST
        assert created.error_message == f"Creation of internal topic {name} is prohibited."
    (asked,) = (await metadata_of(house.mine, name, auto_create=True)).topics
    assert asked.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_topic_that_cannot_be_made_is_answered_with_a_code_that_clients_show(house: House) -> None:
    """With a retriable code clients would retry forever."""
    await house.broker.update_instance(MINE, partitions_max=4)
    await house.topic(partitions=2)

    refused = (await metadata_of(house.mine, "auto", auto_create=True)).topics[0]
    assert (refused.error_code, refused.name) == (ErrorCode.INVALID_TOPIC_EXCEPTION, "auto")

    sent = house.broker.broker.services.accounting.accountings.get_or_create(MINE).refused_topics.as_json(
        house.broker.broker.clock.now_ms()
    )
    reason = "The instance may have 4 partitions and has 2; 3 more do not fit."
    assert [(line["name"], line["reason"], line["count"]) for line in sent] == [("auto", reason, 1)]

    await house.topic("more.than", partitions=1)
    colliding = (await metadata_of(house.mine, "more_than", auto_create=True)).topics[0]
    assert colliding.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_reasons_of_very_many_new_topics_come_one_after_the_other(house: House) -> None:
    await house.broker.update_instance(MINE, partitions_max=1)
    names = [f"auto{number}" for number in range(CHECKED_AT_ONCE_MAX + 5)]

    codes = [topic.error_code for topic in (await metadata_of(house.mine, *names, auto_create=True)).topics]

    assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION] * CHECKED_AT_ONCE_MAX + [ErrorCode.LEADER_NOT_AVAILABLE] * 5


async def test_too_few_brokers_are_said_to_be_the_reason_and_clients_ask_again(house: House) -> None:
    """Kafka's Metadata does the same (observed of 3.9.1)."""
    await house.broker.update_instance(MINE, settings=InstanceSettings(default_replication_factor=3))

    refused = (await metadata_of(house.mine, "auto", auto_create=True)).topics[0]

    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
