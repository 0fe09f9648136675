"""Our broker for the scripts: one process with one instance, and no topic in it that the scripts do not make."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from brokers.contract.documents import InstanceSettings
from tests.differential.play import Address
from tests.support.engine import EngineCluster

# Apache Kafka's own default.
SETTINGS = InstanceSettings(default_partitions=1)


@pytest.fixture(scope="session")
def kafka_address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """The broker to ask; `PENSTOCK_DIFFERENTIAL=host:port` names a running one with a fresh instance instead."""
    given = os.environ.get("PENSTOCK_DIFFERENTIAL")
    if given:
        yield address(given)
        return
    zookeeper_address: str = request.getfixturevalue("zookeeper_address")
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("differential")) as cluster:
        yield address(cluster.create_instance("ins-differen", settings=SETTINGS).bootstrap)


def address(bootstrap: str) -> Address:
    host, _, port = bootstrap.rpartition(":")
    return Address(host, int(port))
