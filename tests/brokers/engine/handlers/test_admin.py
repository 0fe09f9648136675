"""Topics, configs, quotas, metadata and the rest of the calls, as one instance's owner sees them."""

from __future__ import annotations

from typing import Any

import pytest

from brokers.contract.documents import InstanceSettings
from brokers.engine.handlers.cluster import group_partition
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fields import UUID_ZERO
from brokers.engine.protocol.messages.cluster import DescribeClusterRequest
from brokers.engine.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from brokers.engine.protocol.messages.coordinators import FindCoordinatorRequest
from brokers.engine.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from brokers.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from brokers.engine.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    QuotaAlteration,
    QuotaEntity,
    QuotaFilterComponent,
    QuotaOperation,
)
from brokers.engine.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from brokers.engine.protocol.messages.transactions import InitProducerIdRequest
from tests.brokers.engine.handlers.conftest import MINE, House
from tests.support.records import batch, produce
from tests.support.wire import WireClient


async def _metadata(client: WireClient, *names: str, version: int = 12, auto_create: bool = False) -> Any:
    topics = [MetadataRequestTopic(name=name, topic_id=UUID_ZERO) for name in names] if names else None
    if version == 0 and topics is None:
        topics = []
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=auto_create)
    return await client.call(ApiKey.METADATA, version, request)


def _topic(name: str, partitions: int = 1, replicas: int = 1, **config: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()],
    )


async def _create(client: WireClient, *topics: CreatableTopic, version: int = 7, **more: Any) -> Any:
    return (await client.call(ApiKey.CREATE_TOPICS, version, CreateTopicsRequest(topics=list(topics), **more))).topics


# -- metadata and the cluster
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(13))
async def test_every_metadata_version_shows_my_topics_and_nobody_elses(house: House, version: int) -> None:
    await house.topic("orders", 2)
    await house.broker.create_topic(house.theirs, "secret")

    answer = await _metadata(house.mine, version=version)

    assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("orders", 2)]
    assert [broker.port for broker in answer.brokers] == [house.my_port]


async def test_an_unknown_topic_is_made_when_client_and_owner_want_it(house: House) -> None:
    first = await _metadata(house.mine, "auto", auto_create=True)
    await house.broker.until(lambda: b"auto" in house.broker.broker.current.image.instances[MINE].topics)

    assert first.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (await _metadata(house.mine, "auto")).topics[0].name == "auto"


async def test_nothing_is_made_when_the_client_or_the_owner_does_not_want_it(house: House) -> None:
    unwanted = await _metadata(house.mine, "auto", auto_create=False)
    await house.broker.update_instance(MINE, settings=InstanceSettings(auto_create_topics=False))
    forbidden = await _metadata(house.mine, "auto", auto_create=True)

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
    assert (await _metadata(house.mine)).cluster_id == mine.cluster_id
    assert [broker.port for broker in mine.brokers] == [house.my_port]


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


# -- topics
# ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 8))
async def test_every_create_version_makes_a_topic_that_can_be_written_at_once(house: House, version: int) -> None:
    (made,) = await _create(house.mine, _topic("orders", 3), version=version)

    assert made.error_code == 0
    assert (await produce(house.mine, "orders", batch(b"a"), partition=2)).error_code == 0


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (_topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (_topic("new", 0), ErrorCode.INVALID_PARTITIONS),
        (_topic("new", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (_topic("new", 1, 1, retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (_topic("new", 1, 1, no_such_key="1"), ErrorCode.INVALID_CONFIG),
        (_topic("orders"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (
            CreatableTopic(
                name="new",
                num_partitions=2,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1])],
                configs=[],
            ),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            CreatableTopic(
                name="new",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[9])],
                configs=[],
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
async def test_a_topic_that_cannot_be_is_refused_and_not_made(
    house: House, topic: CreatableTopic, code: ErrorCode
) -> None:
    await house.topic()

    (refused,) = await _create(house.mine, topic)

    assert refused.error_code == code
    assert refused.error_message
    assert [shown.name for shown in (await _metadata(house.mine)).topics] == ["orders"]


async def test_only_checking_makes_nothing(house: House) -> None:
    (checked,) = await _create(house.mine, _topic("orders"), validate_only=True)

    assert checked.error_code == 0
    assert (await _metadata(house.mine)).topics == []


async def test_a_name_twice_in_one_request_is_refused(house: House) -> None:
    answers = await _create(house.mine, _topic("a"), _topic("a"), _topic("b"))

    assert [(answer.name, answer.error_code) for answer in answers] == [("a", ErrorCode.INVALID_REQUEST), ("b", 0)]


async def test_deleting_frees_the_name_and_forgets_the_data(house: House) -> None:
    await house.topic()
    await produce(house.mine, "orders", batch(b"old"))

    request = DeleteTopicsRequest(topics=[], topic_names=["orders", "nowhere"], timeout_ms=5_000)
    answer = await house.mine.call(ApiKey.DELETE_TOPICS, 5, request)
    await house.topic()

    assert [line.error_code for line in answer.responses] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (await produce(house.mine, "orders", batch(b"new"))).base_offset == 0


async def test_deleting_by_id_reaches_my_topics_only(house: House) -> None:
    mine = await house.topic()
    foreign = await house.broker.create_topic(house.theirs, "secret")
    states = [
        DeleteTopicState(name=None, topic_id=foreign),
        DeleteTopicState(name=None, topic_id=mine),
        DeleteTopicState(name=None, topic_id=UUID_ZERO),
    ]

    answer = await house.mine.call(
        ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest(topics=states, topic_names=[], timeout_ms=5_000)
    )

    assert [line.error_code for line in answer.responses] == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        0,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ]
    assert [topic.name for topic in (await _metadata(house.theirs)).topics] == ["secret"]


async def test_a_topic_grows_and_never_shrinks(house: House) -> None:
    await house.topic("orders", 2)

    async def grow(count: int, name: str = "orders") -> int:
        wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=5_000, validate_only=False)
        answer = await house.mine.call(ApiKey.CREATE_PARTITIONS, 3, request)
        return int(answer.results[0].error_code)

    assert await grow(4) == 0
    assert await grow(3) == ErrorCode.INVALID_PARTITIONS
    assert await grow(5, "nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await produce(house.mine, "orders", batch(b"a"), partition=3)).error_code == 0


# -- configs
# --------------------------------------------------------------------------------------------------------------


async def _config(client: WireClient, name: str, *keys: str, kind: int = 2) -> Any:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    return (await client.call(ApiKey.DESCRIBE_CONFIGS, 4, request)).results[0]


async def _alter(house: House, *changes: tuple[str, int, str | None], name: str = "orders") -> int:
    configs = [IncrementalAlterableConfig(name=key, config_operation=kind, value=value) for key, kind, value in changes]
    resource = IncrementalAlterConfigsResource(resource_type=2, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = await house.mine.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    return int(answer.responses[0].error_code)


async def test_settings_are_shown_with_where_they_come_from(house: House) -> None:
    await house.topic(retention_ms="1000")

    (retention,) = (await _config(house.mine, "orders", "retention.ms")).configs
    everything = (await _config(house.mine, "orders")).configs

    assert (retention.value, retention.config_source) == ("1000", 1)
    assert [(synonym.name, synonym.source) for synonym in retention.synonyms] == [
        ("retention.ms", 1),
        ("log.retention.ms", 5),
    ]
    assert len(everything) > 15
    assert all(line.documentation for line in everything)


async def test_settings_are_set_extended_and_put_back(house: House) -> None:
    await house.topic()

    async def value(key: str) -> str:
        return str((await _config(house.mine, "orders", key)).configs[0].value)

    assert await _alter(house, ("retention.ms", 0, "5000"), ("cleanup.policy", 2, "compact")) == 0
    await house.broker.until(lambda: house.broker.broker.current.image.instances[MINE].topics[b"orders"].config)
    assert (await value("retention.ms"), await value("cleanup.policy")) == ("5000", "delete,compact")
    before = house.broker.broker.current.image
    assert await _alter(house, ("retention.ms", 1, None), ("cleanup.policy", 3, "delete")) == 0
    await house.broker.until(lambda: house.broker.broker.current.image is not before)
    assert (await value("retention.ms"), await value("cleanup.policy")) == ("604800000", "compact")


@pytest.mark.parametrize(
    ("change", "name", "code"),
    [
        (("no.such.key", 0, "1"), "orders", ErrorCode.INVALID_CONFIG),
        (("no.such.key", 1, None), "orders", ErrorCode.INVALID_CONFIG),
        (("retention.ms", 0, "soon"), "orders", ErrorCode.INVALID_CONFIG),
        (("retention.ms", 2, "1"), "orders", ErrorCode.INVALID_CONFIG),
        (("retention.ms", 9, "1"), "orders", ErrorCode.INVALID_REQUEST),
        (("retention.ms", 0, "1"), "secret", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("retention.ms", 0, "1"), "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
async def test_a_setting_that_cannot_be_is_refused(
    house: House, change: tuple[str, int, str | None], name: str, code: ErrorCode
) -> None:
    await house.topic()
    await house.broker.create_topic(house.theirs, "secret")

    assert await _alter(house, change, name=name) == code


async def test_brokers_show_no_settings_and_foreign_topics_are_unknown(house: House) -> None:
    await house.broker.create_topic(house.theirs, "secret")

    assert (await _config(house.mine, "1", kind=4)).configs == []
    assert (await _config(house.mine, "77", kind=4)).error_code == ErrorCode.INVALID_REQUEST
    assert (await _config(house.mine, "secret")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- client quotas
# --------------------------------------------------------------------------------------------------------


async def _set_quota(client: WireClient, parts: dict[str, str | None], key: str, value: float | None) -> int:
    entity = [QuotaEntity(entity_type=kind, entity_name=name) for kind, name in parts.items()]
    operation = QuotaOperation(key=key, value=value or 0.0, remove=value is None)
    request = AlterClientQuotasRequest(entries=[QuotaAlteration(entity=entity, ops=[operation])], validate_only=False)
    return int((await client.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, request)).entries[0].error_code)


async def _quotas(client: WireClient, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    wanted = [QuotaFilterComponent(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    request = DescribeClientQuotasRequest(components=wanted, strict=strict)
    return await client.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, request)


async def test_quotas_are_set_shown_and_removed_within_one_instance(house: House) -> None:
    image = house.broker.broker.current
    assert await _set_quota(house.mine, {"client-id": "etl"}, "producer_byte_rate", 1000.0) == 0
    assert await _set_quota(house.mine, {"user": "u", "client-id": None}, "consumer_byte_rate", 5.0) == 0
    await house.broker.until(lambda: len(image.image.quotas.of_instance(MINE)) == 2)

    exact = await _quotas(house.mine, ("client-id", 0, "etl"))
    strict = await _quotas(house.mine, ("client-id", 2, None), strict=True)
    default = await _quotas(house.mine, ("client-id", 1, None))

    assert [(value.key, value.value) for value in exact.entries[0].values] == [("producer_byte_rate", 1000.0)]
    assert len(strict.entries) == 1
    assert [part.entity_name for part in default.entries[0].entity] == ["u", None]
    assert (await _quotas(house.theirs)).entries == []
    assert await _set_quota(house.mine, {"client-id": "etl"}, "producer_byte_rate", None) == 0
    await house.broker.until(lambda: len(image.image.quotas.of_instance(MINE)) == 1)


@pytest.mark.parametrize(
    ("parts", "key", "value"),
    [
        ({}, "producer_byte_rate", 1.0),
        ({"ip": "1.2.3.4"}, "producer_byte_rate", 1.0),
        ({"group": "g"}, "producer_byte_rate", 1.0),
        ({"user": "u"}, "no_such_quota", 1.0),
        ({"user": "u"}, "producer_byte_rate", 1.5),
    ],
)
async def test_a_quota_that_cannot_be_is_refused(
    house: House, parts: dict[str, str | None], key: str, value: float
) -> None:
    assert await _set_quota(house.mine, parts, key, value) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", 0, "a"), ("user", 0, "b")], ErrorCode.INVALID_REQUEST),
        ([("", 0, "a")], ErrorCode.INVALID_REQUEST),
        ([("group", 0, "a")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 9, "a")], ErrorCode.INVALID_REQUEST),
        ([("ip", 0, "1.2.3.4"), ("user", 0, "a")], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_filter_that_cannot_be_is_refused(
    house: House, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    assert (await _quotas(house.mine, *components)).error_code == code


# -- offsets and producer ids
# -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 10))
async def test_every_list_offsets_version_knows_both_ends(house: House, version: int) -> None:
    await house.topic()
    await produce(house.mine, "orders", batch(b"a", b"b"))

    async def at(timestamp: int) -> tuple[int, int]:
        wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(isolation_level=0, topics=[ListOffsetsTopic(name="orders", partitions=[wanted])])
        line = (await house.mine.call(ApiKey.LIST_OFFSETS, version, request)).topics[0].partitions[0]
        return line.error_code, line.offset

    assert await at(-2) == (0, 0)
    assert await at(-1) == (0, 2)


async def test_a_partition_asked_twice_for_its_offset_is_refused(house: House) -> None:
    await house.topic()
    twice = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * 2
    request = ListOffsetsRequest(isolation_level=0, topics=[ListOffsetsTopic(name="orders", partitions=twice)])

    answer = await house.mine.call(ApiKey.LIST_OFFSETS, 7, request)

    assert {line.error_code for line in answer.topics[0].partitions} == {ErrorCode.INVALID_REQUEST}


async def test_producer_ids_are_never_given_twice(house: House) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)

    ids = [(await house.mine.call(ApiKey.INIT_PRODUCER_ID, 4, request)).producer_id for _ in range(3)]
    ids += [(await house.theirs.call(ApiKey.INIT_PRODUCER_ID, 0, request)).producer_id]

    assert len(set(ids)) == 4
    assert min(ids) >= 0


@pytest.mark.parametrize(
    ("transactional_id", "producer_id", "code"),
    [
        ("tx", -1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("", -1, ErrorCode.INVALID_REQUEST),
        (None, 7, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_transactional_and_half_given_producer_ids_are_refused(
    house: House, transactional_id: str | None, producer_id: int, code: ErrorCode
) -> None:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=1, producer_id=producer_id, producer_epoch=-1
    )

    assert (await house.mine.call(ApiKey.INIT_PRODUCER_ID, 4, request)).error_code == code
