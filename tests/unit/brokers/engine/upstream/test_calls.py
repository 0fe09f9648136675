"""Handlers of the gateway: what they forward, and how long they keep the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brokers.engine.access.authorizer import peer_address
from brokers.engine.access.principals import Principal
from brokers.engine.capacity.room import StorageRoom
from brokers.engine.handlers.context import RequestContext, TenantMetadataView
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.mapping import ToTenant, ToUpstream
from brokers.engine.protocol.messages import configs, groups, list_offsets, offsets, produce, topics, transactions
from brokers.engine.upstream import group_calls, topic_administration, topic_calls, transaction_calls
from brokers.engine.upstream.call import Call
from brokers.engine.upstream.calls import FORWARDED_APIS
from brokers.engine.upstream.response_memory import ResponseMemory
from brokers.engine.upstream.storage import UpstreamStorage
from tests.testkit.in_process import InProcessBroker

MINE = "ins-aaaaaaaa"
MANY = 40_000
K = ApiKey


class Unreachable:
    """An upstream that nothing may be sent to."""

    async def exchange(self, api_key: int, *_: Any, **__: Any) -> tuple[bytes, int]:
        raise AssertionError(f"api key {api_key} was forwarded")

    async def send(self, api_key: int, *_: Any) -> None:
        raise AssertionError(f"api key {api_key} was forwarded")


@pytest.fixture
async def call(tmp_path: Path) -> AsyncIterator[Callable[[ApiKey, int], Call]]:
    """Returns a function that makes the call of a user without any right."""
    async with InProcessBroker(tmp_path) as broker:
        await broker.create_instance(MINE, allow_everyone_if_no_acl=False)
        services = broker.broker.services
        principal = Principal("alice", MINE)

        def make(api_key: ApiKey, version: int) -> Call:
            view = TenantMetadataView(object(), services.metadata.current.image, principal)
            address = peer_address("127.0.0.1")
            context = RequestContext(services, view, FORWARDED_APIS[api_key], version, "", address)
            names = ToUpstream(f"{MINE}."), ToTenant(f"{MINE}.", "cluster", {})
            return Call(context, Unreachable(), {}, names, ResponseMemory(lambda instance_id: instance_id))

        yield make


async def test_a_denied_group_or_transaction_is_not_forwarded_without_topics(
    call: Callable[[ApiKey, int], Call],
) -> None:
    committed = await group_calls.commit_offsets(
        call(K.OFFSET_COMMIT, 7), offsets.OffsetCommitRequest(group_id="g", topics=[])
    )
    assert committed.topics == []
    added = await transaction_calls.add_partitions(
        call(K.ADD_PARTITIONS_TO_TXN, 3),
        transactions.AddPartitionsToTxnRequest(v3_and_below_transactional_id="t", v3_and_below_topics=[]),
    )
    assert added.results_by_topic_v3_and_below == []
    in_transaction = await transaction_calls.commit_offsets(
        call(K.TXN_OFFSET_COMMIT, 3), transactions.TxnOffsetCommitRequest(transactional_id="t", group_id="g", topics=[])
    )
    assert in_transaction.topics == []


def _creation() -> Any:
    return topics.CreateTopicsRequest(topics=[topics.CreatableTopic(name=f"t{number}") for number in range(MANY)])


def _deletion() -> Any:
    return topics.DeleteTopicsRequest(topic_names=[f"t{number}" for number in range(MANY)])


def _description() -> Any:
    wanted = [configs.DescribeConfigsResource(resource_type=2, resource_name=f"t{number}") for number in range(MANY)]
    return configs.DescribeConfigsRequest(resources=wanted)


def _keys() -> Any:
    return groups.FindCoordinatorRequest(key_type=0, coordinator_keys=[f"g{number}" for number in range(MANY)])


def _groups() -> Any:
    return offsets.OffsetFetchRequest(
        groups=[offsets.OffsetFetchRequestGroup(group_id=f"g{number}", topics=None) for number in range(MANY)]
    )


async def _create(call: Call, request: Any) -> Any:
    return (await topic_administration.create_topics(call, request, asyncio.Lock(), 10)).topics


async def _delete(call: Call, request: Any) -> Any:
    return (await topic_administration.delete_topics(call, request)).responses


async def _describe(call: Call, request: Any) -> Any:
    return (await topic_administration.describe_configs(call, request)).results


async def _find(call: Call, request: Any) -> Any:
    return (await group_calls.find_coordinator(call, request)).coordinators


async def _fetch(call: Call, request: Any) -> Any:
    return (await group_calls.fetch_offsets(call, request)).groups


@pytest.mark.parametrize(
    ("api_key", "version", "request_of", "handle"),
    [
        (K.CREATE_TOPICS, 7, _creation, _create),
        (K.DELETE_TOPICS, 5, _deletion, _delete),
        (K.DESCRIBE_CONFIGS, 4, _description, _describe),
        (K.FIND_COORDINATOR, 4, _keys, _find),
        (K.OFFSET_FETCH, 8, _groups, _fetch),
    ],
)
async def test_a_request_of_very_many_items_lets_others_run(
    call: Callable[[ApiKey, int], Call],
    api_key: ApiKey,
    version: int,
    request_of: Callable[[], Any],
    handle: Callable[[Call, Any], Any],
) -> None:
    results, turns = await _with_turns(handle(call(api_key, version), request_of()))
    assert len(results) == MANY
    assert ErrorCode.NONE not in {result.error_code for result in results}
    assert turns > 1


async def _with_turns(work: Awaitable[Any]) -> tuple[Any, int]:
    """Returns the result of the work, and the number of turns that another task had meanwhile."""
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    result = await work
    counting.cancel()
    return result, turns


def _offsets() -> Any:
    lines = [list_offsets.ListOffsetsPartition(partition_index=index) for index in range(MANY)]
    return list_offsets.ListOffsetsRequest(topics=[list_offsets.ListOffsetsTopic(name="orders", partitions=lines)])


def _commit() -> Any:
    lines = [offsets.OffsetCommitRequestPartition(partition_index=index) for index in range(MANY)]
    return offsets.OffsetCommitRequest(
        group_id="g", topics=[offsets.OffsetCommitRequestTopic(name="orders", partitions=lines)]
    )


def _committed() -> Any:
    wanted = [offsets.OffsetFetchRequestTopic(name="orders", partition_indexes=list(range(MANY)))]
    return offsets.OffsetFetchRequest(group_id="g", topics=wanted)


def _additions() -> Any:
    wanted = [transactions.AddPartitionsToTxnTopic(name="orders", partitions=list(range(MANY)))]
    return transactions.AddPartitionsToTxnRequest(v3_and_below_transactional_id="t", v3_and_below_topics=wanted)


async def _added(call: Call, request: Any) -> Any:
    (topic,) = (await transaction_calls.add_partitions(call, request)).results_by_topic_v3_and_below
    return [result.partition_error_code for result in topic.results_by_partition]


def _codes_of(handle: Callable[[Call, Any], Awaitable[Any]]) -> Callable[[Call, Any], Awaitable[list[int]]]:
    """Returns a function that calls `handle`, and returns the error codes of the partitions of its only topic."""

    async def codes(call: Call, request: Any) -> list[int]:
        (topic,) = (await handle(call, request)).topics
        return [partition.error_code for partition in topic.partitions]

    return codes


@pytest.mark.parametrize(
    ("api_key", "version", "request_of", "codes_of"),
    [
        (K.LIST_OFFSETS, 8, _offsets, _codes_of(topic_calls.find_offsets)),
        (K.OFFSET_COMMIT, 8, _commit, _codes_of(group_calls.commit_offsets)),
        (K.OFFSET_FETCH, 7, _committed, _codes_of(group_calls.fetch_offsets)),
        (K.ADD_PARTITIONS_TO_TXN, 3, _additions, _added),
    ],
)
async def test_very_many_partitions_of_one_refused_topic_let_others_run(
    call: Callable[[ApiKey, int], Call],
    api_key: ApiKey,
    version: int,
    request_of: Callable[[], Any],
    codes_of: Callable[[Call, Any], Any],
) -> None:
    refused, turns = await _with_turns(codes_of(call(api_key, version), request_of()))
    assert len(refused) == MANY
    assert ErrorCode.NONE not in refused
    # One turn when the work ends, however long it is without pauses.
    assert turns > 2


async def test_a_full_instance_is_refused_all_partitions_of_a_produce_in_turns(
    call: Callable[[ApiKey, int], Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    room = StorageRoom()
    room.is_full = True
    storage = UpstreamStorage(cast(Any, None))
    storage.room_of = lambda _instance_id: room
    batches = [produce.PartitionProduceData(index=index, records=bytes(61)) for index in range(MANY)]
    request = produce.ProduceRequest(
        acks=-1, topic_data=[produce.TopicProduceData(name="orders", partition_data=batches)]
    )
    made = call(K.PRODUCE, 9)
    monkeypatch.setattr(Call, "topic_refusal_code", lambda *_: 0)
    client = cast(Any, SimpleNamespace(produce_limiters=(), accounting=None))
    response, turns = await _with_turns(topic_calls.produce_records(made, client, storage, request, 1))
    (topic,) = response.responses
    assert {result.error_code for result in topic.partition_responses} == {ErrorCode.POLICY_VIOLATION}
    assert len(topic.partition_responses) == MANY
    assert "storage of the instance is used up" in topic.partition_responses[-1].error_message
    assert turns > 1
    assert storage.measure_now(MINE) == 0
