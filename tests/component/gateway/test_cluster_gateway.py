"""Gateways of a cluster in ZooKeeper: instances, users, rights and quotas come from its documents, while they run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)

from brokers.contract.audit import AuditEvent
from brokers.contract.process import CLUSTER_USER
from brokers.contract.upstream import UPSTREAM_LOST, UpstreamSettings
from brokers.contract.usage import USAGE_TOPIC, UsageEvent
from brokers.contract.usage_columns import events_in
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.metadata import MetadataRequest
from brokers.engine.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from brokers.engine.protocol.messages.users import AlteredUser
from tests.component.gateway.test_clients import TIMEOUT_S, consuming, create, read
from tests.testkit.audit import audit_events
from tests.testkit.engine import BrokerProcess, EngineCluster, TestInstance, eventually
from tests.testkit.gateway import PASSWORD, Upstream, listens
from tests.testkit.users import alter_users, user_addition
from tests.testkit.wire import WireClient

OPEN, CLOSED = "ins-aaaaaaaa", "ins-bbbbbbbb"
RECORDS = 200
ROUNDS, PARTITIONS_MAX = 5, 10
STORAGE_BYTES, RECORD_BYTES = 8_000_000, 100_000


@pytest.fixture(scope="module")
def gateways(
    upstream: Upstream, zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineCluster]:
    """A gateway in front of each upstream broker."""
    with EngineCluster(
        zookeeper_address,
        tmp_path_factory.mktemp("gateways"),
        size=len(upstream.nodes),
        session_timeout_ms=4_000,
        upstream=UpstreamSettings(bootstrap_servers=upstream.bootstrap),
    ) as running:
        yield running


@pytest.fixture(scope="module")
def instance(gateways: EngineCluster) -> TestInstance:
    return gateways.create_instance(OPEN, partitions_max=40)


def config_of(instance: TestInstance, **fields: Any) -> dict[str, Any]:
    return {"bootstrap.servers": instance.bootstrap, **fields}


def produce(config: dict[str, Any], topic: str, count: int, size: int = 100) -> None:
    producer = Producer({"enable.idempotence": True, **config})
    failures: list[KafkaError] = []
    for number in range(count):
        producer.produce(
            topic, bytes(size), key=str(number), on_delivery=lambda error, _: failures.extend([error] if error else [])
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert not failures, failures[0]


def test_clients_exchange_records_through_the_gateways_of_a_cluster(instance: TestInstance) -> None:
    config = config_of(instance)
    topic = create(AdminClient(config), "exchanged-in-cluster")
    produce(config, topic, RECORDS)
    with consuming(config, topic, "readers") as consumer:
        assert len({message.key() for message in read(consumer, RECORDS)}) == RECORDS


def closed_config(instance: TestInstance, user: str, password: str = PASSWORD, **fields: Any) -> dict[str, Any]:
    return config_of(
        instance,
        **{
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
            **fields,
        },
    )


@pytest.fixture(scope="module")
def closed(gateways: EngineCluster) -> TestInstance:
    """An instance whose users sign in: a superuser `app`, and `reader` without any right."""
    instance = gateways.create_instance(
        CLOSED, security="sasl_plaintext", partitions_max=40, allow_everyone_if_no_acl=False
    )
    alter_users(
        gateways,
        instance,
        user_addition("app", PASSWORD, instance_id=CLOSED, superuser=True),
        user_addition("reader", PASSWORD, instance_id=CLOSED),
    )
    return instance


def read_right(topic: str) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:reader", "*", AclOperation.READ,
        AclPermissionType.ALLOW,
    )  # fmt: skip


def error_of(config: dict[str, Any], topic: str) -> int:
    """Returns the error code of a look at a topic; 0 if the client may see it."""
    metadata = AdminClient(config).list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    return 0 if metadata.error is None else int(metadata.error.code())


def test_a_rule_that_a_tenants_admin_client_adds_holds_at_once_and_until_it_is_removed(
    closed: TestInstance, gateways: EngineCluster
) -> None:
    owner = AdminClient(closed_config(closed, "app"))
    topic = create(owner, "orders")
    produce(closed_config(closed, "app"), topic, 10)
    reader = closed_config(closed, "reader")
    eventually(lambda: error_of(reader, topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED, "reader sees nothing")
    owner.create_acls([read_right(topic)])[read_right(topic)].result(TIMEOUT_S)
    eventually(lambda: error_of(reader, topic) == 0, "reader may see it on each gateway")
    with pytest.raises(AssertionError, match="TOPIC_AUTHORIZATION_FAILED"):
        produce({**reader, "enable.idempotence": False}, topic, 1)
    filters = AclBindingFilter(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert len(owner.describe_acls(filters).result(TIMEOUT_S)) == 1
    owner.delete_acls([filters])[filters].result(TIMEOUT_S)
    eventually(lambda: error_of(reader, topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED, "the right is gone")


def test_a_user_who_is_removed_may_not_sign_in(closed: TestInstance, gateways: EngineCluster) -> None:
    alter_users(gateways, closed, user_addition("guest", PASSWORD, instance_id=CLOSED, superuser=True))
    guest = closed_config(closed, "guest")
    eventually(lambda: error_of(guest, "nowhere") == KafkaError.UNKNOWN_TOPIC_OR_PART, "guest has signed in")
    alter_users(gateways, closed, AlteredUser(name="guest", is_deleted=True))
    with pytest.raises(KafkaException):
        AdminClient(guest).list_topics(timeout=3)


def test_an_instance_sees_only_its_own_topics(instance: TestInstance, closed: TestInstance) -> None:
    create(AdminClient(config_of(instance)), "mine")
    others = AdminClient(closed_config(closed, "app"))
    assert "mine" not in others.list_topics(timeout=TIMEOUT_S).topics
    assert error_of(closed_config(closed, "app"), "mine") == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_frozen_instance_takes_no_records(gateways: EngineCluster) -> None:
    frozen = gateways.create_instance("ins-ffffffff", partitions_max=40)
    topic = create(AdminClient(config_of(frozen)), "orders", partitions=1)
    produce(config_of(frozen), topic, 1)
    frozen = gateways.update_instance(frozen, state="frozen")
    with pytest.raises(AssertionError, match="POLICY_VIOLATION"):
        produce({**config_of(frozen), "message.timeout.ms": 5_000}, topic, 1)
    gateways.delete_instance(frozen)
    assert not any(listens(port) for port in frozen.document.ports.values())


def test_a_client_quota_delays_and_its_reason_is_in_the_throttle_log(
    gateways: EngineCluster, instance: TestInstance
) -> None:
    gateways.set_quota(OPEN, {"producer_byte_rate": "100000"}, user=None, client_id="slow")
    topic = create(AdminClient(config_of(instance)), "slow", partitions=1)
    began_s = time.monotonic()
    produce({**config_of(instance), "client.id": "slow", "batch.size": 20_000, "linger.ms": 0}, topic, 40, size=10_000)
    assert time.monotonic() - began_s > 1
    logs = [gateway.admin(f"/v1/instances/{OPEN}/throttles") for gateway in gateways.brokers]
    assert any("slow" in str(log) and "producer_byte_rate" in str(log) for log in logs), logs


def test_records_are_counted_to_the_byte_in_both_directions(gateways: EngineCluster, instance: TestInstance) -> None:
    topic = create(AdminClient(config_of(instance)), "counted")
    config = config_of(instance, **{"client.id": "counter"})
    produce(config, topic, RECORDS)
    with consuming(config, topic, "counters") as consumer:
        read(consumer, RECORDS)
    counted: dict[str, int] = {}

    def is_counted() -> bool:
        counted.update(counted_bytes([login_of(gateway) for gateway in gateways.brokers], OPEN, "counted"))
        return counted.keys() == {"produce", "consume"} and counted["consume"] >= counted["produce"]

    eventually(is_counted, "the records are reported", 60)
    # Batches have headers, and the bytes of zeros are not compressed.
    assert RECORDS * 100 < counted["produce"] < RECORDS * 250


def login_of(gateway: BrokerProcess) -> dict[str, Any]:
    """Returns the configuration of a client of the control plane's pipeline."""
    return {
        "bootstrap.servers": f"{gateway.settings.internal_host}:{gateway.settings.internal_port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": CLUSTER_USER,
        "sasl.password": gateway.secret,
    }


def counted_bytes(logins: Iterable[dict[str, Any]], instance_id: str, topic: str) -> dict[str, int]:
    """Returns the bytes of a topic by direction, as the gateways have counted them."""
    latest: dict[tuple[object, ...], int] = {}
    for login in logins:
        for event in usage_events(login):
            if (event.instance_id, event.topic) == (instance_id, topic):
                latest[event.broker_id, event.user, event.client_id, event.direction] = event.bytes
    result: dict[str, int] = {}
    for (*_, direction), size_bytes in latest.items():
        result[str(direction)] = result.get(str(direction), 0) + size_bytes
    return result


def usage_events(login: dict[str, Any]) -> list[UsageEvent]:
    """Returns all records of the usage topic."""
    consumer = Consumer({**login, "group.id": "tests", "enable.auto.commit": False})
    try:
        result: list[UsageEvent] = []
        for partition in consumer.list_topics(USAGE_TOPIC, timeout=10).topics[USAGE_TOPIC].partitions:
            place = TopicPartition(USAGE_TOPIC, partition, 0)
            end = consumer.get_watermark_offsets(place, timeout=10)[1]
            consumer.assign([place])
            while end and consumer.position([place])[0].offset < end:
                message = consumer.poll(1.0)
                if message is not None and message.error() is None:
                    result += events_in(message.value() or b"")
        return result
    finally:
        consumer.close()


def test_topics_that_clients_create_and_delete_are_in_the_audit_log(
    closed: TestInstance, gateways: EngineCluster
) -> None:
    owner = AdminClient(closed_config(closed, "app", **{"client.id": "auditor"}))
    create(owner, "audited", partitions=3)
    owner.delete_topics(["audited"])["audited"].result(TIMEOUT_S)

    acts: list[AuditEvent] = []

    def are_reported() -> bool:
        acts[:] = [event for event in audit_events(gateways, CLOSED) if event.items[0].name == "audited"]
        return len(acts) == 2

    eventually(are_reported, "both are reported", TIMEOUT_S)
    created, deleted = acts
    assert [event.items[0].action for event in acts] == ["topic.created", "topic.deleted"]
    assert (created.items[0].after or {})["partitions"] == 3
    assert (created.user, created.client_id) == (deleted.user, deleted.client_id) == ("app", "auditor")


def test_other_changes_of_topics_and_groups_are_in_the_audit_log(closed: TestInstance, gateways: EngineCluster) -> None:
    config = closed_config(closed, "app", **{"client.id": "changer"})
    owner, topic, group = AdminClient(config), "changed", "changers"
    create(owner, topic, partitions=1)
    produce(config, topic, 10)
    owner.create_partitions([NewPartitions(topic, 2)])[topic].result(TIMEOUT_S)
    retention = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[retention])
    owner.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    at = TopicPartition(topic, 0, 1)
    owner.delete_records([at])[at].result(TIMEOUT_S)
    offsets = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 1, 0)])
    owner.alter_consumer_group_offsets([offsets])[group].result(TIMEOUT_S)
    listed = owner.list_consumer_groups().result(TIMEOUT_S)
    assert group in [each.group_id for each in listed.valid]
    described = owner.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    assert described.group_id == group
    owner.delete_consumer_groups([group])[group].result(TIMEOUT_S)

    expected = [
        "topic.created", "topic.changed", "topic.changed", "topic.records_deleted", "group.offsets_committed",
        "group.deleted",
    ]  # fmt: skip
    acts: list[AuditEvent] = []

    def are_reported() -> bool:
        acts[:] = [event for event in audit_events(gateways, CLOSED) if event.client_id == "changer"]
        return len(acts) >= len(expected)

    eventually(are_reported, "all are reported", TIMEOUT_S)
    items = [event.items[0] for event in acts]
    assert sorted(item.action for item in items) == sorted(expected), acts
    assert {item.name for item in items} == {topic, group}
    changes = [item.after for item in items if item.action == "topic.changed"]
    assert {"partitions": 2} in changes
    assert {"config": {"retention.ms": "60000"}} in changes


async def test_gateways_that_create_topics_at_once_keep_the_partition_limit(gateways: EngineCluster) -> None:
    limited = gateways.create_instance("ins-eeeeeeee", partitions_max=PARTITIONS_MAX)
    ports = list(limited.document.ports.values())

    async def create_topic(port: int, name: str) -> int:
        client = await WireClient.connect(port)
        topic = CreatableTopic(name=name, num_partitions=PARTITIONS_MAX // 2 + 1, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        response = await client.call(ApiKey.CREATE_TOPICS, 7, request)
        await client.close()
        return int(response.topics[0].error_code)

    for number in range(ROUNDS):
        names = [f"round-{number}-{port}" for port in ports]
        codes = await asyncio.gather(*map(create_topic, ports, names))
        assert codes.count(0) <= 1, codes
        assert set(codes) <= {0, int(ErrorCode.POLICY_VIOLATION)}
        client = await WireClient.connect(ports[0])
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:  # The brokers of the upstream learn of a deletion one after the other.
            found = await client.call(ApiKey.METADATA, 11, MetadataRequest(topics=None))
            if sum(len(topic.partitions) for topic in found.topics) <= PARTITIONS_MAX:
                break
            assert time.monotonic() < deadline_s, found.topics
            await asyncio.sleep(0.1)
        request = DeleteTopicsRequest(topic_names=[topic.name or "" for topic in found.topics], timeout_ms=10_000)
        await client.call(ApiKey.DELETE_TOPICS, 5, request)
        await client.close()
    gateways.delete_instance(limited)


def produced_until_refused(config: dict[str, Any], topic: str) -> tuple[int, KafkaError]:
    """Produces records of `RECORD_BYTES` until one is refused. Returns the bytes of accepted ones, and the error."""
    accepted = 0
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Any) -> None:
        nonlocal accepted
        if error is None:
            accepted += RECORD_BYTES
        else:
            errors.append(error)

    producer = Producer({"linger.ms": 0, "partitioner": "random", **config})
    deadline_s = time.monotonic() + TIMEOUT_S
    while not errors and time.monotonic() < deadline_s:
        producer.produce(topic, bytes(RECORD_BYTES), on_delivery=delivered)
        producer.flush(TIMEOUT_S)
    assert errors, f"{accepted} bytes were accepted"
    return accepted, errors[0]


def test_a_full_instance_is_refused_over_all_gateways_until_it_deletes_and_others_go_on(
    gateways: EngineCluster, instance: TestInstance
) -> None:
    limited = gateways.create_instance("ins-ffffffff", partitions_max=40)
    limited = gateways.update_instance(limited, capacity_bytes=STORAGE_BYTES)
    config = config_of(limited)
    admin = AdminClient(config)
    topic = create(admin, "filled", 2 * len(gateways.brokers))
    accepted_bytes, error = produced_until_refused(config, topic)
    # The last bytes may be at a gateway that the producer did not use; credit is a hundredth more than was bought.
    assert STORAGE_BYTES * 0.8 < accepted_bytes <= STORAGE_BYTES * 1.01
    assert error.code() == KafkaError.POLICY_VIOLATION
    refusing = [gateway.admin(f"/v1/instances/{limited.id}/throttles") for gateway in gateways.brokers]
    assert "storage" in str(refusing)
    produce(config_of(instance), create(AdminClient(config_of(instance)), "beside"), RECORDS)
    gateways.brokers[0].kill()
    gateways.brokers[0].start()
    gateways.brokers[0].wait_until_ready()
    assert produced_until_refused(config, topic)[0] <= STORAGE_BYTES * 0.25
    for future in admin.delete_topics([topic]).values():
        future.result(TIMEOUT_S)
    again = create(admin, "again", 2 * len(gateways.brokers))

    def is_accepted() -> bool:
        failures: list[KafkaError] = []
        producer = Producer(config)
        producer.produce(again, b"x", on_delivery=lambda error, _: failures.extend([error] if error else []))
        return producer.flush(TIMEOUT_S) == 0 and not failures

    eventually(is_accepted, "deleted records make room", TIMEOUT_S)
    gateways.delete_instance(limited)


def test_a_gateway_reports_that_its_upstream_is_gone_until_it_is_back(
    gateways: EngineCluster, upstream: Upstream
) -> None:
    gateway, began_ms = gateways.brokers[0], time.time() * 1000
    lost: list[float | None] = []

    def is_lost() -> bool:
        lost.append(gateway.admin("/v1/status")["not_ready_since_ms"].get(UPSTREAM_LOST))
        return lost[-1] is not None

    assert not is_lost()
    upstream.kill(1)
    try:
        eventually(is_lost, "the loss is reported", TIMEOUT_S)
    finally:
        upstream.start(1)
    assert began_ms < (lost[-1] or 0) < time.time() * 1000
    eventually(lambda: not is_lost(), "the upstream is back", TIMEOUT_S)


def test_a_gateway_that_is_restarted_goes_on_with_the_same_instances(
    gateways: EngineCluster, instance: TestInstance
) -> None:
    topic = create(AdminClient(config_of(instance)), "lasting")
    produce(config_of(instance), topic, 10)
    gateway = gateways.brokers[0]
    assert gateway.stop() == 0
    gateway.start()
    gateway.wait_until_ready()
    with consuming(config_of(instance), topic, "patient") as consumer:
        assert len(read(consumer, 10)) == 10


def test_a_gateway_whose_upstream_has_no_such_broker_does_not_start(
    gateways: EngineCluster, upstream: Upstream, zookeeper_address: str, tmp_path: Path
) -> None:
    wrong = EngineCluster(
        zookeeper_address,
        tmp_path / "wrong",
        size=len(upstream.nodes) + 1,
        upstream=UpstreamSettings(bootstrap_servers=upstream.bootstrap),
    ).brokers[-1]
    wrong.start()
    assert wrong.process is not None
    assert wrong.process.wait(60) == 2
    assert f"the upstream has no broker {len(upstream.nodes) + 1}" in wrong.log_tail()
