"""Our broker for the scripts: one process, with an instance for each of them, in which there is nothing else."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from brokers.contract.documents import InstanceSettings
from brokers.contract.process import CLUSTER_USER
from tests.differential.play import Address, Player
from tests.differential.record import SETTINGS as SETTINGS_RECORDED
from tests.differential.record import SETTINGS_APART
from tests.differential.scripts import sasl, scram_users
from tests.testkit.engine import HOST, EngineCluster

INSTANCES = (f"ins-{number:08d}" for number in itertools.count(1))
# Apache Kafka's own default.
SETTINGS = InstanceSettings(default_partitions=1)
# As Apache Kafka was started for the recording (`record.SETTINGS`).
OVERRIDES = dict(SETTINGS_RECORDED)


@pytest.fixture(scope="session")
def shared_broker(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("differential"), overrides=OVERRIDES) as cluster:
        yield cluster


@pytest.fixture
def kafka_address(request: pytest.FixtureRequest) -> Address:
    """The broker to ask; `PENSTOCK_DIFFERENTIAL=host:port` names a running one with a fresh instance instead."""
    given = os.environ.get("PENSTOCK_DIFFERENTIAL")
    return address(given) if given else _served(request.getfixturevalue("shared_broker"))


@pytest.fixture
def kafka_address_apart(zookeeper_address: str, tmp_path: Path) -> Iterator[Address]:
    """A broker whom nobody has asked anything."""
    with EngineCluster(zookeeper_address, tmp_path, overrides=SETTINGS_APART) as cluster:
        yield _served(cluster)


@pytest.fixture
def kafka_address_authenticated(zookeeper_address: str, tmp_path: Path) -> Iterator[Address]:
    """A broker that asks who is there, with the users of the scripts."""
    with EngineCluster(zookeeper_address, tmp_path) as cluster:
        served = _served(cluster, "sasl_plaintext")
        inside = Address(HOST, cluster.brokers[0].settings.internal_port)
        with Player(inside, login=(served.prefix.rstrip("."), cluster.secret)) as player:
            scram_users.make(player, *sasl.ALICE)
            scram_users.make(player, *sasl.CAROL)
        yield served


def _served(cluster: EngineCluster, security: str = "plaintext") -> Address:
    instance = cluster.create_instance(next(INSTANCES), settings=SETTINGS, security=security)
    tenant = address(instance.bootstrap)
    (broker,) = cluster.brokers
    inside = Address(HOST, broker.settings.internal_port), (CLUSTER_USER, broker.secret)
    owner = Address(HOST, broker.settings.internal_port), (instance.id, broker.secret)
    return replace(tenant, inside=inside, owner=owner, prefix=f"{instance.id}.")


def address(bootstrap: str) -> Address:
    host, _, port = bootstrap.rpartition(":")
    return Address(host, int(port))
