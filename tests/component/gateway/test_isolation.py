"""Two tenants with equal names of everything on one upstream see nothing of one another, over each forwarded call and
version; nor do they see the prefix of their names, or the addresses of the upstream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

import pytest

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages import (
    configs,
    fetch,
    groups,
    list_offsets,
    metadata,
    offsets,
    produce,
    topics,
    transactions,
)
from brokers.engine.protocol.messages.sasl import ApiVersionsRequest
from brokers.engine.upstream.versions import REVIEWED
from tests.component.gateway.conftest import FIRST, SECOND
from tests.testkit.gateway import PASSWORD, GatewayProcess, Upstream
from tests.testkit.records import batch_of_now
from tests.testkit.wire import WireClient

K = ApiKey
TOPIC, GROUP, TRANSACTION, MEMBER = "orders-of-all", "group", "transaction", "static-member"
RETRIABLE = {
    int(code)
    for code in (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
}
PORT = Struct(">i")
ROUNDS_MAX = 300
PAUSE_S = 0.1


class RecordingClient(WireClient):
    """A client that keeps every byte that it received."""

    received: list[bytes]

    async def receive_frame(self) -> bytes:
        frame = await super().receive_frame()
        self.received.append(frame)
        return frame


@dataclass
class Tenant:
    """Connections of one tenant to each node, with the versions that its gateway serves."""

    clients: dict[int, RecordingClient]
    value: bytes
    versions: dict[int, tuple[int, int]] = field(default_factory=dict)
    coordinator_ids: dict[int, int] = field(default_factory=dict)
    leader_id: int = 0

    async def ask(self, node: int, api_key: ApiKey, request: Any, version: int | None = None) -> Any:
        return await self.clients[node].call(
            api_key, self.versions[api_key][1] if version is None else version, request
        )

    async def of_each_version(self, node: int, api_key: ApiKey, make: Callable[[int], Any]) -> list[Any]:
        """Sends the request that `make` returns in each served version, and returns the responses."""
        low, high = self.versions[api_key]
        return [await self.ask(node, api_key, make(version), version) for version in range(low, high + 1)]

    async def until_ready(self, ask: Callable[[], Any], code: Callable[[Any], int]) -> Any:
        """Repeats a request as clients do, as long as its error passes."""
        for _ in range(ROUNDS_MAX):
            response = await ask()
            if code(response) not in RETRIABLE:
                return response
            await asyncio.sleep(PAUSE_S)
        raise AssertionError(f"still {response}")

    @property
    def received(self) -> bytes:
        return b"".join(frame for client in self.clients.values() for frame in client.received)


@asynccontextmanager
async def tenant(gateway: GatewayProcess, instance_id: str, nodes: Any, value: bytes) -> AsyncIterator[Tenant]:
    clients = {}
    for node in nodes:
        client = await RecordingClient.connect(gateway.port(instance_id, node), "same-client")
        client.received = []
        clients[node] = client
        assert (await client.log_in("app", PASSWORD)).error_code == 0
    result = Tenant(clients, value)
    served = await clients[nodes[0]].call(K.API_VERSIONS, 3, _software())
    result.versions = {each.api_key: (each.min_version, each.max_version) for each in served.api_keys}
    try:
        yield result
    finally:
        for client in clients.values():
            await client.close()


def _software() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="test", client_software_version="1")


@pytest.mark.parametrize("second_first", [False, True])
async def test_equal_names_are_different_things(
    gateway: GatewayProcess, upstream: Upstream, second_first: bool
) -> None:
    order = (SECOND, FIRST) if second_first else (FIRST, SECOND)
    async with (
        tenant(gateway, order[0], upstream.nodes, b"value-of-one") as one,
        tenant(gateway, order[1], upstream.nodes, b"value-of-other") as other,
    ):
        assert set(one.versions) >= set(REVIEWED) - {K.PRODUCE}
        for each in (one, other):
            await create(each, upstream)
            await write(each)
        for each in (one, other):
            await find_coordinators(each, upstream)
        await commit(one, 1)
        assert await committed(other) == {-1}
        await commit(other, 2)
        assert await committed(one) == {1}
        for each in (one, other):
            await join(each)
            await transact(each)
            await read(each)
        await drop(one)
        await read(other)
        await drop(other)
        ports = [int(address.rpartition(":")[2]) for address in upstream.bootstrap.split(",")]
        forbidden = [b"ins-", *(PORT.pack(port) for port in ports)]
        for each, foreign in ((one, other), (other, one)):
            assert each.value in each.received
            for secret in (foreign.value, *forbidden):
                assert secret not in each.received


async def create(each: Tenant, upstream: Upstream) -> None:
    def request(_version: int = 0) -> topics.CreateTopicsRequest:
        topic = topics.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        return topics.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)

    node = await _controller(each, upstream)
    response = await each.ask(node, K.CREATE_TOPICS, request())
    assert [(result.name, result.error_code) for result in response.topics] == [(TOPIC, 0)], response
    for again in await each.of_each_version(node, K.CREATE_TOPICS, request):
        assert [result.error_code for result in again.topics] == [int(ErrorCode.TOPIC_ALREADY_EXISTS)]

    def asked(_version: int = 0) -> metadata.MetadataRequest:
        return metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=TOPIC)])

    def code(response: Any) -> int:
        return int(response.topics[0].error_code or response.topics[0].partitions[0].error_code)

    found = await each.until_ready(lambda: each.ask(node, K.METADATA, asked()), code)
    each.leader_id = found.topics[0].partitions[0].leader_id
    for response in await each.of_each_version(node, K.METADATA, asked):
        assert [topic.name for topic in response.topics] == [TOPIC]
    for response in await each.of_each_version(node, K.METADATA, lambda _: metadata.MetadataRequest(topics=None)):
        assert TOPIC in {topic.name for topic in response.topics}
    described = await each.of_each_version(node, K.DESCRIBE_CONFIGS, lambda _: _config_request())
    assert all([result.resource_name for result in response.results] == [TOPIC] for response in described)


async def _controller(each: Tenant, upstream: Upstream) -> int:
    response = await each.ask(upstream.nodes[0], K.METADATA, metadata.MetadataRequest(topics=[]))
    return response.controller_id if response.controller_id in upstream.nodes else upstream.nodes[0]


def _config_request() -> configs.DescribeConfigsRequest:
    resource = configs.DescribeConfigsResource(resource_type=2, resource_name=TOPIC, configuration_keys=None)
    return configs.DescribeConfigsRequest(resources=[resource])


async def write(each: Tenant) -> None:
    def request(_version: int = 0) -> produce.ProduceRequest:
        data = produce.PartitionProduceData(index=0, records=batch_of_now(each.value))
        topic = produce.TopicProduceData(name=TOPIC, partition_data=[data])
        return produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])

    for response in await each.of_each_version(each.leader_id, K.PRODUCE, request):
        (result,) = response.responses
        assert (result.name, result.partition_responses[0].error_code) == (TOPIC, 0), response


async def read(each: Tenant) -> None:
    def request(_version: int = 0) -> fetch.FetchRequest:
        wanted = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
        topic = fetch.FetchTopic(topic=TOPIC, partitions=[wanted])
        return fetch.FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1_000_000, topics=[topic])

    for response in await each.of_each_version(each.leader_id, K.FETCH, request):
        (result,) = response.responses
        assert (result.topic, result.partitions[0].error_code, response.session_id) == (TOPIC, 0, 0), response
        assert each.value in (result.partitions[0].records or b"")
    wanted = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    ends = await each.of_each_version(
        each.leader_id,
        K.LIST_OFFSETS,
        lambda _: list_offsets.ListOffsetsRequest(
            topics=[list_offsets.ListOffsetsTopic(name=TOPIC, partitions=[wanted])]
        ),
    )
    assert {(response.topics[0].name, response.topics[0].partitions[0].error_code) for response in ends} == {(TOPIC, 0)}


async def find_coordinators(each: Tenant, upstream: Upstream) -> None:
    node = upstream.nodes[0]
    for key_type, name in ((0, GROUP), (1, TRANSACTION)):
        request = groups.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name])
        found = await each.until_ready(
            lambda request=request: each.ask(node, K.FIND_COORDINATOR, _copy(request)),
            lambda response: int(response.coordinators[0].error_code),
        )
        assert found.coordinators[0].key == name
        each.coordinator_ids[key_type] = found.coordinators[0].node_id
        for low in range(key_type, 4):
            old = groups.FindCoordinatorRequest(key=name, key_type=key_type)
            response = await each.ask(node, K.FIND_COORDINATOR, old, low)
            assert response.node_id == each.coordinator_ids[key_type]


def _copy(request: groups.FindCoordinatorRequest) -> groups.FindCoordinatorRequest:
    return groups.FindCoordinatorRequest(key_type=request.key_type, coordinator_keys=list(request.coordinator_keys))


async def commit(each: Tenant, offset: int) -> None:
    def request(_version: int = 0) -> offsets.OffsetCommitRequest:
        position = offsets.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=each.value.decode()
        )
        topic = offsets.OffsetCommitRequestTopic(name=TOPIC, partitions=[position])
        return offsets.OffsetCommitRequest(group_id=GROUP, topics=[topic])

    node = each.coordinator_ids[0]
    await each.until_ready(
        lambda: each.ask(node, K.OFFSET_COMMIT, request()),
        lambda response: int(response.topics[0].partitions[0].error_code),
    )
    for response in await each.of_each_version(node, K.OFFSET_COMMIT, request):
        assert (response.topics[0].name, response.topics[0].partitions[0].error_code) == (TOPIC, 0)


async def committed(each: Tenant) -> set[int]:
    """Returns the committed offsets as each version answers them, asked by name; all topics are those of the tenant."""

    def request(version: int, all_topics: bool = False) -> offsets.OffsetFetchRequest:
        if version < 8:
            named = offsets.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
            return offsets.OffsetFetchRequest(group_id=GROUP, topics=None if all_topics else [named])
        topic = offsets.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
        group = offsets.OffsetFetchRequestGroup(group_id=GROUP, topics=None if all_topics else [topic])
        return offsets.OffsetFetchRequest(groups=[group])

    node, result = each.coordinator_ids[0], set()
    for response in await each.of_each_version(node, K.OFFSET_FETCH, request):
        (topic,) = response.groups[0].topics if response.groups else response.topics
        assert topic.name == TOPIC
        result.add(topic.partitions[0].committed_offset)
    response = await each.ask(node, K.OFFSET_FETCH, request(8, all_topics=True), 8)
    assert {topic.name for topic in response.groups[0].topics} <= {TOPIC}
    return result


async def join(each: Tenant) -> None:
    """Joins, leads and leaves the group, which neither tenant shares with the other."""
    node = each.coordinator_ids[0]
    protocol = groups.JoinGroupRequestProtocol(name="range", metadata=each.value)

    def request(member_id: str) -> groups.JoinGroupRequest:
        return groups.JoinGroupRequest(
            group_id=GROUP, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id=member_id,
            group_instance_id=MEMBER, protocol_type="test", protocols=[protocol],
        )  # fmt: skip

    joined = await each.until_ready(
        lambda: each.ask(node, K.JOIN_GROUP, request("")), lambda response: int(response.error_code)
    )
    assert joined.error_code == 0, joined
    assert [(member.group_instance_id, member.metadata) for member in joined.members] == [(MEMBER, each.value)]
    member = {"group_id": GROUP, "generation_id": joined.generation_id, "member_id": joined.member_id}
    assignment = groups.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=each.value)
    synced = await each.ask(
        node,
        K.SYNC_GROUP,
        groups.SyncGroupRequest(
            **member,
            group_instance_id=MEMBER,
            protocol_type="test",
            protocol_name="range",
            assignments=[assignment],
        ),
    )
    assert (synced.error_code, synced.assignment) == (0, each.value)
    beats = await each.of_each_version(node, K.HEARTBEAT, lambda _: groups.HeartbeatRequest(**member))
    assert {beat.error_code for beat in beats} == {0}
    leaving = groups.LeaveGroupRequest(
        group_id=GROUP, members=[groups.MemberIdentity(member_id="", group_instance_id=MEMBER)]
    )
    assert (await each.ask(node, K.LEAVE_GROUP, leaving)).error_code == 0


async def transact(each: Tenant) -> None:
    node = each.coordinator_ids[1]
    request = transactions.InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=30_000)

    async def initialise(version: int) -> Any:
        request.transactional_id = TRANSACTION
        return await each.ask(node, K.INIT_PRODUCER_ID, request, version)

    low, high = each.versions[K.INIT_PRODUCER_ID]
    for version in range(low, high + 1):
        begun = await each.until_ready(
            lambda version=version: initialise(version), lambda response: int(response.error_code)
        )
        assert begun.error_code == 0
    producer = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
    added = await each.until_ready(
        lambda: each.ask(
            node,
            K.ADD_PARTITIONS_TO_TXN,
            transactions.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=TRANSACTION,
                v3_and_below_producer_id=begun.producer_id,
                v3_and_below_producer_epoch=begun.producer_epoch,
                v3_and_below_topics=[transactions.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
            ),
        ),
        lambda response: int(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code),
    )
    assert added.results_by_topic_v3_and_below[0].name == TOPIC
    offsets_added = await each.until_ready(
        lambda: each.ask(
            node,
            K.ADD_OFFSETS_TO_TXN,
            transactions.AddOffsetsToTxnRequest(transactional_id=TRANSACTION, group_id=GROUP, **producer),
        ),
        lambda response: int(response.error_code),
    )
    assert offsets_added.error_code == 0
    position = transactions.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=3, committed_metadata=each.value.decode()
    )
    topic = transactions.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[position])
    committed_ = await each.ask(
        each.coordinator_ids[0],
        K.TXN_OFFSET_COMMIT,
        transactions.TxnOffsetCommitRequest(transactional_id=TRANSACTION, group_id=GROUP, topics=[topic], **producer),
    )
    assert (committed_.topics[0].name, committed_.topics[0].partitions[0].error_code) == (TOPIC, 0)
    ended = await each.until_ready(
        lambda: each.ask(
            node, K.END_TXN, transactions.EndTxnRequest(transactional_id=TRANSACTION, committed=True, **producer)
        ),
        lambda response: int(response.error_code),
    )
    assert ended.error_code == 0


async def drop(each: Tenant) -> None:
    def request(_version: int = 0) -> topics.DeleteTopicsRequest:
        return topics.DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=30_000)

    response = await each.ask(each.leader_id, K.DELETE_TOPICS, request())
    assert [(result.name, result.error_code) for result in response.responses] == [(TOPIC, 0)], response
    for again in await each.of_each_version(each.leader_id, K.DELETE_TOPICS, request):
        assert [result.name for result in again.responses] == [TOPIC]
