"""A new instance with its defaults: closed, with users' rights exercised by a stock client."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
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
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.testkit.stack import Stack
from tests.testkit.tenancy import Caller, another_tenant
from tests.testkit.waiting import eventually

pytestmark = pytest.mark.system

TIMEOUT_S: Final = 30
TOPIC: Final = "ledger"
DENIED: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError._NOENT,  # librdkafka's own word where it is not shown a topic whose records it is to delete
}  # fmt: skip
ADMINISTRATION: Final = {
    "add partitions", "configure", "delete records", "delete a topic", "delete a group", "change a password",
    "create a user", "give rights", "take rights",
}  # fmt: skip
Call = Callable[[], Any]


class Sold:
    """An instance with default settings, and its owner's token."""

    def __init__(self, tenant: Caller) -> None:
        self.tenant = tenant
        status, body = tenant.call("POST", "/instances", {"name": f"closed-{uuid.uuid4().hex[:8]}"})
        assert status == 202, body
        self.path = f"/instances/{body['resource_id']}"
        eventually(self.is_running, within_s=60, what=f"{self.path} to run")
        self.bootstrap = tenant.get(self.path)["bootstrap_servers"]

    def is_running(self) -> bool:
        return bool(self.tenant.get(self.path)["status"]["phase"] == "running")

    def user(self, name: str, **rights: Any) -> dict[str, Any]:
        """Creates a user; returns its client's settings."""
        status, body = self.tenant.call("POST", f"{self.path}/users", {"name": name, **rights})
        assert status == 201, body
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": name,
            "sasl.password": body["secret"]["password"],
            "log_level": 0,
        }


@pytest.fixture(scope="module")
def sold(stack: Stack) -> Iterator[Sold]:
    instance = Sold(another_tenant(stack))
    yield instance
    assert instance.tenant.call("DELETE", instance.path)[0] == 202


@pytest.fixture(scope="module")
def owners(sold: Sold) -> dict[str, Any]:
    """Settings of the user with full access, who created a topic with a record and a group."""
    conf = sold.user("root", superuser=True)
    admin = AdminClient(conf)
    admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(TIMEOUT_S)
    assert produced(conf, TOPIC) == 0
    consumed(conf, TOPIC, "books")
    return conf


def produced(conf: dict[str, Any], topic: str) -> int:
    """Returns the error code of one record."""
    errors: list[Any] = []
    producer = Producer({**conf, "message.timeout.ms": TIMEOUT_S * 1_000})
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return 0 if errors[0] is None else int(errors[0].code())


def consumed(conf: dict[str, Any], topic: str, group: str) -> bytes:
    """Returns the first record, read by a member of a group that commits it. Raises `KafkaException`."""
    consumer = Consumer({**conf, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        consumer.subscribe([topic])
        message = eventually(lambda: consumer.poll(1.0), within_s=TIMEOUT_S, what="a record")
        if message.error():
            raise KafkaException(message.error())
        consumer.commit(message=message, asynchronous=False)
        return bytes(message.value())
    finally:
        consumer.close()


def transacted(conf: dict[str, Any], topic: str, transactional_id: str) -> None:
    """Produces one record in a transaction. Raises `KafkaException`."""
    producer = Producer({**conf, "transactional.id": transactional_id})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"in a transaction")
    producer.commit_transaction(TIMEOUT_S)


def calls(conf: dict[str, Any]) -> dict[str, Call]:
    """Returns every call that reads or changes others' objects, by name; each raises `KafkaException` when refused."""
    admin = AdminClient(conf)

    def first(futures: dict[Any, Any]) -> Any:
        (future,) = futures.values()
        return future.result(TIMEOUT_S)

    def produce() -> None:
        code = produced(conf, TOPIC)
        if code:
            raise KafkaException(KafkaError(code))

    def upsert(user: str) -> Any:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096)
        return first(admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, info, b"taken over")]))

    config = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    grant = AclBinding(
        ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, f"User:{conf['sasl.username']}", "*",
        AclOperation.ALL, AclPermissionType.ALLOW,
    )  # fmt: skip
    return {
        "produce": produce,
        "consume": lambda: consumed(conf, TOPIC, f"of-{conf['sasl.username']}"),
        "use a transaction": lambda: transacted(conf, TOPIC, f"of-{conf['sasl.username']}"),
        "create a topic": lambda: first(admin.create_topics([NewTopic(f"of-{conf['sasl.username']}", 1)])),
        "add partitions": lambda: first(admin.create_partitions([NewPartitions(TOPIC, 9)])),
        "configure": lambda: first(
            admin.incremental_alter_configs([ConfigResource("TOPIC", TOPIC, incremental_configs=[config])])
        ),
        "delete records": lambda: first(admin.delete_records([TopicPartition(TOPIC, 0, 1)])),
        "delete a topic": lambda: first(admin.delete_topics([TOPIC])),
        "delete a group": lambda: first(admin.delete_consumer_groups(["books"])),
        "change a password": lambda: upsert("root"),
        "create a user": lambda: upsert("mine"),
        "give rights": lambda: first(admin.create_acls([grant])),
        "take rights": lambda: first(admin.delete_acls([everything])),
    }


def test_a_user_given_nothing_is_refused_everything(sold: Sold, owners: dict[str, Any]) -> None:
    before = seen(sold)
    for what, call in calls(sold.user("nobody")).items():
        with pytest.raises(KafkaException) as refused:
            call()
        assert refused.value.args[0].code() in DENIED, what
    assert seen(sold) == before


def test_a_user_with_the_preset_produces_and_consumes_and_does_not_administer(
    sold: Sold, owners: dict[str, Any]
) -> None:
    for what, call in calls(sold.user("app", rights="produce_consume")).items():
        if what not in ADMINISTRATION:
            call()
            continue
        with pytest.raises(KafkaException) as refused:
            call()
        assert refused.value.args[0].code() in DENIED, what


def test_the_rights_of_one_instance_open_no_other(sold: Sold, owners: dict[str, Any], stack: Stack) -> None:
    """A user of this name in another tenant's closed instance has no rights."""
    other = Sold(another_tenant(stack))
    conf = other.user("app")
    for what, call in calls(conf).items():
        with pytest.raises(KafkaException) as refused:
            call()
        assert refused.value.args[0].code() in DENIED, what
    assert other.tenant.call("DELETE", other.path)[0] == 202


def seen(sold: Sold) -> list[Any]:
    """Returns the owner's view of the instance over REST, without the use of users."""
    users = sold.tenant.get(f"{sold.path}/users")["items"]
    topics = sold.tenant.get(f"{sold.path}/topics")["items"]
    return [
        [(topic["name"], topic["partitions"]) for topic in topics],
        sold.tenant.get(f"{sold.path}/topics/{TOPIC}")["config"],
        [(user["name"], [secret["id"] for secret in user["secrets"]]) for user in users if user["name"] != "nobody"],
        sold.tenant.get(f"{sold.path}/acls")["items"],
        sold.tenant.get(f"{sold.path}/quotas"),
    ]
