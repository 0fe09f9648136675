"""Our broker for the scripts: one process with one instance, and no topic in it that the scripts do not make."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from brokers.contract.documents import InstanceSettings
from brokers.contract.process import CLUSTER_USER
from tests.differential.play import Address
from tests.differential.record import SETTINGS as SETTINGS_RECORDED
from tests.differential.record import SETTINGS_APART
from tests.support.engine import HOST, EngineCluster

INSTANCE = "ins-differen"
# Apache Kafka's own default.
SETTINGS = InstanceSettings(default_partitions=1)
# As Apache Kafka was started for the recording (`record.SETTINGS`).
OVERRIDES = dict(SETTINGS_RECORDED)


@pytest.fixture(scope="session")
def kafka_address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """The broker to ask; `PENSTOCK_DIFFERENTIAL=host:port` names a running one with a fresh instance instead."""
    given = os.environ.get("PENSTOCK_DIFFERENTIAL")
    if given:
        yield address(given)
        return
    zookeeper_address: str = request.getfixturevalue("zookeeper_address")
    home = tmp_path_factory.mktemp("differential")
    with EngineCluster(zookeeper_address, home, overrides=OVERRIDES) as cluster:
        yield _served(cluster)


@pytest.fixture
def kafka_address_apart(zookeeper_address: str, tmp_path: Path) -> Iterator[Address]:
    """A broker whom nobody has asked anything."""
    with EngineCluster(zookeeper_address, tmp_path, overrides=SETTINGS_APART) as cluster:
        yield _served(cluster)


def _served(cluster: EngineCluster) -> Address:
    tenant = address(cluster.create_instance(INSTANCE, settings=SETTINGS).bootstrap)
    (broker,) = cluster.brokers
    inside = Address(HOST, broker.settings.internal_port), (CLUSTER_USER, broker.secret)
    return replace(tenant, inside=inside, prefix=f"{INSTANCE}.")


def address(bootstrap: str) -> Address:
    host, _, port = bootstrap.rpartition(":")
    return Address(host, int(port))
