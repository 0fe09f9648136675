"""Our broker for the scripts: one process, with an instance for each of them, in which there is nothing else."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from brokers.contract import paths
from brokers.contract.documents import InstanceSettings, change_to_json
from brokers.contract.oauth import CONFIGURATION
from brokers.contract.process import CLUSTER_USER
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.sasl import SaslHandshakeRequest
from tests.differential.play import Address, Player
from tests.differential.record import SETTINGS as SETTINGS_RECORDED
from tests.differential.record import SETTINGS_APART
from tests.differential.scripts import oauth, sasl, scram_users
from tests.differential.scripts.catalogue import AUTHORISED
from tests.testkit.administering import let_everybody_administer
from tests.testkit.engine import HOST, EngineCluster, eventually
from tests.testkit.wire import WireClient

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
def kafka_address(script: str, request: pytest.FixtureRequest) -> Address:
    """The broker to ask; `PENSTOCK_DIFFERENTIAL=host:port` names a running one with a fresh instance instead."""
    given = os.environ.get("PENSTOCK_DIFFERENTIAL")
    return address(given) if given else _served(request.getfixturevalue("shared_broker"), script=script)


@pytest.fixture
def kafka_address_apart(zookeeper_address: str, tmp_path: Path) -> Iterator[Address]:
    """A fresh broker without any earlier request."""
    with EngineCluster(zookeeper_address, tmp_path, overrides=SETTINGS_APART) as cluster:
        yield _served(cluster)


@pytest.fixture
def kafka_address_authenticated(script: str, zookeeper_address: str, tmp_path: Path) -> Iterator[Address]:
    """A broker that asks who is there, with the users of the scripts; for that of tokens, with their issuer."""
    with EngineCluster(zookeeper_address, tmp_path) as cluster:
        served = _served(cluster, "sasl_plaintext")
        inside = Address(HOST, cluster.brokers[0].settings.internal_port)
        with Player(inside, login=(served.prefix.rstrip("."), cluster.secret)) as player:
            scram_users.make(player, *sasl.ALICE)
            scram_users.make(player, *sasl.CAROL)
        if script == "oauth":
            _take_tokens(cluster, served.prefix.rstrip("."))
        yield served


def _take_tokens(cluster: EngineCluster, instance_id: str) -> None:
    """Publishes the issuer of the scripts in the way of the control plane."""
    change = f"instances/{instance_id}/oauth/{CONFIGURATION}"
    cluster.zookeeper.create(
        paths.instance_oauth_node(instance_id, CONFIGURATION), oauth.ISSUER.document().to_json(), makepath=True
    )
    cluster.zookeeper.create(paths.CHANGE_PREFIX, change_to_json([change]), sequence=True)

    async def is_offered() -> bool:
        client = await WireClient.connect(next(iter(cluster.instances[instance_id].document.routes[0].ports.values())))
        answer = await client.call(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=""))
        await client.close()
        return "OAUTHBEARER" in answer.mechanisms

    eventually(lambda: asyncio.run(is_offered()), "tokens are taken")


def _served(cluster: EngineCluster, security: str = "plaintext", script: str = "") -> Address:
    """A new instance, which everybody may administer as Apache Kafka's clients may without rules, but for the scripts
    about rules.
    """
    instance = cluster.create_instance(next(INSTANCES), settings=SETTINGS, security=security)
    if script not in AUTHORISED:
        let_everybody_administer(cluster, instance)
    tenant = address(instance.bootstrap)
    (broker,) = cluster.brokers
    inside = Address(HOST, broker.settings.internal_port), (CLUSTER_USER, broker.secret)
    owner = Address(HOST, broker.settings.internal_port), (instance.id, broker.secret)
    return replace(tenant, inside=inside, owner=owner, prefix=f"{instance.id}.")


def address(bootstrap: str) -> Address:
    host, _, port = bootstrap.rpartition(":")
    return Address(host, int(port))
