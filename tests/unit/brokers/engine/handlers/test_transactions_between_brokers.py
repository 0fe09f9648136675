"""Transactions whose coordinator and partition leaders are different brokers (TXN-12, TXN-16, TXN-27, TXN-28), and the
operator's abort of one that hangs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from brokers.contract.process import CLUSTER_USER
from brokers.engine.coordinators.settings import TRANSACTIONS_TOPIC
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.lengths import TEXT_BYTES_MAX
from brokers.engine.protocol.messages.producers import ActiveProducer, DescribeProducersRequest, DescribeProducersTopic
from brokers.engine.protocol.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from brokers.engine.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from brokers.engine.records.batch import TRANSACTIONAL
from brokers.engine.records.builder import Record, build_batch
from tests.testkit.in_process import InProcessBroker
from tests.testkit.records import fetch, produce
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.transactional import Transactional, coordinated, initialise, listed

IDS = (1, 2)
NONE = 0
READ_COMMITTED = 1


@dataclass
class Pair:
    """Two brokers of one cluster, and a connection of the cluster itself to each."""

    brokers: dict[int, InProcessBroker]
    clients: dict[int, WireClient]

    async def create(self, name: str, *leaders: int) -> None:
        lines = [CreatableReplicaAssignment(partition_index=at, broker_ids=[id]) for at, id in enumerate(leaders)]
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=lines)
        answer = await self.clients[1].call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic]))
        assert answer.topics[0].error_code == NONE, answer
        for broker in self.brokers.values():
            await broker.until(lambda one=broker: name in one.broker.current.image.topics)
        for index, id in enumerate(leaders):
            table = self.brokers[id].broker.table
            await self.brokers[id].until(lambda at=index, held=table: held.get(name, at) is not None)

    def coordinator(self, name: str) -> int:
        runtime = self.brokers[1].broker.services.coordination.transactions
        assert runtime is not None
        topic = self.brokers[1].broker.current.image.topics[TRANSACTIONS_TOPIC]
        return topic.partitions[runtime.partition_of(name)].leader

    async def name_at(self, broker: int) -> str:
        """Returns a transactional id that this broker coordinates."""
        await coordinated(self.clients[1], "any")
        return next(name for number in count() if self.coordinator(name := f"tx-{number}") == broker)

    async def long_name_at(self, broker: int) -> str:
        """Returns the internal form of a tenant's longest transactional id, which this broker coordinates: with the
        prefix it is longer than a string of the protocol may be.
        """
        filling = "x" * (TEXT_BYTES_MAX - 20)
        names = (f"ins-aaaaaaaa.{number:020}{filling}" for number in count())
        return next(name for name in names if self.coordinator(name) == broker)

    async def begin_at(self, broker: int) -> Transactional:
        name = await self.name_at(broker)
        return await Transactional.begin(self.clients[broker], name)

    async def sent(self, producer: Transactional, topic: str, index: int, leader: int) -> int:
        records = build_batch(
            [Record(time.time_ns() // 1_000_000, None, b"value")],
            attributes=TRANSACTIONAL,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
        )
        answer = await produce(
            self.clients[leader],
            topic,
            bytes(records),
            acks=-1,
            version=11,
            partition=index,
            transactional_id=producer.name,
        )
        return int(answer.error_code)

    async def stable_offset(self, topic: str, leader: int, index: int = 0) -> int:
        result = await fetch(self.clients[leader], topic, partition=index, isolation=READ_COMMITTED)
        return int(result.last_stable_offset)


@pytest.fixture
def overrides() -> dict[str, str]:
    return {}


@pytest.fixture
async def pair(tmp_path: Path, overrides: dict[str, str]) -> AsyncIterator[Pair]:
    async with InProcessBroker(tmp_path / "1", broker_id=1, overrides=overrides) as first:
        second = InProcessBroker(tmp_path / "2", broker_id=2, ensemble=first.ensemble, overrides=overrides)
        async with second:
            brokers = {1: first, 2: second}
            for broker in brokers.values():
                await broker.until(lambda one=broker: len(one.broker.current.image.brokers) == len(IDS))
            yield Pair(brokers, {id: await broker.internal_client(CLUSTER_USER) for id, broker in brokers.items()})


@pytest.mark.parametrize("coordinator", IDS)
async def test_leaders_on_every_broker_learn_how_a_transaction_ended(pair: Pair, coordinator: int) -> None:
    await pair.create("orders", 1, 2)
    producer = await pair.begin_at(coordinator)
    await producer.add(("orders", 0), ("orders", 1))
    assert await pair.sent(producer, "orders", 0, leader=1) == NONE
    assert await pair.sent(producer, "orders", 1, leader=2) == NONE
    assert await pair.stable_offset("orders", 1, 0) == await pair.stable_offset("orders", 2, 1) == 0

    assert await producer.end(committed=True) == NONE
    await producer.reaches("CompleteCommit")

    assert await pair.stable_offset("orders", 1, 0) == await pair.stable_offset("orders", 2, 1) == 2


@pytest.mark.parametrize("leader", IDS)
async def test_a_leader_asks_the_coordinator_wherever_it_is(pair: Pair, leader: int) -> None:
    """A batch for a partition that was not added gets 120 (TXN-27)."""
    coordinator = 3 - leader
    await pair.create("orders", leader, leader)
    producer = await pair.begin_at(coordinator)
    await producer.add(("orders", 0))

    assert await pair.sent(producer, "orders", 1, leader) == ErrorCode.TRANSACTION_ABORTABLE
    assert await pair.sent(producer, "orders", 0, leader) == NONE
    verify = pair.brokers[leader].broker.services.coordination.verify_transaction
    wanted = [("orders", 0), ("orders", 1)]
    zombie = (producer.producer_id, producer.producer_epoch + 1)
    assert await verify(producer.name, *producer.identity, wanted) == {
        ("orders", 0): NONE,
        ("orders", 1): ErrorCode.TRANSACTION_ABORTABLE,
    }
    assert set((await verify(producer.name, *zombie, wanted)).values()) == {ErrorCode.PRODUCER_FENCED}
    assert set((await verify(producer.name, 99, 0, wanted)).values()) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}


@pytest.mark.parametrize("leader", IDS)
async def test_an_id_that_fits_into_no_request_does_not_end_the_verifications_of_others(
    pair: Pair, leader: int
) -> None:
    """Brokers verify the transactions of all instances over one connection to each coordinator."""
    coordinator = 3 - leader
    await pair.create("orders", leader)
    producer = await pair.begin_at(coordinator)
    await producer.add(("orders", 0))
    long_name = await pair.long_name_at(coordinator)
    verify = pair.brokers[leader].broker.services.coordination.verify_transaction
    wanted = [("orders", 0)]

    verified = await asyncio.gather(
        *(verify(name, *producer.identity, wanted) for _ in range(20) for name in (long_name, producer.name))
    )

    assert [codes["orders", 0] for codes in verified] == 20 * [ErrorCode.INVALID_PRODUCER_ID_MAPPING, NONE]
    assert await pair.sent(producer, "orders", 0, leader) == NONE


@pytest.mark.parametrize("leader", IDS)
async def test_a_coordinator_is_not_believed_once_a_later_one_has_written_a_marker(pair: Pair, leader: int) -> None:
    """It was deposed without knowing it: a transaction that it takes for open would never end here (decision 76)."""
    await pair.create("orders", leader, leader)
    producer = await pair.begin_at(1)
    await producer.add(("orders", 0), ("orders", 1))
    services = pair.brokers[leader].broker.services
    runtime = services.coordination.transactions
    topic = services.metadata.current.image.topics[TRANSACTIONS_TOPIC]
    assert runtime is not None
    epoch = topic.partitions[runtime.partition_of(producer.name)].leader_epoch
    for index, coordinator_epoch in ((0, epoch), (1, epoch + 1)):
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name="orders", partition_indexes=[index])],
            coordinator_epoch=coordinator_epoch,
        )
        request = WriteTxnMarkersRequest(markers=[marker])
        answer = await pair.clients[leader].call(ApiKey.WRITE_TXN_MARKERS, 1, request)
        assert answer.markers[0].topics[0].partitions[0].error_code == NONE

    assert await pair.sent(producer, "orders", 1, leader) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert await pair.stable_offset("orders", leader, 1) == 1
    # Transactions ended by an earlier coordinator, or by this one, are known to this one.
    assert await pair.sent(producer, "orders", 0, leader) == NONE


async def test_a_broker_that_is_not_the_coordinator_says_so(pair: Pair) -> None:
    await pair.create("orders", 1)
    producer = await pair.begin_at(1)
    await producer.add(("orders", 0))

    lost = Transactional(pair.clients[2], producer.name, *producer.identity)

    assert (await initialise(lost.client, lost.name)).error_code == ErrorCode.NOT_COORDINATOR
    assert await lost.add(("orders", 0)) == {("orders", 0): ErrorCode.NOT_COORDINATOR}
    assert await lost.end(True) == ErrorCode.NOT_COORDINATOR
    assert (await lost.describe()).error_code == ErrorCode.NOT_COORDINATOR
    assert [state.transactional_id for state in (await listed(pair.clients[1])).transaction_states] == [producer.name]
    assert (await listed(pair.clients[2])).transaction_states == []


async def test_the_next_coordinator_finishes_what_was_decided(pair: Pair) -> None:
    """The state is on one broker here, which restarts and reads it again (TXN-16)."""
    await pair.create("orders", 2)
    producer = await pair.begin_at(1)
    await producer.add(("orders", 0))
    assert await pair.sent(producer, "orders", 0, leader=2) == NONE
    first, second = pair.brokers[1], pair.brokers[2]
    await second.broker.stop()
    await first.until(lambda: 2 not in first.broker.current.image.brokers)
    assert await producer.end(committed=True) == NONE
    await producer.reaches("PrepareCommit")
    runtime = first.broker.services.coordination.transactions
    assert runtime is not None

    runtime.reload(runtime.partition_of(producer.name))

    await producer.reaches("PrepareCommit")
    async with InProcessBroker(second.directory, broker_id=2, ensemble=first.ensemble) as again:
        await producer.reaches("CompleteCommit")
        pair.clients[2] = await again.internal_client(CLUSTER_USER)
        assert await pair.stable_offset("orders", 2) == 2


class TestHanging:
    """A transaction unknown to all coordinators blocks readers until an operator ends it, like Kafka's
    `kafka-transactions.sh abort`.
    """

    @pytest.fixture
    def overrides(self) -> dict[str, str]:
        """Returns settings without verification, which would prevent such transactions."""
        return {"transaction.partition.verification.enable": "false"}

    async def hanging(self, pair: Pair) -> ActiveProducer:
        """Returns the producer whose transaction hangs, as in DescribeProducers."""
        await pair.create("orders", 2)
        producer = await pair.begin_at(1)
        assert await pair.sent(producer, "orders", 0, leader=2) == NONE
        topic = DescribeProducersTopic(name="orders", partition_indexes=[0])
        answer = await pair.clients[2].call(ApiKey.DESCRIBE_PRODUCERS, 0, DescribeProducersRequest(topics=[topic]))
        (result,) = answer.topics[0].partitions[0].active_producers
        assert isinstance(result, ActiveProducer)
        return result

    async def test_the_cluster_may_end_what_hangs(self, pair: Pair) -> None:
        result = await self.hanging(pair)
        assert result.current_txn_start_offset == 0
        assert await pair.stable_offset("orders", 2) == 0
        marker = WritableTxnMarker(
            producer_id=result.producer_id,
            producer_epoch=result.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name="orders", partition_indexes=[0])],
            coordinator_epoch=max(result.coordinator_epoch, 0),
        )

        answer = await pair.clients[2].call(ApiKey.WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest(markers=[marker]))

        assert answer.markers[0].topics[0].partitions[0].error_code == NONE
        assert await pair.stable_offset("orders", 2) == 2
        aborted = (await fetch(pair.clients[2], "orders", isolation=READ_COMMITTED)).aborted_transactions
        assert [item.producer_id for item in aborted] == [result.producer_id]

    async def test_its_producer_goes_on_after_that(self, pair: Pair) -> None:
        await self.test_the_cluster_may_end_what_hangs(pair)
        name = await pair.name_at(1)
        again = await Transactional.begin(pair.clients[1], name)
        await again.add(("orders", 0))
        assert await pair.sent(again, "orders", 0, leader=2) == NONE
        assert await again.end(True) == NONE
        await again.reaches("CompleteCommit")

        assert await pair.stable_offset("orders", 2) == 4
