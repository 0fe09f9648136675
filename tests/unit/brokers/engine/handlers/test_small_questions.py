"""Small requests have no unbounded responses, and long ones do not delay other clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brokers.engine.access.authorizer import peer_address
from brokers.engine.access.principals import tenant_port_principal
from brokers.engine.handlers.api_table import API_TABLE, DISPATCH_TABLE
from brokers.engine.handlers.common import long_requests
from brokers.engine.handlers.common.background import PARTITIONS_PER_TURN_MAX, split_into_parts
from brokers.engine.handlers.common.long_requests import DuplicateLimit, encode_in_chunks
from brokers.engine.handlers.configs import describe_configs
from brokers.engine.handlers.context import RequestContext, TenantMetadataView
from brokers.engine.handlers.fetch import legacy, list_offsets
from brokers.engine.handlers.fetch.async_fetch import encode_rejection
from brokers.engine.handlers.fetch.request import DELAYED_UNCOUNTED_MAX
from brokers.engine.handlers.offsets import legacy as old_offsets
from brokers.engine.handlers.offsets import offsets
from brokers.engine.handlers.offsets.offsets import response_length
from brokers.engine.handlers.produce import async_produce
from brokers.engine.handlers.produce.request import ProduceRequest as ServedProduce
from brokers.engine.handlers.produce.request import TopicResult
from brokers.engine.handlers.produce.response import DelayedProduceResponse
from brokers.engine.handlers.session import RawRequest, Session
from brokers.engine.handlers.topics import metadata, topics
from brokers.engine.handlers.transactions import add_partitions, describing
from brokers.engine.protocol.apis import ADVERTISED_TENANT, ApiKey
from brokers.engine.protocol.codec import decode_response, encode_request
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fast_codec_fetch import FetchFrame, FetchTopicRequest
from brokers.engine.protocol.fast_codec_produce import encode_produced_topics
from brokers.engine.protocol.fields import UUID_ZERO
from brokers.engine.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchTopic
from brokers.engine.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from brokers.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from brokers.engine.protocol.messages.offsets import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
)
from brokers.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from brokers.engine.protocol.messages.producers import DescribeProducersRequest, DescribeProducersTopic
from brokers.engine.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from brokers.engine.protocol.messages.transactions import AddPartitionsToTxnResponse, AddPartitionsToTxnTopic
from brokers.engine.scheduling.time_slice import free_incrementally
from tests.testkit.records import batch, fetch_request, produce
from tests.testkit.turns import count_turns
from tests.unit.brokers.engine.handlers.conftest import MINE, House

TOPIC, BROKER = 2, 4


async def turns_taken_by_others(house: House, api_key: int, version: int, request: object) -> int:
    """Counts the turns of the event loop that others got between the arrival of a request and its response."""
    turns, with_forwarding = 0, False

    async def count() -> None:
        nonlocal turns
        while not with_forwarding:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await house.mine.call(api_key, version, request)
    with_forwarding = True
    await counting
    return turns


@pytest.mark.parametrize("version", [1, 9, 12])
async def test_a_topic_named_a_thousand_times_is_described_once(house: House, version: int) -> None:
    topic_id = await house.topic(partitions=10)
    named = [MetadataRequestTopic(name="orders", topic_id=UUID_ZERO)] * 1_000
    if version >= 10:
        named += [MetadataRequestTopic(name=None, topic_id=topic_id)] * 1_000

    answer = await house.mine.call(ApiKey.METADATA, version, MetadataRequest(topics=named))

    assert [topic.name for topic in answer.topics] == ["orders"] * len({topic.topic_id for topic in named})


async def test_producers_are_described_until_the_answer_is_long_enough(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describing, "PRODUCERS_PER_RESPONSE_MAX", 3)
    await house.topic()
    for producer_id in (1, 2):
        await produce(house.mine, "orders", batch(b"a", producer_id=producer_id, producer_epoch=0, base_sequence=0))

    asked = DescribeProducersTopic(name="orders", partition_indexes=[0] * 5)
    answer = await house.mine.call(ApiKey.DESCRIBE_PRODUCERS, 0, DescribeProducersRequest(topics=[asked]))

    result = [(line.error_code, len(line.active_producers)) for line in answer.topics[0].partitions]
    assert result == [(0, 2), (0, 2)] + [(ErrorCode.INVALID_REQUEST, 0)] * 3


async def test_segments_are_looked_at_until_there_were_enough(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_offsets, "SEGMENTS_PER_RESPONSE_MAX", 2)
    await house.topic()
    await produce(house.mine, "orders", batch(b"a"))

    asked = [ListOffsetsPartition(partition_index=0, timestamp=-1, max_num_offsets=9)] * 4
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="orders", partitions=asked)])
    answer = await house.mine.call(ApiKey.LIST_OFFSETS, 0, request)

    result = [(line.error_code, line.old_style_offsets) for line in answer.topics[0].partitions]
    assert result == [(0, [1, 0])] * 2 + [(ErrorCode.INVALID_REQUEST, [])] * 2


async def test_many_settings_are_described_while_others_are_served(house: House) -> None:
    await house.topic()
    topic = DescribeConfigsResource(resource_type=TOPIC, resource_name="orders", configuration_keys=None)

    turns = await turns_taken_by_others(
        house, ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[topic] * 500)
    )

    assert turns > 500 / describe_configs.DESCRIBED_AT_ONCE_MAX


async def test_many_topics_are_checked_while_others_are_served(house: House) -> None:
    wanted = [
        CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for number in range(200)
    ]
    request = CreateTopicsRequest(topics=wanted, timeout_ms=1_000, validate_only=True)

    assert await turns_taken_by_others(house, ApiKey.CREATE_TOPICS, 7, request) > 200


async def test_each_resource_and_topic_beyond_the_limit_is_refused(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "TOPICS_PER_CALL_MAX", 1)
    asked = DescribeConfigsResource(resource_type=TOPIC, resource_name="nowhere", configuration_keys=None)
    altered = [
        IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name=f"nowhere{number}", configs=[])
        for number in range(describe_configs.RESOURCES_MAX + 1)
    ]

    described = await house.mine.call(
        ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[asked] * (describe_configs.RESOURCES_MAX + 1))
    )
    alterations = await house.mine.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=altered, validate_only=True)
    )
    deleted = await house.mine.call(
        ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topics=[], topic_names=["a", "b"], timeout_ms=1_000)
    )

    for answers in (described.results, alterations.responses, deleted.responses):
        assert [answer.error_code for answer in answers[-2:]] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REQUEST,
        ]


@pytest.mark.parametrize("name", ["9" * 5_000, "٣", "²"])
async def test_a_broker_of_a_strange_number_is_refused_and_the_connection_stays(house: House, name: str) -> None:
    asked = DescribeConfigsResource(resource_type=BROKER, resource_name=name, configuration_keys=None)

    answer = await house.mine.call(ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[asked]))

    assert answer.results[0].error_code == ErrorCode.INVALID_REQUEST
    assert not house.broker.broker.listeners.counters.faults


@pytest.mark.parametrize("version", [3, 12])
async def test_a_fetch_of_more_partitions_than_there_are_is_kept_nowhere(house: House, version: int) -> None:
    await house.topic(partitions=2)
    request = fetch_request("orders", max_wait_ms=600_000)
    (topic,) = request.topics
    wanted = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=100)
        for index in range(DELAYED_UNCOUNTED_MAX + 1)
    ]
    topic.partitions = wanted

    answer = await house.mine.call(ApiKey.FETCH, version, request)

    assert len(answer.responses[0].partitions) == DELAYED_UNCOUNTED_MAX + 1
    topic.partitions = wanted[:4] + wanted[:1] * DELAYED_UNCOUNTED_MAX
    await house.mine.send(ApiKey.FETCH, version, request)
    waits = [house.broker.broker.table.get(f"{MINE}.orders", 0)]
    await house.broker.until(lambda: all(partition is not None and partition.delayed_operations for partition in waits))


HOLLOW = [f"topic-{number:05}" for number in range(20_000)]


async def test_producers_of_very_many_topics_without_partitions_are_described_in_turns(house: House) -> None:
    asked = [DescribeProducersTopic(name=name, partition_indexes=[]) for name in HOLLOW]
    request = DescribeProducersRequest(topics=asked)
    answer = await house.mine.call(ApiKey.DESCRIBE_PRODUCERS, 0, request)
    assert [topic.name for topic in answer.topics] == HOLLOW
    assert describing.response_length(answer) == len(HOLLOW)  # so it is encoded in turns, too
    received = await turns_taken_by_others(house, ApiKey.DESCRIBE_PRODUCERS, 0, DescribeProducersRequest(topics=[]))
    assert await turns_taken_by_others(house, ApiKey.DESCRIBE_PRODUCERS, 0, request) > received + 10


async def test_offsets_of_very_many_topics_without_partitions_are_looked_through_in_turns() -> None:
    async with count_turns() as turns:
        assert not await DuplicateLimit().exceeded_by_many([(name, []) for name in HOLLOW])
    assert turns() > 1
    found = [OffsetFetchResponseTopics(name=name, partitions=[]) for name in HOLLOW]
    group = OffsetFetchResponseGroup(group_id="g", topics=found, error_code=0)
    assert response_length(OffsetFetchResponse(topics=[], groups=[group])) >= len(HOLLOW)


async def test_topics_without_partitions_are_assembled_in_turns() -> None:
    async with count_turns() as turns:
        (group,) = await offsets._fetched_groups([("g", (0, [(name, []) for name in HOLLOW]))])
        assert len(group.topics) == len(HOLLOW)
        assert turns() > 1


async def test_offsets_in_zookeeper_of_very_many_partitions_are_looked_up_in_turns(house: House) -> None:
    services = house.broker.broker.services
    view = TenantMetadataView(object(), services.metadata.current.image, tenant_port_principal(MINE))
    call = RequestContext(services, view, API_TABLE[ApiKey.OFFSET_FETCH], 0, "", peer_address("127.0.0.1"))
    for wanted in ([("orders", list(range(20_000)))], [(name, []) for name in HOLLOW], [("orders", [0] * 10_000)]):
        async with count_turns() as turns:
            found = await old_offsets.fetch(call, "g", wanted)
            assert turns() > 1
        assert [(name, [line.partition for line in lines]) for name, lines in found] == wanted


async def test_topics_without_partitions_that_a_transaction_names_are_answered_in_turns() -> None:
    named = [AddPartitionsToTxnTopic(name=name, partitions=[]) for name in HOLLOW]
    async with count_turns() as turns:
        assert await add_partitions._requested_partitions(named) == {}
        assert turns() > 1
    async with count_turns() as turns:
        lines = await add_partitions._results_by_topic(cast(RequestContext, None), named, {})
        assert turns() > 1
    assert add_partitions.response_length(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=lines)) == len(
        HOLLOW
    )


async def test_a_fetch_of_very_many_topics_without_partitions_is_refused_in_turns() -> None:
    wanted: list[FetchTopicRequest] = [(name.encode(), []) for name in HOLLOW]
    frame = FetchFrame(-1, 500, 1, 1 << 20, 0, 0, -1, wanted, [], "")
    async with count_turns() as turns:
        answer = await encode_rejection(12, 7, int(ErrorCode.UNKNOWN_SERVER_ERROR), frame)
        assert turns() > 1
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4 and HOLLOW[-1].encode() in answer


async def test_a_produce_of_very_many_topics_without_partitions_is_gone_through_in_turns(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = []

    def recorded(topics: Any, *weigh: Any) -> Iterator[Any]:
        for part in split_into_parts(topics, *weigh):
            if weigh:  # the append; the search for slow batches goes over the same topics before
                parts.append(part)
            yield part

    monkeypatch.setattr(async_produce, "split_into_parts", recorded)
    asked = [TopicProduceData(name=name, partition_data=[]) for name in HOLLOW]
    request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=1_000, topic_data=asked)
    answer = await house.mine.call(ApiKey.PRODUCE, 9, request)
    assert [topic.name for topic in answer.responses] == HOLLOW
    assert len(parts) == -(-len(HOLLOW) // PARTITIONS_PER_TURN_MAX)


async def test_the_answer_to_a_produce_of_very_many_topics_is_encoded_in_parts(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = []

    def recorded(version: int, results: list[Any]) -> bytes:
        encoded.append(len(results))
        return encode_produced_topics(version, results)

    monkeypatch.setattr(async_produce, "encode_produced_topics", recorded)
    await house.topic()
    good = TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=batch(b"x"))])
    asked = [good, *(TopicProduceData(name=name, partition_data=[]) for name in HOLLOW)]
    for acks in (-1, 1):
        request = ProduceRequest(transactional_id=None, acks=acks, timeout_ms=1_000, topic_data=asked)
        for version in (8, 9):
            encoded.clear()
            answer = await house.mine.call(ApiKey.PRODUCE, version, request)
            assert [topic.name for topic in answer.responses] == ["orders", *HOLLOW]
            assert answer.responses[0].partition_responses[0].error_code == 0
            assert sum(encoded) == len(asked) and max(encoded) <= async_produce.ENCODED_AT_ONCE_MAX + 1


async def test_only_parts_of_an_answer_with_failures_are_encoded_again(house: House) -> None:
    await house.topic()
    channel = cast(Any, SimpleNamespace(peer_host="127.0.0.1"))
    session = Session(
        house.broker.broker.services, channel, tenant_port_principal(MINE), ADVERTISED_TENANT, DISPATCH_TABLE
    )
    internal = session.view().namespace.topics[b"orders"].name
    results: list[list[TopicResult]] = [
        [(b"orders", [(0, 0, 7, -1, 0, None)])],
        [(b"other", [(0, 3, -1, -1, -1, None)])],
    ]
    parts = [(part, encode_produced_topics(9, part)) for part in results]
    untouched = parts[1]
    message = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1_000, topic_data=[])
    body = memoryview(bytearray(encode_request(ApiKey.PRODUCE, 9, message)))
    request = ServedProduce(session, RawRequest(9, 1, None, body, 0, 0, len(body)))
    request.results = [topic for part in results for topic in part]
    request.internal_names = {b"orders": internal}
    request.encoded_parts = parts
    delayed = DelayedProduceResponse(request, 0)

    frame = delayed.frame_of({(internal, 0): int(ErrorCode.REQUEST_TIMED_OUT)})

    orders, other = decode_response(ApiKey.PRODUCE, 9, frame, 9, len(frame)).responses
    assert orders.partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert other.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert parts[1] is untouched


async def test_a_topic_that_is_named_again_and_again_is_looked_at_in_turns(house: House) -> None:
    again = MetadataRequest(topics=[MetadataRequestTopic(name="orders")] * 20_000)
    assert len((await house.mine.call(ApiKey.METADATA, 12, again)).topics) == 1
    services = house.broker.broker.services
    view = TenantMetadataView(object(), services.metadata.current.image, tenant_port_principal(MINE))
    call = RequestContext(services, view, API_TABLE[ApiKey.METADATA], 12, "", peer_address("127.0.0.1"))
    assert len(list(metadata._topics(call, again))) == 20_000


async def test_a_long_list_is_freed_in_turns() -> None:
    topics = [("a", list(range(10_000))), *((str(number), [number]) for number in range(50_000))]
    async with count_turns() as turns:
        await free_incrementally(topics, lambda topic: topic[1])
        assert turns() > 1
    assert topics == []


async def test_an_old_fetch_of_very_many_topics_without_partitions_is_encoded_in_turns(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = []

    async def recorded(api_key: int, version: int, response: Any) -> Any:
        encoded.append(len(response.responses))
        return await encode_in_chunks(api_key, version, response)

    monkeypatch.setattr(legacy, "encode_in_chunks", recorded)
    request = fetch_request("orders")
    request.topics = [FetchTopic(topic=name, partitions=[]) for name in HOLLOW]
    answer = await house.mine.call(ApiKey.FETCH, 3, request)
    assert [topic.topic for topic in answer.responses] == HOLLOW
    assert encoded == [len(HOLLOW)]


async def test_an_answer_that_repeats_few_but_very_long_names_is_encoded_in_pieces(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = []

    async def recorded(api_key: int, version: int, response: Any) -> Any:
        encoded.append(len(response.topics))
        return await encode_in_chunks(api_key, version, response)

    monkeypatch.setattr(long_requests, "encode_in_chunks", recorded)
    for count in (10, 40):
        names = [MetadataRequestTopic(name=f"{number:02}" + "x" * 30_000) for number in range(count)]
        answer = await house.mine.call(ApiKey.METADATA, 9, MetadataRequest(topics=names))
        assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_TOPIC_EXCEPTION] * count
    assert encoded == [40]
