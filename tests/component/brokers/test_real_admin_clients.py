"""The admin clients for groups and transactions, with a broker that serves the instance and one that only
coordinates.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from django.core.cache import cache
from kafka.protocol.producer.produce import ProduceRequest
from kafka.record.memory_records import MemoryRecordsBuilder

from brokers.dataplane import admin_client
from brokers.dataplane.groups import KafkaGroupAdminClient
from brokers.dataplane.probe import PRODUCE_VERSION
from brokers.dataplane.settings import SettingsAdminClient
from brokers.dataplane.topics import TIMEOUT_MS, KafkaTopicAdminClient
from brokers.dataplane.transactions import ClusterTransactions, KafkaTransactionAdminClient
from brokers.models import Cluster
from brokers.rebalancing.throttle import RATES, REPLICAS
from brokers.transactions import hanging
from instances.groups.interfaces import DEAD, EARLIEST, LATEST, CommittedOffset, GroupList
from instances.models import Instance
from tenants.actors import system_actor
from tenants.errors import Conflict, Invalid, NotFound
from tests.testkit.api_cases import make_tenant
from tests.testkit.engine import EngineCluster
from tests.testkit.fleet import make_fleet, make_running, place
from tests.testkit.waiting import eventually

INSTANCE_ID = "ins-doors001"
TOPIC = "orders"
HOUR_MS = 3_600_000
FORGOTTEN_PRODUCER = 987_654

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def engines(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    """Two brokers without transaction verification, so that a transaction can be left behind."""
    overrides = {"transaction.partition.verification.enable": "false"}
    folder = tmp_path_factory.mktemp("doors")
    with EngineCluster(zookeeper_address, folder, size=2, overrides=overrides) as running:
        running.create_instance(INSTANCE_ID, served_by=(1,))
        yield running
    admin_client.links().close()


@pytest.fixture()
def cluster(engines: EngineCluster, tmp_path: Path, db: None) -> Cluster:
    """Returns the row of the cluster of the running brokers."""
    cache.clear()
    fleet = make_fleet(tmp_path, brokers=2)
    Path(fleet.control_secret_file).write_text(engines.secret)
    for broker in engines.brokers:
        settings = broker.settings
        fleet.brokers.filter(number=settings.broker_id).update(
            internal_port=settings.internal_port, admin_port=settings.admin_port
        )
    fleet.brokers.first().host.__class__.objects.update(internal_host="127.0.0.1")
    return fleet


@pytest.fixture()
def instance(cluster: Cluster) -> Instance:
    running = make_running(make_tenant(), id=INSTANCE_ID)
    place(running, cluster)
    return running


@pytest.fixture()
def bootstrap(engines: EngineCluster, instance: Instance) -> str:
    """Bootstrap servers; the topic has three partitions with ten messages each."""
    servers = engines.instances[INSTANCE_ID].bootstrap
    if not any(topic.name == TOPIC for topic in KafkaTopicAdminClient().topics(INSTANCE_ID)):
        KafkaTopicAdminClient().create_topic(
            INSTANCE_ID, TOPIC, partitions=3, replication_factor=1, config={}, validate_only=False
        )
        producer = Producer({"bootstrap.servers": servers})
        for number in range(30):
            producer.produce(TOPIC, b"x", partition=number % 3)
        assert producer.flush(30) == 0
    return servers


def test_groups_of_every_coordinator_are_found_read_moved_and_deleted(bootstrap: str, cluster: Cluster) -> None:
    """GRP-21, GRP-27, GRP-29: also if the coordinator is a broker that does not serve the instance."""
    groups = KafkaGroupAdminClient()
    names = [f"batch-{number:02}" for number in range(12)]
    for name in names:
        wanted = [CommittedOffset(topic=TOPIC, partition=index, offset=4 + index, metadata=name) for index in range(3)]
        assert groups.commit(INSTANCE_ID, name, wanted) == {}
    listed = groups.groups(INSTANCE_ID)
    assert batches(listed) == names
    assert {group.coordinator for group in listed.groups} == {1, 2}
    assert listed.silent == ()
    looks = groups.describe(INSTANCE_ID, [*names, "nobody"])
    assert {looks[name].description.state for name in names if looks[name].description} == {"Empty"}
    assert looks["batch-07"].offsets == tuple(
        CommittedOffset(topic=TOPIC, partition=index, offset=4 + index, metadata="batch-07") for index in range(3)
    )
    nobody = looks["nobody"]
    assert nobody.description is not None
    assert (nobody.description.state, nobody.offsets, nobody.trouble) == (DEAD, (), "")
    assert groups.delete_offsets(INSTANCE_ID, "batch-00", [(TOPIC, 1)]) == {}
    kept = groups.describe(INSTANCE_ID, ["batch-00"], fresh=True)["batch-00"].offsets or ()
    assert [item.partition for item in kept] == [0, 2]
    groups.delete_group(INSTANCE_ID, "batch-00")
    with pytest.raises(NotFound):
        groups.delete_group(INSTANCE_ID, "batch-00")
    assert batches(groups.groups(INSTANCE_ID)) == names[1:]
    refused = groups.commit(INSTANCE_ID, "batch-01", [CommittedOffset(topic="nowhere", partition=0, offset=1)])
    assert set(refused) == {("nowhere", 0)}


def batches(found: GroupList) -> list[str]:
    return [group.id for group in found.groups if group.id.startswith("batch-")]


def test_bounds_are_those_of_the_logs(bootstrap: str) -> None:
    places = [(TOPIC, 0), (TOPIC, 2), (TOPIC, 9), ("nowhere", 0)]
    groups = KafkaGroupAdminClient()
    ends = groups.bounds(INSTANCE_ID, places, LATEST, fresh=True)
    assert set(ends) == {(TOPIC, 0), (TOPIC, 2)}
    assert ends[TOPIC, 0] >= 10
    assert groups.bounds(INSTANCE_ID, places, EARLIEST) == {(TOPIC, 0): 0, (TOPIC, 2): 0}
    now_ms = time.time_ns() // 1_000_000
    assert groups.bounds(INSTANCE_ID, [(TOPIC, 2)], now_ms + HOUR_MS) == {(TOPIC, 2): -1}
    assert groups.bounds(INSTANCE_ID, [(TOPIC, 2)], 1) == {(TOPIC, 2): 0}


def test_a_running_member_is_described_and_keeps_offsets_where_they_are(bootstrap: str) -> None:
    groups = KafkaGroupAdminClient()
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "busy", "client.id": "worker", "auto.offset.reset": "earliest",
        "group.instance.id": "static-1",
    })  # fmt: skip
    try:
        consumer.subscribe([TOPIC])
        eventually(lambda: consumer.poll(0.1) is not None, within_s=30, what="a message")
        description = groups.describe(INSTANCE_ID, ["busy"], fresh=True)["busy"].description
        assert description is not None
        (member,) = description.members
        assert (description.state, description.protocol, member.client_id) == ("Stable", "range", "worker")
        assert (member.host, member.instance_id) == ("127.0.0.1", "static-1")
        assert member.assignment == tuple((TOPIC, index) for index in range(3))
        with pytest.raises(Conflict) as refused:
            groups.commit(INSTANCE_ID, "busy", [CommittedOffset(topic=TOPIC, partition=0, offset=0)])
        assert refused.value.code == "group_not_empty"
        with pytest.raises(Conflict):
            groups.delete_group(INSTANCE_ID, "busy")
    finally:
        consumer.close()


def test_an_open_transaction_is_described_and_its_producer_fenced(bootstrap: str, cluster: Cluster) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "mover"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, b"open", partition=1)
    producer.flush(30)
    transactions = KafkaTransactionAdminClient()
    assert [
        (transaction.id, transaction.state) for transaction in transactions.transactions(INSTANCE_ID).transactions
    ] == [("mover", "Ongoing")]
    result = transactions.describe(INSTANCE_ID, ["mover", "nobody"])
    assert set(result) == {"mover", "nobody"} and result["nobody"] is None
    mover = result["mover"]
    assert mover is not None
    assert mover.partitions == ((TOPIC, 1),)
    assert mover.started_ms is not None
    (look,) = transactions.producers(INSTANCE_ID, [(TOPIC, 1)])[TOPIC, 1]
    assert (look.producer_id, look.transaction_start_offset is None) == (mover.producer_id, False)
    inside = ClusterTransactions(cluster)
    internal = f"{INSTANCE_ID}.mover"
    assert [transaction.id for transaction in inside.transactions(producer_ids=[look.producer_id]).transactions] == [
        internal
    ]
    assert inside.transactions(open_for_ms=HOUR_MS).transactions == ()
    inside.fence(internal)
    eventually(
        lambda: (
            not any(
                transaction.transaction_start_offset
                for transaction in transactions.producers(INSTANCE_ID, [(TOPIC, 1)])[TOPIC, 1]
            )
        ),
        within_s=20,
        what="the abort to reach the partition",
    )
    with pytest.raises(KafkaException):
        producer.commit_transaction(20)


def test_a_transaction_unknown_to_every_coordinator_is_found_and_aborted(
    bootstrap: str, cluster: Cluster, instance: Instance
) -> None:
    leave_behind()
    internal = (f"{INSTANCE_ID}.{TOPIC}", 2)
    (orphan,) = hanging.scan_orphans(cluster).rows
    assert (orphan.topic_partition, orphan.producer.producer_id, orphan.instance_id) == (
        internal,
        FORGOTTEN_PRODUCER,
        instance.pk,
    )
    transaction_start_offset = orphan.producer.transaction_start_offset
    assert transaction_start_offset is not None
    hanging.abort_orphan(
        acting=system_actor("test"), cluster=cluster, topic=internal[0], partition=2, producer_id=FORGOTTEN_PRODUCER,
        transaction_start_offset=transaction_start_offset,
    )  # fmt: skip
    assert hanging.scan_orphans(cluster).rows == ()
    assert hanging.list_overdue(cluster).rows == ()


def leave_behind() -> None:
    """Writes a transactional message of an hour ago whose producer is unknown to all coordinators."""
    batch = MemoryRecordsBuilder(
        2, 0, 1 << 12, transactional=True, producer_id=FORGOTTEN_PRODUCER, producer_epoch=0, base_sequence=0
    )
    batch.append(timestamp=time.time_ns() // 1_000_000 - HOUR_MS, key=None, value=b"left")
    batch.close()
    kind = ProduceRequest.TopicProduceData
    data = kind(name=TOPIC, partition_data=[kind.PartitionProduceData(index=2, records=bytes(batch.buffer()))])
    request = ProduceRequest(
        transactional_id="forgotten", acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[data], version=PRODUCE_VERSION
    )
    answer = admin_client.send_as_instance(INSTANCE_ID, request, broker=1)
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_settings_of_all_brokers_and_of_topics_are_set_read_and_taken_away(bootstrap: str, cluster: Cluster) -> None:
    """QUO-60: the settings of a replication throttle."""
    settings, inside, gone = SettingsAdminClient(cluster), f"{INSTANCE_ID}.{TOPIC}", f"{INSTANCE_ID}.gone"
    assert settings.of_all_brokers(RATES) == {}
    assert settings.of_topics([inside, gone], REPLICAS) == {inside: {}}

    settings.set_for_all_brokers(dict.fromkeys(RATES, "5000000"))
    settings.set_for_topics({inside: dict.fromkeys(REPLICAS, "*"), gone: dict.fromkeys(REPLICAS, "*")})
    assert settings.of_all_brokers(RATES[:1]) == {RATES[0]: "5000000"}
    assert settings.of_topics([inside], REPLICAS) == {inside: dict.fromkeys(REPLICAS, "*")}

    settings.set_for_all_brokers(dict.fromkeys(RATES))
    settings.set_for_topics({inside: dict.fromkeys(REPLICAS)})
    assert settings.of_all_brokers(RATES) == {}
    assert settings.of_topics([inside], REPLICAS) == {inside: {}}
    with pytest.raises(Invalid, match="dynamically"):
        settings.set_for_all_brokers({"broker.id": "7"})
