"""Transactions whose coordinator crashes, and their final state everywhere; requests are sent on the wire, so that a
client can stop after any of them.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from brokers.contract import paths
from brokers.contract.documents import PartitionStateDocument
from brokers.engine.coordinators.partitioning import partition_of
from brokers.engine.coordinators.settings import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from brokers.engine.handlers.groups.find_coordinator import GROUP, TRANSACTION
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.groups import FindCoordinatorRequest
from brokers.engine.protocol.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from brokers.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from brokers.engine.protocol.messages.producers import DescribeTransactionsRequest
from brokers.engine.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.chaos import replicas
from tests.differential.batches import TRANSACTIONAL, batch
from tests.testkit.crashing import Crash, CrashOrders
from tests.testkit.engine import BrokerProcess, EngineCluster, TestInstance
from tests.testkit.waiting import eventually
from tests.testkit.wire import WireClient

TIMEOUT_S: Final = 60
# Longer than all steps of a transaction take on a slow machine.
TRANSACTION_TIMEOUT_MS: Final = 8_000
ATTEMPTS_MAX: Final = 5
STATE_PARTITIONS: Final = 5
PARTITIONS: Final = 2
# What a client asks again for; None is no answer.
ASKED_AGAIN: Final = (None, 3, 5, 6, 7, 13, 14, 15, 16, 19, 20, 51)
NOT_FOUND: Final = int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


class Point(NamedTuple):
    """The record after which the coordinator crashes, in a transaction to be `committed`, with the possible final
    states.
    """

    state: str
    partitions: int
    committed: bool
    moment: str
    ends: tuple[str, ...]


class Stage:
    """Brokers that crash by `orders`, and an instance with a topic."""

    topic = "outcomes"

    def __init__(self, cluster: EngineCluster, orders: CrashOrders) -> None:
        self.cluster, self.orders = cluster, orders
        self.instance: TestInstance = cluster.create_instance("ins-crashes0")
        admin = AdminClient({"bootstrap.servers": self.instance.bootstrap})
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 3)])[self.topic].result(TIMEOUT_S)
        for kind in (GROUP, TRANSACTION):
            # Their topics are created by the first request.
            eventually(partial(self._finds, kind), within_s=TIMEOUT_S, what="coordinators")

    def _finds(self, kind: int) -> bool:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["anybody"])
        answer = asyncio.run(self._call(1, ApiKey.FIND_COORDINATOR, 4, request))
        return bool(answer.coordinators[0].error_code == 0)

    async def _call(self, broker_id: int, api_key: int, version: int, request: Any) -> Any:
        client = await WireClient.connect(self.instance.document.ports[broker_id])
        try:
            return await client.call(api_key, version, request)
        finally:
            await client.close()

    def inside(self, name: str) -> str:
        return f"{self.instance.id}.{name}"

    def ask(self, topic: str, index: int, api_key: int, version: int, request: Any) -> Any:
        """Returns the answer of the partition's leader, or None if there is none."""
        path = paths.partition_state(topic, index)
        zookeeper = self.cluster.zookeeper
        if not zookeeper.exists(path):
            return None
        leader = PartitionStateDocument.from_json(zookeeper.get(path)[0]).leader
        try:
            return asyncio.run(self._call(leader, api_key, version, request)) if leader > 0 else None
        except (OSError, EOFError):
            return None

    def ask_about(self, name: str, api_key: int, version: int, request: Any) -> Any:
        index = partition_of(self.inside(name), STATE_PARTITIONS)
        return self.ask(TRANSACTIONS_TOPIC, index, api_key, version, request)

    def ask_group(self, name: str, api_key: int, version: int, request: Any) -> Any:
        index = partition_of(self.inside(name), STATE_PARTITIONS)
        return self.ask(GROUPS_TOPIC, index, api_key, version, request)

    def offset_of(self, group: str) -> int:
        """Returns the group's offset in the first partition, -1 without one. The answer also shows that no transaction
        is open.
        """

        def sent() -> list[int]:
            topics = [OffsetFetchRequestTopic(name=self.topic, partition_indexes=[0])]
            request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=True)
            answer = self.ask_group(group, ApiKey.OFFSET_FETCH, 7, request)
            if answer is None or answer.error_code or answer.topics[0].partitions[0].error_code:
                return []
            return [int(answer.topics[0].partitions[0].committed_offset)]

        (offset,) = eventually(sent, within_s=TIMEOUT_S, what=f"a position of {group} that is stable")
        return offset

    def bring_back(self) -> None:
        """Restarts the brokers that crash. One is about to: it has removed its order, and ends in a moment."""
        crashed = eventually(self._crashed, within_s=TIMEOUT_S, what="the broker that had the order to end")
        for broker in crashed:
            broker.start()
            broker.wait_until_ready()
        eventually(lambda: replicas.all_in_sync(self.cluster), within_s=TIMEOUT_S, what="all replicas in sync")

    def _crashed(self) -> list[BrokerProcess]:
        return [each for each in self.cluster.brokers if each.process is not None and each.process.poll() is not None]

    def reader(self, isolation: str, group: str = "judge") -> Consumer:
        settings = {"group.id": group, "isolation.level": isolation, "auto.offset.reset": "earliest", "log_level": 0}
        return Consumer({"bootstrap.servers": self.instance.bootstrap, **settings})

    def ends(self, isolation: str) -> list[int]:
        reader = self.reader(isolation)
        places = [TopicPartition(self.topic, index) for index in range(PARTITIONS)]
        try:
            return [int(reader.get_watermark_offsets(place, timeout=TIMEOUT_S)[1]) for place in places]
        finally:
            reader.close()

    def read_committed(self) -> list[list[bytes]]:
        """Returns the committed records of each partition, up to a mark written at its end: no transaction may be open
        there.
        """
        mark = b"mark %d" % time.monotonic_ns()
        reader = self.reader("read_committed")
        reader.assign([TopicPartition(self.topic, index, 0) for index in range(PARTITIONS)])
        result: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        try:
            marks = Producer({"bootstrap.servers": self.instance.bootstrap, "log_level": 0})
            for index in range(PARTITIONS):
                marks.produce(self.topic, mark, partition=index)
            assert marks.flush(TIMEOUT_S) == 0

            def has_all() -> bool:
                for message in reader.consume(500, 0.2):
                    if message.error() is None:
                        result[message.partition() or 0].append(message.value() or b"")
                return all(mark in values for values in result)

            eventually(has_all, within_s=TIMEOUT_S, what="readers of committed records to get to the end")
        finally:
            reader.close()
        return result


class Fenced(Exception):
    """The transaction took too long on this machine."""


class Abandoned:
    """A transaction whose client disappears when the coordinator has crashed."""

    def __init__(self, stage: Stage, point: Point) -> None:
        self.stage, self.point = stage, point
        self.name = f"{point.state}-{point.partitions}-{point.moment}"
        self.group = f"group-{self.name}"
        self.id = self.epoch = -1
        self.value = b""

    def run(self) -> None:
        """Runs until the crash."""
        state, partitions, _, moment, _ = self.point
        self.stage.orders.place(Crash(self.stage.inside(self.name), state, partitions, moment))
        for attempt in itertools.count():
            self.value = b"%s, %d" % (self.name.encode(), attempt)
            try:
                self._run()
            except Fenced:
                assert attempt < ATTEMPTS_MAX, "no transaction was as quick as its time-out"
            else:
                return

    def _run(self) -> None:
        steps: list[Callable[[], int | None]] = [self.initialise]
        for index in range(PARTITIONS):
            steps += [partial(self.add, index), partial(self.produce, index)]
        steps += [self.add_offsets, self.commit_offsets, partial(self.end, self.point.committed)]
        for step in steps:
            self._until_done(step)
        eventually(lambda: self.stage.orders.are_executed, within_s=TIMEOUT_S, what=f"the crash at {self.point}")

    def _until_done(self, step: Callable[[], int | None]) -> None:
        def is_over() -> bool:
            if self.stage.orders.are_executed:
                return True
            code = step()
            if code not in (0, *ASKED_AGAIN):
                raise Fenced(code)
            return code == 0

        eventually(is_over, within_s=TIMEOUT_S, what="a step of a transaction")

    # -- what a client asks --------------------------------------------------------------------------------------------

    def initialise(self) -> int | None:
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS, producer_id=-1, producer_epoch=-1
        )
        answer = self.stage.ask_about(self.name, ApiKey.INIT_PRODUCER_ID, 4, request)
        if answer is not None and answer.error_code == 0:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return None if answer is None else int(answer.error_code)

    def add(self, index: int) -> int | None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.stage.topic, partitions=[index])],
        )
        answer = self.stage.ask_about(self.name, ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)
        if answer is None:
            return None
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def produce(self, index: int) -> int | None:
        records = batch(
            self.value,
            attributes=TRANSACTIONAL,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=0,
            # What is old would be deleted when a broker starts.
            base_time_ms=int(time.time() * 1_000),
        )
        data = TopicProduceData(
            name=self.stage.topic, partition_data=[PartitionProduceData(index=index, records=records)]
        )
        request = ProduceRequest(acks=-1, timeout_ms=5_000, transactional_id=self.name, topic_data=[data])
        answer = self.stage.ask(self.stage.inside(self.stage.topic), index, ApiKey.PRODUCE, 9, request)
        return None if answer is None else int(answer.responses[0].partition_responses[0].error_code)

    def add_offsets(self) -> int | None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, group_id=self.group
        )
        answer = self.stage.ask_about(self.name, ApiKey.ADD_OFFSETS_TO_TXN, 3, request)
        return None if answer is None else int(answer.error_code)

    def commit_offsets(self) -> int | None:
        line = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.group,
            producer_id=self.id,
            producer_epoch=self.epoch,
            member_id="",
            topics=[TxnOffsetCommitRequestTopic(name=self.stage.topic, partitions=[line])],
        )
        answer = self.stage.ask_group(self.group, ApiKey.TXN_OFFSET_COMMIT, 3, request)
        return None if answer is None else int(answer.topics[0].partitions[0].error_code)

    def end(self, committed: bool) -> int | None:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=committed
        )
        answer = self.stage.ask_about(self.name, ApiKey.END_TXN, 3, request)
        return None if answer is None else int(answer.error_code)

    # -- what became of it ---------------------------------------------------------------------------------------------

    def state(self) -> str | None:
        """Returns the state; None while no coordinator answers, "" for an unknown id."""
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        answer = self.stage.ask_about(self.name, ApiKey.DESCRIBE_TRANSACTIONS, 0, request)
        if answer is None or answer.transaction_states[0].error_code not in (0, NOT_FOUND):
            return None
        return str(answer.transaction_states[0].transaction_state)

    def until_ended(self) -> str:
        """Waits for one of the possible final states, and returns it."""

        def ended() -> list[str]:
            state = self.state()
            return [state] if state in self.point.ends else []

        what = f"{self.name} to end as {self.point.ends}"
        (state,) = eventually(ended, within_s=TIMEOUT_S, what=what)
        return state
