"""CreateTopics, DeleteTopics and CreatePartitions, as the owner of an instance sees them."""

from __future__ import annotations

import asyncio

import pytest

from brokers.engine.handlers.topics.topics import TOPICS_PER_CALL_MAX
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fields import UUID_ZERO
from brokers.engine.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.testkit.records import batch, produce
from tests.unit.brokers.engine.handlers.asking import config_of, create, metadata_of, wanted_topic
from tests.unit.brokers.engine.handlers.conftest import MINE, House


@pytest.mark.parametrize("version", range(2, 8))
async def test_every_create_version_makes_a_topic_that_can_be_written_at_once(house: House, version: int) -> None:
    (made,) = await create(house.mine, wanted_topic("orders", 3), version=version)

    assert made.error_code == 0
    assert (await produce(house.mine, "orders", batch(b"a"), partition=2)).error_code == 0


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (wanted_topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted_topic("new", 0), ErrorCode.INVALID_PARTITIONS),
        (wanted_topic("new", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted_topic("new", 1, 1, retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (wanted_topic("new", 1, 1, no_such_key="1"), ErrorCode.INVALID_CONFIG),
        (wanted_topic("orders"), ErrorCode.TOPIC_ALREADY_EXISTS),
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

    (refused,) = await create(house.mine, topic)

    assert refused.error_code == code
    assert refused.error_message
    assert [shown.name for shown in (await metadata_of(house.mine)).topics] == ["orders"]


async def test_only_checking_makes_nothing(house: House) -> None:
    (checked,) = await create(house.mine, wanted_topic("orders"), validate_only=True)

    assert (checked.error_code, checked.topic_id) == (0, UUID_ZERO)
    assert (await metadata_of(house.mine)).topics == []


async def test_a_name_twice_in_one_request_is_refused(house: House) -> None:
    answers = await create(house.mine, wanted_topic("a"), wanted_topic("a"), wanted_topic("b"))

    assert [(answer.name, answer.error_code) for answer in answers] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", 0),
    ]


@pytest.mark.parametrize("validate_only", [False, True])
async def test_the_second_of_two_names_that_collide_in_metrics_is_refused(house: House, validate_only: bool) -> None:
    """The collision is found before the metadata has the first topic (CTL-18)."""
    names = ("a.b", "a_b", "a-b")

    answers = await create(house.mine, *map(wanted_topic, names), validate_only=validate_only)

    assert [answer.error_code for answer in answers] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION, 0]


async def test_too_many_topics_in_one_request_are_all_refused(house: House) -> None:
    wanted = [wanted_topic(f"t{number}") for number in range(TOPICS_PER_CALL_MAX + 1)]

    answers = await create(house.mine, *wanted)

    assert len(answers) == len(wanted)
    assert {answer.error_code for answer in answers} == {ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (wanted_topic("orders", no_such_key="1"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (wanted_topic("new", 0, no_such_key="1"), ErrorCode.INVALID_PARTITIONS),
        (wanted_topic("a b", no_such_key="1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted_topic("new", no_such_key="1"), ErrorCode.INVALID_CONFIG),
    ],
)
async def test_a_wrong_setting_is_the_last_thing_to_complain_of(
    house: House, topic: CreatableTopic, code: ErrorCode
) -> None:
    await house.topic()

    assert [answer.error_code for answer in await create(house.mine, topic)] == [code]
    assert [shown.name for shown in (await metadata_of(house.mine)).topics] == ["orders"]


async def test_the_last_of_two_values_for_a_setting_counts(house: House) -> None:
    topic = wanted_topic("orders")
    topic.configs = [CreatableTopicConfig(name="retention.ms", value=value) for value in ("1000", "2000")]

    (made,) = await create(house.mine, topic)

    assert made.error_code == 0
    assert (await config_of(house.mine, "orders", "retention.ms")).configs[0].value == "2000"


async def test_deleting_frees_the_name_and_forgets_the_data(house: House) -> None:
    await house.topic()
    await produce(house.mine, "orders", batch(b"old"))

    request = DeleteTopicsRequest(topics=[], topic_names=["orders", "nowhere"], timeout_ms=5_000)
    answer = await house.mine.call(ApiKey.DELETE_TOPICS, 5, request)
    await house.topic()
    table = house.broker.broker.services.storage.table
    # Its log waits until the checkpoint files have dropped the former one.
    await house.broker.until(lambda: (held := table.get(f"{MINE}.orders", 0)) is not None and held.is_leader)

    assert [line.error_code for line in answer.responses] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (await produce(house.mine, "orders", batch(b"new"))).base_offset == 0


@pytest.mark.parametrize("version", [5, 6])
async def test_a_topic_listed_twice_is_deleted_once_and_answered_twice(house: House, version: int) -> None:
    topic_id = await house.topic()
    by_name = DeleteTopicState(name="orders", topic_id=UUID_ZERO)
    request = DeleteTopicsRequest(
        topics=[by_name, DeleteTopicState(name=None, topic_id=topic_id)],
        topic_names=["orders", "orders"],
        timeout_ms=5_000,
    )

    answer = await house.mine.call(ApiKey.DELETE_TOPICS, version, request)

    assert [(line.name, line.error_code) for line in answer.responses] == [("orders", 0), ("orders", 0)]
    assert (await metadata_of(house.mine)).topics == []


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
    assert [topic.name for topic in (await metadata_of(house.theirs)).topics] == ["secret"]


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
    assert await grow(5, "a/b") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await produce(house.mine, "orders", batch(b"a"), partition=3)).error_code == 0


def partitions_seen(house: House) -> int:
    return sum(len(topic.partitions) for topic in house.broker.broker.current.image.instances[MINE].topics.values())


async def test_topics_made_at_the_same_time_find_no_more_room_than_there_is(house: House) -> None:
    await house.broker.update_instance(MINE, partitions_max=7)  # two topics of three partitions
    clients = [await house.broker.client(house.my_port) for _ in range(5)]

    await metadata_of(house.mine, *(f"auto{number}" for number in range(20)), auto_create=True)
    await asyncio.gather(*(create(client, wanted_topic(f"made{number}", 3)) for number, client in enumerate(clients)))
    await house.broker.until(lambda: not house.broker.broker.services.metadata.topics_being_created)
    await house.broker.until(lambda: partitions_seen(house) >= 6)
    assert partitions_seen(house) == 6
    growing = [CreatePartitionsTopic(name=f"auto{number}", count=4, assignments=None) for number in range(2)]
    requests = [CreatePartitionsRequest(topics=[item], timeout_ms=1_000, validate_only=False) for item in growing]
    calls = zip(clients, requests, strict=False)
    await asyncio.gather(*(client.call(ApiKey.CREATE_PARTITIONS, 3, request) for client, request in calls))

    assert partitions_seen(house) == 7


async def test_a_topic_that_was_just_made_and_deleted_takes_no_room(house: House) -> None:
    await house.broker.update_instance(MINE, partitions_max=3)
    request = DeleteTopicsRequest(topics=[], topic_names=["made0"], timeout_ms=5_000)
    assert [line.error_code for line in await create(house.mine, wanted_topic("made0", 3))] == [0]
    assert (await house.mine.call(ApiKey.DELETE_TOPICS, 5, request)).responses[0].error_code == 0
    await house.broker.until(lambda: partitions_seen(house) == 0)

    answer = await create(house.mine, wanted_topic("made1", 3))

    assert [line.error_code for line in answer] == [0]


@pytest.mark.parametrize(("version", "code"), [(1, 42), (3, 73), (6, 73)])
async def test_where_deletion_is_disabled_a_topic_stays_and_its_owner_reads_why(
    house: House, version: int, code: int
) -> None:
    """CTL-20."""
    await house.topic()
    house.broker.broker.services.metadata.deletes_topics = False
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders", topic_id=UUID_ZERO)], timeout_ms=5_000)
    if version < 6:
        request = DeleteTopicsRequest(topic_names=["orders", "unknown"], timeout_ms=5_000)
    answer = await house.mine.call(ApiKey.DELETE_TOPICS, version, request)
    assert {result.error_code for result in answer.responses} == {code}
    assert (await metadata_of(house.mine)).topics[0].name == "orders"

    house.broker.broker.services.metadata.deletes_topics = True
    answer = await house.mine.call(ApiKey.DELETE_TOPICS, version, request)
    assert answer.responses[0].error_code == 0
