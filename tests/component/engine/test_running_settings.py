"""Two real broker processes, set while they run by the admin client of librdkafka: a copy that is under way becomes
slower and faster with the rate (QUO-7, QUO-60 to QUO-62), and groups wait and are bounded as operators say.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from brokers.contract import paths
from brokers.contract.documents import PartitionStateDocument
from brokers.contract.process import CLUSTER_USER
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from brokers.engine.protocol.messages.groups import FindCoordinatorRequest, JoinGroupRequest, JoinGroupRequestProtocol
from brokers.engine.protocol.messages.reassignment import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.differential.play import Address, Player
from tests.testkit.administering import let_everybody_administer
from tests.testkit.engine import HOST, BrokerProcess, EngineCluster, TestInstance, eventually

TIMEOUT_S = 30
LEADER, FOLLOWER = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
MB = 1_000_000
TOTAL_BYTES = 16 * MB
# A follower takes at most this much in one go, which is then paid for by waiting.
CHUNK_BYTES = 1 << 20
SLOW, FAST = 500_000, 4 * MB
TOPIC = "moved"


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("settings"), size=2) as running:
        yield running


@pytest.fixture(scope="module")
def instance(cluster: EngineCluster) -> TestInstance:
    return let_everybody_administer(cluster, cluster.create_instance("ins-aaaaaaaa"))


@pytest.fixture(scope="module")
def operator(cluster: EngineCluster) -> AdminClient:
    inside = ",".join(f"{HOST}:{broker.settings.internal_port}" for broker in cluster.brokers)
    login = {"sasl.mechanism": "PLAIN", "sasl.username": CLUSTER_USER, "sasl.password": cluster.secret}
    return AdminClient({"bootstrap.servers": inside, "security.protocol": "SASL_PLAINTEXT", **login})


def alter(admin: AdminClient, kind: ResourceType, name: str, values: dict[str, str | None]) -> None:
    """Changes settings; None deletes one."""
    entries = [
        ConfigEntry(
            key,
            value or "",
            incremental_operation=AlterConfigOpType.SET if value is not None else AlterConfigOpType.DELETE,
        )
        for key, value in values.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def use_rate(operator: AdminClient, bytes_per_s: int | None) -> None:
    for broker in ("1", "2"):
        rate = None if bytes_per_s is None else str(bytes_per_s)
        alter(operator, ResourceType.BROKER, broker, {LEADER: rate, FOLLOWER: rate})


def filled_topic(instance: TestInstance) -> None:
    admin = AdminClient({"bootstrap.servers": instance.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1]])])[TOPIC].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": instance.bootstrap, "batch.size": 100_000, "linger.ms": 5})
    for _ in range(TOTAL_BYTES // 50_000):
        producer.produce(TOPIC, os.urandom(50_000))
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0


def move(cluster: EngineCluster, topic: str, replicas: list[int]) -> None:
    broker = cluster.brokers[0]
    line = ReassignablePartition(partition_index=0, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=10_000, topics=[ReassignableTopic(name=topic, partitions=[line])]
    )
    with Player(Address(HOST, broker.settings.internal_port), login=(CLUSTER_USER, broker.secret)) as player:
        answer = player.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request)
    assert answer.responses[0].partitions[0].error_code == 0, answer


def copied_bytes(broker: BrokerProcess, topic: str) -> int:
    directory = Path(broker.settings.data_dirs[0]) / f"{topic}-0"
    return sum(file.stat().st_size for file in directory.glob("*.log"))


def seconds_until(broker: BrokerProcess, topic: str, size_bytes: int) -> float:
    began = time.monotonic()
    eventually(lambda: copied_bytes(broker, topic) >= size_bytes, f"{size_bytes} bytes are copied")
    return time.monotonic() - began


def test_a_copy_becomes_slower_and_faster_with_the_rate(
    cluster: EngineCluster, instance: TestInstance, operator: AdminClient
) -> None:
    internal, receiver = f"{instance.id}.{TOPIC}", cluster.brokers[1]
    filled_topic(instance)
    use_rate(operator, SLOW)
    alter(operator, ResourceType.TOPIC, internal, dict.fromkeys(REPLICAS, "*"))

    move(cluster, internal, [2])
    seconds_until(receiver, internal, CHUNK_BYTES // 2)
    slow_s = seconds_until(receiver, internal, 2 * MB)
    use_rate(operator, FAST)
    fast_s = seconds_until(receiver, internal, 7 * MB)
    use_rate(operator, SLOW)
    before_bytes, began = copied_bytes(receiver, internal), time.monotonic()
    eventually(lambda: time.monotonic() - began >= 1.0, "a second is over")
    held_back_bytes = copied_bytes(receiver, internal) - before_bytes
    use_rate(operator, None)
    rest_s = seconds_until(receiver, internal, TOTAL_BYTES)

    def is_moved() -> bool:
        raw, _ = cluster.zookeeper.get(paths.partition_state(internal, 0))
        return PartitionStateDocument.from_json(raw).isr == (2,)

    eventually(is_moved, "the replica has arrived")
    assert slow_s > 0.5 * MB / SLOW, f"{MB} bytes and more in {slow_s} s"
    assert fast_s < 5 * MB / SLOW, f"5 MB in {fast_s} s"
    assert held_back_bytes <= 2 * CHUNK_BYTES, "what was copied lately counts against the lower rate"
    assert rest_s < (TOTAL_BYTES - 8 * MB) / FAST * 5


def test_a_tenants_admin_client_may_not_alter_brokers(instance: TestInstance) -> None:
    admin = AdminClient({"bootstrap.servers": instance.bootstrap})

    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        alter(admin, ResourceType.BROKER, "1", {LEADER: "5"})


DELAY, SESSION_MIN = "group.initial.rebalance.delay.ms", "group.min.session.timeout.ms"
DELAY_MS = 1_500
SESSION_MS = 10_000
# A version in which a member need not come back with the id that it is given.
JOIN_VERSION = 3


def set_for_all(cluster: EngineCluster, key: str, value: str) -> None:
    """Sets the default of all brokers, which librdkafka's client cannot name."""
    config = IncrementalAlterableConfig(name=key, config_operation=0, value=value)
    resource = IncrementalAlterConfigsResource(resource_type=4, resource_name="", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    broker = cluster.brokers[0]
    with Player(Address(HOST, broker.settings.internal_port), login=(CLUSTER_USER, broker.secret)) as player:
        answer = player.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    assert answer.responses[0].error_code == 0, answer


def until_shown(operator: AdminClient, **shown: str) -> None:
    """Waits until each broker reports these values as those in force."""

    def are_in_force(resource: ConfigResource) -> bool:
        entries = operator.describe_configs([resource])[resource].result(TIMEOUT_S)
        return all(entries[key.replace("_", ".")].value == value for key, value in shown.items())

    for broker in ("1", "2"):
        resource = ConfigResource(ResourceType.BROKER, broker)
        eventually(lambda resource=resource: are_in_force(resource), f"broker {broker} has {shown}")


def join(instance: TestInstance, group: str, session_ms: int = SESSION_MS) -> tuple[int, float]:
    """Joins a new group. Returns the error code, and the seconds of the answer once the group had a coordinator."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"m")]
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=protocols,
    )
    not_yet = (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        # The first question for a coordinator makes the topic of offsets.
        with Player(Address(HOST, instance.document.ports[1])) as player:
            found = player.call(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest(key=group, key_type=0))
        with Player(Address(HOST, instance.document.ports[max(found.node_id, 1)])) as player:
            began = time.monotonic()
            answer = player.call(ApiKey.JOIN_GROUP, JOIN_VERSION, request)
        if answer.error_code not in not_yet:
            return int(answer.error_code), time.monotonic() - began
        assert began < deadline, answer


def test_the_next_group_waits_and_is_bounded_as_operators_say(
    cluster: EngineCluster, instance: TestInstance, operator: AdminClient
) -> None:
    admin = AdminClient({"bootstrap.servers": instance.bootstrap})
    code, took_s = join(instance, "before")
    assert (code, took_s < DELAY_MS / 1000) == (0, True), took_s

    for broker in ("1", "2"):
        alter(operator, ResourceType.BROKER, broker, {DELAY: str(DELAY_MS)})
    until_shown(operator, group_initial_rebalance_delay_ms=str(DELAY_MS))
    code, took_s = join(instance, "after")
    assert (code, took_s >= DELAY_MS / 1000) == (0, True), took_s

    for broker in ("1", "2"):
        alter(operator, ResourceType.BROKER, broker, {DELAY: None})
    set_for_all(cluster, SESSION_MIN, str(SESSION_MS + 1))
    until_shown(operator, group_initial_rebalance_delay_ms="0", group_min_session_timeout_ms=str(SESSION_MS + 1))
    assert join(instance, "short")[0] == ErrorCode.INVALID_SESSION_TIMEOUT
    assert join(instance, "long", SESSION_MS + 1)[0] == 0
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        alter(admin, ResourceType.BROKER, "1", {SESSION_MIN: "1"})
    seen = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")])
    (entries,) = (future.result(TIMEOUT_S) for future in seen.values())
    assert not {DELAY, SESSION_MIN} & entries.keys()


def test_an_operators_admin_client_sees_what_it_set_and_is_refused_what_cannot_change(operator: AdminClient) -> None:
    alter(operator, ResourceType.BROKER, "2", {"message.max.bytes": "2000000"})
    resource = ConfigResource(ResourceType.BROKER, "2")
    entry = operator.describe_configs([resource])[resource].result(TIMEOUT_S)["message.max.bytes"]

    assert (entry.value, entry.source, entry.is_read_only) == ("2000000", 2, False)
    assert {synonym.source for synonym in entry.synonyms.values()} <= {2, 5}
    with pytest.raises(KafkaException, match="Cannot update these configs dynamically"):
        alter(operator, ResourceType.BROKER, "2", {"num.partitions": None, "broker.id": "7"})
