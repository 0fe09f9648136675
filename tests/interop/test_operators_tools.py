"""Apache Kafka's own tools in an operator's hands: settings of running brokers, and a move with a rate (QUO-60)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from brokers.contract import documents, paths
from brokers.contract.process import CLUSTER_USER
from tests.interop import jars
from tests.testkit.engine import HOST, EngineCluster
from tests.testkit.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

CONFIGS = "kafka.admin.ConfigCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
INSTANCE, TOPIC = "ins-tools000", "moved"
LEADER, FOLLOWER = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
MESSAGES, MESSAGE_BYTES = 120, 50_000


@dataclass(frozen=True)
class Place:
    cluster: EngineCluster
    home: Path
    properties: Path

    @property
    def inside(self) -> str:
        return ",".join(f"{HOST}:{broker.settings.internal_port}" for broker in self.cluster.brokers)

    def tool(self, tool: str, *arguments: str, expected_code: int | None = 0) -> str:
        common = ("--bootstrap-server", self.inside, "--command-config", str(self.properties))
        return jars.run(tool, *common, *arguments, expected_code=expected_code)

    def configs(self, *arguments: str, expected_code: int | None = 0) -> str:
        return self.tool(CONFIGS, "--entity-type", "brokers", *arguments, expected_code=expected_code)

    def stored(self, name: str) -> dict[str, str]:
        path = f"{paths.BROKER_CONFIGS}/{name}"
        return documents.config_from_json(self.cluster.zookeeper.get(path)[0])


@pytest.fixture(scope="module")
def place(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    jars.java_with_jars()
    home = tmp_path_factory.mktemp("operator")
    with EngineCluster(zookeeper_address, home, size=2) as cluster:
        yield Place(cluster, home, jars.login(home / "login.properties", CLUSTER_USER, cluster.secret))


def test_settings_of_one_broker_and_of_all_are_set_shown_and_taken_away(place: Place) -> None:
    place.configs("--entity-default", "--alter", "--add-config", "log.retention.ms=200000,log.cleaner.threads=2")
    place.configs("--entity-name", "2", "--alter", "--add-config", "log.retention.ms=100000")
    shown = place.configs("--entity-name", "2", "--describe")
    assert "log.retention.ms=100000" in shown
    assert (
        "DYNAMIC_BROKER_CONFIG:log.retention.ms=100000, DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=200000" in shown
    )
    assert "log.retention.ms=200000" in place.configs("--entity-default", "--describe")
    assert "broker.id=2" in place.configs("--entity-name", "2", "--describe", "--all")
    place.configs("--entity-name", "2", "--alter", "--delete-config", "log.retention.ms")
    assert "log.retention.ms=200000" in place.configs("--entity-name", "2", "--describe", "--all")
    refused = place.configs("--entity-name", "1", "--alter", "--add-config", "max.connections=3", expected_code=1)
    assert "Cannot update these configs dynamically" in refused
    place.configs("--entity-default", "--alter", "--delete-config", "log.retention.ms,log.cleaner.threads")
    assert place.stored("<default>") == {}


def test_a_move_is_begun_with_a_rate_and_the_rate_goes_when_it_is_verified(place: Place) -> None:
    bootstrap = place.cluster.create_instance(INSTANCE).bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1]])])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for _ in range(MESSAGES):
        producer.produce(TOPIC, os.urandom(MESSAGE_BYTES))
    assert producer.flush(30) == 0
    inside = f"{INSTANCE}.{TOPIC}"
    plan = place.home / "moves.json"
    wanted = {"topic": inside, "partition": 0, "replicas": [2]}
    plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    given = ("--reassignment-json-file", str(plan))

    begun = place.tool(REASSIGN, *given, "--execute", "--throttle", "200000")
    assert "Successfully started partition reassignment" in begun
    for name in ("1", "2"):
        assert place.stored(name) == {LEADER: "200000", FOLLOWER: "200000"}
    assert f"Reassignment of partition {inside}-0 is still in progress" in place.tool(
        REASSIGN, *given, "--verify", "--preserve-throttles"
    )
    faster = place.tool(REASSIGN, *given, "--execute", "--additional", "--throttle", "50000000")
    assert "throttle" in faster
    eventually(
        lambda: "is completed" in place.tool(REASSIGN, *given, "--verify", "--preserve-throttles"),
        within_s=60,
        what="the move to end",
    )
    assert "is completed" in place.tool(REASSIGN, *given, "--verify")
    assert [place.stored(name) for name in ("1", "2")] == [{}, {}]
    topic, _ = place.cluster.zookeeper.get(paths.topic_config(inside))
    assert documents.config_from_json(topic) == {}
