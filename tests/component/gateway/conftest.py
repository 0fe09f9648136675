"""A gateway in front of two of Penstock's brokers and, where its jars are, of an Apache Kafka; with three instances."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testkit.gateway import (
    PASSWORD,
    GatewayProcess,
    Upstream,
    apache_kafka_upstream,
    gateway_instance,
    penstock_upstream,
)

FIRST, SECOND, OPEN = "ins-aaaaaaaa", "ins-bbbbbbbb", "ins-cccccccc"


@pytest.fixture(scope="package", params=["penstock", "apache-kafka"])
def upstream(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upstream]:
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "penstock":
        with penstock_upstream(request.getfixturevalue("zookeeper_address"), directory / "brokers") as running:
            yield running
    else:
        with apache_kafka_upstream(directory / "kafka") as running:
            yield running


@pytest.fixture(scope="package")
def gateway(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with two closed instances, in which everything has the same names, and an open one without users."""
    users = [
        {"name": "app", "password": PASSWORD, "superuser": True},
        {"name": "reader", "password": PASSWORD},
    ]
    acls = [
        {"resource_type": "topic", "name": "orders", "user": "reader", "operation": "read"},
        {"resource_type": "group", "name": "readers", "user": "reader", "operation": "read"},
    ]
    instances = [
        gateway_instance(FIRST, upstream.nodes, users=users, acls=acls, partitions_max=60),
        gateway_instance(SECOND, upstream.nodes, users=users, acls=acls),
        gateway_instance(OPEN, upstream.nodes, users=[], open=True, security="plaintext"),
    ]
    with GatewayProcess(tmp_path_factory.mktemp("gateway"), upstream.bootstrap, instances) as running:
        yield running
