"""A broker with two instances: the hostile one and its neighbour, each with a topic of one partition."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.adversarial.hostile import TOPIC
from tests.testkit.administering import let_everybody_administer
from tests.testkit.engine import EngineCluster, TestInstance


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("attacked")) as running:
        yield running


def with_topic(cluster: EngineCluster, instance_id: str) -> TestInstance:
    """Creates an open instance with a topic; its clients may also administer it."""
    instance = let_everybody_administer(cluster, cluster.create_instance(instance_id))
    admin = AdminClient({"bootstrap.servers": instance.bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, 1, 1)]).values():
        future.result(30)
    return instance


@pytest.fixture(scope="module")
def hostile_port(cluster: EngineCluster) -> int:
    return next(iter(with_topic(cluster, "ins-aaaaaaaa").document.ports.values()))


@pytest.fixture(scope="module")
def neighbour_port(cluster: EngineCluster) -> int:
    return next(iter(with_topic(cluster, "ins-bbbbbbbb").document.ports.values()))
