"""ACLs of a stock admin client on brokers with a real ZooKeeper: in force on every broker and open connection within a
second, and after a restart.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.testkit.engine import HOST, EngineCluster, eventually

INSTANCE: Final = "ins-acls0000"
IN_FORCE_S_MAX: Final = 1.0
DENIED: Final = KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def cluster(zookeeper_address: str, tmp_path: Path) -> Iterator[EngineCluster]:
    with EngineCluster(zookeeper_address, tmp_path, size=2) as cluster:
        yield cluster


def binding(principal: str, operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, "ord", ResourcePatternType.PREFIXED, principal, "*", operation, permission)


ALL: Final = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def owner_of(cluster: EngineCluster, number: int) -> AdminClient:
    """Returns an admin client that acts for the instance in the way of the control plane."""
    return AdminClient(
        {
            "bootstrap.servers": f"{HOST}:{cluster.brokers[number].settings.internal_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": INSTANCE,
            "sasl.password": cluster.secret,
            "log_level": 0,
        }
    )


def create(admin: AdminClient, *bindings: AclBinding) -> None:
    for future in admin.create_acls(list(bindings)).values():
        future.result(30)


def listed(admin: AdminClient) -> set[tuple[str, str]]:
    return {(each.principal, each.name) for each in admin.describe_acls(ALL).result(30)}


class OpenProducer:
    """A producer that keeps its connections; `error` is that of one record."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 0, "topic.metadata.refresh.interval.ms": 100, "log_level": 0}
        )
        self._errors: list[Any] = []

    def error(self, partition: int) -> int:
        try:
            self._producer.produce(
                "orders", b"x", partition=partition, on_delivery=lambda error, _: self._errors.append(error)
            )
        except KafkaException as refused:  # what it has heard of the topic already
            return int(refused.args[0].code())
        assert self._producer.flush(30) == 0
        error = self._errors.pop()
        return 0 if error is None else int(error.code())

    def until(self, partition: int, error: int) -> None:
        eventually(lambda: self.error(partition) == error, f"partition {partition} answers {error}", 10)


def test_a_stock_client_gives_and_takes_rights_that_hold_everywhere_and_outlive_a_restart(
    cluster: EngineCluster,
) -> None:
    instance = cluster.create_instance(INSTANCE)
    owner, elsewhere = owner_of(cluster, 0), owner_of(cluster, 1)
    owner.create_topics([NewTopic("orders", 2, 1)])["orders"].result(30)
    producer = OpenProducer(instance.bootstrap)
    assert [producer.error(partition) for partition in range(2)] == [0, 0]

    create(owner, binding("User:alice", AclOperation.WRITE, AclPermissionType.ALLOW))
    given_s = time.monotonic()
    # One partition on each broker, over connections that are open.
    for partition in range(2):
        producer.until(partition, DENIED)
    assert time.monotonic() - given_s < IN_FORCE_S_MAX
    eventually(lambda: listed(elsewhere) == {("User:alice", "ord")}, "the other broker knows", 10)

    create(elsewhere, binding("User:ANONYMOUS", AclOperation.WRITE, AclPermissionType.ALLOW))
    for partition in range(2):
        producer.until(partition, 0)

    cluster.brokers[0].stop()
    cluster.brokers[0].start()
    cluster.brokers[0].wait_until_ready()
    again = owner_of(cluster, 0)
    assert listed(again) == {("User:alice", "ord"), ("User:ANONYMOUS", "ord")}
    (gone,) = elsewhere.delete_acls([ALL]).values()
    assert len(gone.result(30)) == 2
    assert listed(elsewhere) == set()
