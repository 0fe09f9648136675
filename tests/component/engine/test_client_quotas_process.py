"""Client quotas of a real broker with stock clients (QUO-21, QUO-40 to QUO-42): librdkafka creates topics in a version
that waits, kafka-python in one that is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient
from kafka.errors import ThrottlingQuotaExceededError

from brokers.engine.protocol.errors import ErrorCode
from tests.testkit.engine import EngineCluster, TestInstance

TIMEOUT_S = 30
RATE, PERCENT = "controller_mutation_rate", "request_percentage"
# Two a second, and 22 at once.
PER_S, BURST = "2", 22
REFUSED = int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    home: Path = tmp_path_factory.mktemp("client-quotas")
    with EngineCluster(zookeeper_address, home, size=1) as running:
        yield running


@pytest.fixture(scope="module")
def instance(cluster: EngineCluster) -> TestInstance:
    return cluster.create_instance("ins-aaaaaaaa")


def ledger(cluster: EngineCluster, instance: TestInstance, client_id: str) -> dict[str, Any]:
    """Returns the last delay of this client."""
    entries = cluster.brokers[0].admin(f"/v1/instances/{instance.id}/throttles")["entries"]
    return next(entry for entry in entries if entry["client_id"] == client_id)


def test_librdkafka_is_done_and_waits_before_its_next_request(cluster: EngineCluster, instance: TestInstance) -> None:
    cluster.set_quota(instance.id, {RATE: PER_S}, user=None, client_id="waits")
    admin = AdminClient({"bootstrap.servers": instance.bootstrap, "client.id": "waits"})

    for future in admin.create_topics([NewTopic("a", BURST), NewTopic("b", 6), NewTopic("c", 1)]).values():
        future.result(TIMEOUT_S)
    began_s = time.monotonic()
    admin.create_topics([NewTopic("d", 1)])["d"].result(TIMEOUT_S)

    assert time.monotonic() - began_s > 1.0, "some seven partitions are owed"
    entry = ledger(cluster, instance, "waits")
    assert (entry["rule"]["quota"], entry["rule"]["level"]) == (RATE, 4)
    assert entry["delay_ms_max"] > 1_000


def test_kafka_python_is_refused_topic_by_topic(cluster: EngineCluster, instance: TestInstance) -> None:
    cluster.set_quota(instance.id, {RATE: PER_S}, user=None, client_id="refused")
    admins = [KafkaAdminClient(bootstrap_servers=instance.bootstrap, client_id="refused") for _ in range(2)]
    topics = {f"refused-{number}": {"num_partitions": count} for number, count in enumerate((BURST, 20, 1))}

    answer = admins[0].create_topics(topics, raise_errors=False)
    # The first one pauses by itself for its throttle time.
    with pytest.raises(ThrottlingQuotaExceededError):
        admins[1].delete_topics(["refused-0", "refused-1"])
    for admin in admins:
        admin.close()

    codes = {topic["name"]: topic["error_code"] for topic in answer["topics"]}
    assert codes == {"refused-0": 0, "refused-1": 0, "refused-2": REFUSED}


def test_a_client_that_takes_too_much_time_is_slowed_down_and_others_are_not(
    cluster: EngineCluster, instance: TestInstance
) -> None:
    cluster.set_quota(instance.id, {PERCENT: "0.5"}, user=None, client_id="flood")

    def sent(client_id: str) -> int:
        producer = Producer({"bootstrap.servers": instance.bootstrap, "client.id": client_id, "linger.ms": 0})
        count, until_s = 0, time.monotonic() + 4
        while time.monotonic() < until_s:
            producer.produce("time", b"x")
            producer.flush(TIMEOUT_S)
            count += 1
        return count

    slow, fast = sent("flood"), sent("calm")

    assert ledger(cluster, instance, "flood")["rule"]["quota"] == PERCENT
    assert ledger(cluster, instance, "flood")["delay_ms_max"] <= 1_000
    assert slow < fast / 2
