"""Transactions of a real client on three real broker processes: committed, aborted, fenced, timed out, with offsets,
and with a coordinator that dies between the decision and its markers (TXN-10…17, TXN-23, TXN-25, TXN-26).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from brokers.engine.coordinators.partitioning import partition_of
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.groups import FindCoordinatorRequest
from brokers.engine.protocol.messages.producers import DescribeTransactionsRequest, TransactionDescription
from tests.testkit.engine import BrokerProcess, EngineCluster, TestInstance, eventually
from tests.testkit.wire import WireClient

TIMEOUT_S = 60
TRANSACTION = 1
STATE_PARTITIONS = 5
T = TypeVar("T")


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    overrides = {
        "replica.lag.time.max.ms": "2000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
        # A broker that lost its leaderships, to a slow machine or another test, soon gets them back.
        "leader.imbalance.check.interval.seconds": "1",
    }
    directory = tmp_path_factory.mktemp("transactions")
    with EngineCluster(zookeeper_address, directory, size=3, session_timeout_ms=4_000, overrides=overrides) as running:
        yield running


@pytest.fixture(scope="module")
def instance(cluster: EngineCluster) -> TestInstance:
    return cluster.create_instance("ins-aaaaaaaa")


@pytest.fixture(scope="module")
def admin(instance: TestInstance) -> AdminClient:
    return AdminClient({"bootstrap.servers": instance.bootstrap})


def make_topic(admin: AdminClient, name: str, assignment: list[list[int]]) -> str:
    admin.create_topics([NewTopic(name, len(assignment), replica_assignment=assignment)])[name].result(TIMEOUT_S)
    return name


def transactional(instance: TestInstance, name: str, timeout_ms: int = 60_000) -> Producer:
    """Returns an initialised producer."""
    producer = Producer(
        {
            "bootstrap.servers": instance.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": min(timeout_ms, 30_000),
            "linger.ms": 0,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def consumer(instance: TestInstance, topic: str, partitions: int, isolation: str = "read_committed") -> Consumer:
    made = Consumer(
        {"bootstrap.servers": instance.bootstrap, "group.id": f"{topic}-look", "isolation.level": isolation}
    )
    made.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    return made


def read(instance: TestInstance, topic: str, partitions: int, count: int) -> list[bytes]:
    """Returns the first `count` committed values, sorted."""
    result: list[bytes] = []
    reading = consumer(instance, topic, partitions)

    def enough() -> bool:
        message: Message | None = reading.poll(0.2)
        if message is not None and message.error() is None:
            result.append(message.value())
        return len(result) >= count

    try:
        eventually(enough, f"{count} committed records of {topic}, after {result}", timeout_s=TIMEOUT_S)
    finally:
        reading.close()
    return sorted(result)


# -- by hand: what the client has no call for --------------------------------------------------------------------------


def by_hand(instance: TestInstance, broker_id: int, work: Callable[[WireClient], Awaitable[T]]) -> T:
    async def run() -> T:
        client = await WireClient.connect(instance.document.ports[broker_id])
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(run())


def coordinator_of(instance: TestInstance, asked: int, name: str) -> int:
    async def find(client: WireClient) -> int:
        request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[name])
        return int((await client.call(ApiKey.FIND_COORDINATOR, 4, request)).coordinators[0].node_id)

    return by_hand(instance, asked, find)


def describe(instance: TestInstance, broker_id: int, name: str) -> TransactionDescription:
    async def ask(client: WireClient) -> Any:
        request = DescribeTransactionsRequest(transactional_ids=[name])
        return (await client.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, request)).transaction_states[0]

    result: TransactionDescription = by_hand(instance, broker_id, ask)
    return result


def state_of(instance: TestInstance, broker_id: int, name: str) -> str:
    return describe(instance, broker_id, name).transaction_state


def name_coordinated_by(instance: TestInstance, asked: int, wanted: int) -> str | None:
    """Returns a transactional id that this broker coordinates; None: it coordinates none."""
    tried: set[int] = set()
    for number in itertools.count():
        name = f"chosen-{number}"
        index = partition_of(f"{instance.id}.{name}", STATE_PARTITIONS)
        if index not in tried:
            tried.add(index)
            if coordinator_of(instance, asked, name) == wanted:
                return name
        if len(tried) == STATE_PARTITIONS:
            return None
    raise AssertionError("unreachable")


# ----------------------------------------------------------------------------------------------------------------------


def test_a_transaction_over_all_brokers_is_seen_whole_or_not_at_all(instance: TestInstance, admin: AdminClient) -> None:
    topic = make_topic(admin, "everywhere", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    producer = transactional(instance, "everywhere")
    for number in range(6):
        producer.begin_transaction()
        for index in range(3):
            producer.produce(topic, b"%d-%d" % (number, index), partition=index)
        producer.flush(TIMEOUT_S)
        if number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)

    expected = sorted(b"%d-%d" % (number, index) for number in (0, 2, 4) for index in range(3))
    assert read(instance, topic, 3, len(expected)) == expected
    coordinator = coordinator_of(instance, 1, "everywhere")
    eventually(lambda: state_of(instance, coordinator, "everywhere") == "CompleteAbort", "the last one is complete")


def test_a_fenced_producer_gets_nothing_in(instance: TestInstance, admin: AdminClient) -> None:
    topic = make_topic(admin, "fencing", [[1, 2, 3]])
    zombie = transactional(instance, "fencing")
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie", partition=0)
    zombie.flush(TIMEOUT_S)

    heir = transactional(instance, "fencing")
    heir.begin_transaction()
    heir.produce(topic, b"heir", partition=0)
    heir.commit_transaction(TIMEOUT_S)

    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(TIMEOUT_S)
    error: KafkaError = refused.value.args[0]
    assert error.fatal()
    assert error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    assert read(instance, topic, 1, 1) == [b"heir"]


def test_a_transaction_that_takes_too_long_stops_blocking_readers(instance: TestInstance, admin: AdminClient) -> None:
    """TXN-17, TXN-23: later records become visible."""
    topic = make_topic(admin, "too-long", [[2, 3, 1]])
    slow = transactional(instance, "too-long", timeout_ms=1_000)
    slow.begin_transaction()
    slow.produce(topic, b"slow", partition=0)
    slow.flush(TIMEOUT_S)
    plain = Producer({"bootstrap.servers": instance.bootstrap, "enable.idempotence": True})
    plain.produce(topic, b"plain", partition=0)
    plain.flush(TIMEOUT_S)

    assert read(instance, topic, 1, 1) == [b"plain"]
    coordinator = coordinator_of(instance, 1, "too-long")
    eventually(lambda: state_of(instance, coordinator, "too-long") == "CompleteAbort", "it is aborted")
    with pytest.raises(KafkaException):
        slow.commit_transaction(TIMEOUT_S)


def test_offsets_are_committed_with_the_transaction_or_not_at_all(instance: TestInstance, admin: AdminClient) -> None:
    topic = make_topic(admin, "offsets", [[3, 1, 2]])
    producer = transactional(instance, "offsets")
    group = Consumer({"bootstrap.servers": instance.bootstrap, "group.id": "transformers"})
    position = TopicPartition(topic, 0)

    def committed() -> int | None:
        """Returns None if the coordinator has moved, which the client does not follow by itself."""
        try:
            return int(group.committed([position], TIMEOUT_S)[0].offset)
        except KafkaException as refused:
            if refused.args[0].code() != KafkaError.NOT_COORDINATOR:
                raise
            return None

    try:
        for offset, is_committed, expected in ((5, True, 5), (9, False, 5), (7, True, 7)):
            producer.begin_transaction()
            producer.produce(topic, b"%d" % offset, partition=0)
            producer.send_offsets_to_transaction(
                [TopicPartition(topic, 0, offset)], group.consumer_group_metadata(), TIMEOUT_S
            )
            if is_committed:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.abort_transaction(TIMEOUT_S)
            eventually(lambda wanted=expected: committed() == wanted, f"offset {expected} is committed")
    finally:
        group.close()
    assert read(instance, topic, 1, 2) == [b"5", b"7"]


def test_a_decision_outlives_the_coordinator_that_made_it(
    cluster: EngineCluster, instance: TestInstance, admin: AdminClient
) -> None:
    """TXN-16: killed between Prepare and Complete, while a partition has no leader for the marker."""
    leader, coordinator, third = 1, 2, 3
    topic = make_topic(admin, "outlives", [[leader]])
    name = eventually(
        lambda: name_coordinated_by(instance, third, coordinator), "the broker looks after something", TIMEOUT_S
    )
    producer = transactional(instance, name)
    producer.begin_transaction()
    producer.produce(topic, b"decided", partition=0)
    producer.flush(TIMEOUT_S)

    broker_of(cluster, leader).kill()
    producer.commit_transaction(TIMEOUT_S)
    assert state_of(instance, coordinator, name) == "PrepareCommit"
    (waiting,) = describe(instance, coordinator, name).topics
    assert (waiting.topic, waiting.partitions) == (topic, [0])
    broker_of(cluster, coordinator).kill()
    restarted = broker_of(cluster, leader)
    restarted.start()
    restarted.wait_until_ready()

    assert read(instance, topic, 1, 1) == [b"decided"]

    def is_complete() -> bool:
        successor = coordinator_of(instance, third, name)
        return successor in (leader, third) and state_of(instance, successor, name) == "CompleteCommit"

    eventually(is_complete, "the successor has completed it", timeout_s=TIMEOUT_S)
    broker_of(cluster, coordinator).start()
    broker_of(cluster, coordinator).wait_until_ready()


def broker_of(cluster: EngineCluster, broker_id: int) -> BrokerProcess:
    return cluster.brokers[broker_id - 1]
