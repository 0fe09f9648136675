"""Produces of one connection while an earlier one waits for its follower: appended at once, answered in order."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from brokers.contract.process import CLUSTER_USER
from brokers.engine.network.pending_responses import PENDING_RESPONSES_MAX
from brokers.engine.partitions.partition import Partition
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fields import UUID_ZERO
from brokers.engine.protocol.messages.metadata import MetadataRequest
from brokers.engine.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from brokers.engine.scheduling.fair_turns import InstanceTurns
from tests.testkit.in_process import InProcessBroker
from tests.testkit.records import PRODUCE_VERSION, batch, produce_request
from tests.testkit.wire import WireClient

METADATA_VERSION = 12
# First version with the current leader.
LEADERS_VERSION = 10


class Pair:
    """Two brokers: broker 1 leads the one partition of `t`, broker 2 follows it when the test starts it."""

    def __init__(self, leading: InProcessBroker, following: InProcessBroker, client: WireClient) -> None:
        self.leading = leading
        self.following = following
        self.client = client

    @property
    def led(self) -> Partition:
        result = self.leading.broker.table.get("t", 0)
        assert result is not None
        return result

    @property
    def port(self) -> int:
        """Returns the port of the client."""
        return int(self.client.writer.get_extra_info("sockname")[1])

    def copy(self) -> None:
        held = self.following.broker.table.get("t", 0)
        assert held is not None
        self.following.broker.replication.fetchers.follow(held)

    async def send(self, *, acks: int = -1, timeout_ms: int = 60_000) -> None:
        request = produce_request("t", batch(b"value"), acks=acks)
        request.timeout_ms = timeout_ms
        await self.client.send(ApiKey.PRODUCE, PRODUCE_VERSION, request)

    async def answered(self) -> Any:
        answer = await self.client.receive(ApiKey.PRODUCE, PRODUCE_VERSION)
        return answer.responses[0].partition_responses[0]

    async def until_appended(self, count: int) -> None:
        await self.leading.until(lambda: self.led.log_end_offset == count)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with (
        InProcessBroker(tmp_path / "1", broker_id=1) as leading,
        InProcessBroker(tmp_path / "2", broker_id=2, ensemble=leading.ensemble) as following,
    ):
        client = await leading.internal_client(CLUSTER_USER)
        await leading.until(lambda: len(leading.broker.current.image.brokers) == 2)
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])
        topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=[])
        answer = await client.call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic]))
        assert answer.topics[0].error_code == 0, answer
        for broker in (leading, following):
            await broker.until(lambda held=broker.broker.table: held.get("t", 0) is not None)
        await leading.until(lambda: leading.broker.table.get("t", 0).is_leader)
        following.broker.replication.fetchers.unfollow("t", 0)
        yield Pair(leading, following, client)


async def test_requests_behind_a_waiting_produce_are_appended_and_answered_in_order(pair: Pair) -> None:
    """WIRE-9, REP-12."""
    for _ in range(3):
        await pair.send()
    await pair.send(acks=1)
    await pair.client.send(ApiKey.METADATA, METADATA_VERSION, MetadataRequest(topics=[]))
    await pair.until_appended(4)
    assert pair.led.high_watermark == 0
    pair.copy()
    answers = [await pair.answered() for _ in range(4)]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    metadata = await pair.client.receive(ApiKey.METADATA, METADATA_VERSION)
    assert len(metadata.brokers) == 2


async def test_a_produce_that_is_not_copied_in_time_says_so_and_the_others_wait_on(pair: Pair) -> None:
    await pair.send(timeout_ms=1)
    await pair.send()
    assert (await pair.answered()).error_code == ErrorCode.REQUEST_TIMED_OUT
    pair.copy()
    assert (await pair.answered()).error_code == 0


def peer_port(fd: int) -> int:
    with socket.socket(fileno=os.dup(fd)) as connected:
        return int(connected.getpeername()[1])


async def test_a_client_that_leaves_is_not_waited_for(pair: Pair) -> None:
    for _ in range(3):
        await pair.send()
    await pair.until_appended(3)
    connections = pair.leading.broker.listeners.get("internal").connections
    (own,) = (each for each in connections if peer_port(each.fd) == pair.port)
    await pair.client.close()
    await pair.leading.until(lambda: own not in connections)
    pair.copy()
    await pair.leading.until(lambda: pair.led.high_watermark == 3)


async def test_a_connection_that_is_owed_too_much_waits(pair: Pair) -> None:
    for _ in range(PENDING_RESPONSES_MAX + 10):
        await pair.send()
    await pair.until_appended(PENDING_RESPONSES_MAX)
    pair.copy()
    answers = [await pair.answered() for _ in range(PENDING_RESPONSES_MAX + 10)]
    assert [answer.base_offset for answer in answers] == list(range(PENDING_RESPONSES_MAX + 10))
    assert {answer.error_code for answer in answers} == {0}


async def test_a_leadership_that_ends_fails_all_that_is_owed_in_order(pair: Pair) -> None:
    for _ in range(3):
        await pair.send()
    await pair.until_appended(3)
    pair.leading.broker.table.resign("t", 0)
    answers = [await pair.answered() for _ in range(3)]
    assert {answer.error_code for answer in answers} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}


async def test_records_of_a_topic_that_is_deleted_during_the_wait_are_not_acknowledged(pair: Pair) -> None:
    await pair.send()
    await pair.until_appended(1)
    other = await pair.leading.internal_client(CLUSTER_USER)
    state = DeleteTopicState(name="t", topic_id=UUID_ZERO)
    answer = await other.call(ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest(topics=[state], timeout_ms=60_000))
    assert answer.responses[0].error_code == 0
    assert (await pair.answered()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_produce_that_waits_tells_why_other_partitions_were_rejected(pair: Pair) -> None:
    def topic(name: str, broker: int, **config: str) -> CreatableTopic:
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[broker])
        configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()]
        return CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=configs
        )

    wanted = CreateTopicsRequest(topics=[topic("keyed", 1, cleanup_policy="compact"), topic("there", 2)])
    created = await pair.client.call(ApiKey.CREATE_TOPICS, 7, wanted)
    assert [line.error_code for line in created.topics] == [0, 0]
    await pair.leading.until(lambda: (keyed := pair.leading.broker.table.get("keyed", 0)) and keyed.is_leader)
    request = produce_request("t", batch(b"value"), acks=-1)
    request.timeout_ms = 60_000
    for name in ("keyed", "there"):
        request.topic_data += produce_request(name, batch(b"value")).topic_data
    await pair.client.send(ApiKey.PRODUCE, LEADERS_VERSION, request)
    await pair.until_appended(1)
    pair.copy()
    answer = await pair.client.receive(ApiKey.PRODUCE, LEADERS_VERSION)
    copied, keyed, there = (result.partition_responses[0] for result in answer.responses)
    assert copied.error_code == 0
    assert keyed.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in keyed.record_errors] == [0]
    assert there.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert there.current_leader.leader_id == 2


class Blocker:
    """Stands in the queue of an instance until as many others do, and calls `then`."""

    def __init__(self, turns: InstanceTurns, others: int, then: Callable[[], object] = lambda: None) -> None:
        self.turns = turns
        self.others = others
        self.then = then
        self.is_over = False
        turns.charge(0.0, 1.0)
        turns.enqueue(self)

    def on_turn(self) -> None:
        self.is_over = len(self.turns.loop_queue) >= self.others
        if self.is_over:
            self.then()
        else:
            self.turns.enqueue(self)


def own_connection(pair: Pair) -> Any:
    connections = pair.leading.broker.listeners.get("internal").connections
    (own,) = (each for each in connections if peer_port(each.fd) == pair.port)
    return own


async def test_acknowledgements_queue_where_the_instance_has_used_its_share_of_the_loop(pair: Pair) -> None:
    for _ in range(3):
        await pair.send()
    await pair.until_appended(3)
    own_connection(pair).turns = turns = InstanceTurns(pair.leading.broker.listeners.fair_turns)
    blocker = Blocker(turns, others=3)
    pair.copy()
    answers = [await pair.answered() for _ in range(3)]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0), (0, 1), (0, 2)]
    assert blocker.is_over, "all of them were in the line at once"


async def test_a_client_that_leaves_while_its_acknowledgements_queue_is_not_answered(pair: Pair) -> None:
    for _ in range(3):
        await pair.send()
    await pair.until_appended(3)
    own = own_connection(pair)
    own.turns = turns = InstanceTurns(pair.leading.broker.listeners.fair_turns)
    blocker = Blocker(turns, 3, lambda: own.close("tried"))
    pair.copy()
    await pair.leading.until(lambda: blocker.is_over and not turns.loop_queue)
    assert await pair.client.is_closed()
    assert pair.leading.broker.listeners.counters.faults == 0
