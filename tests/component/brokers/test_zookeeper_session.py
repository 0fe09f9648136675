"""The control plane's ZooKeeper session during outages: calls end in bounded time."""

from __future__ import annotations

import pytest

from brokers.infra import zookeeper
from brokers.models import Cluster
from config.embedded.process import wait_until
from config.embedded.zookeeper import EmbeddedZooKeeper
from tenants.errors import Unavailable
from tests.testkit.own_zookeeper import START_TIMEOUT_S
from tests.testkit.waiting import eventually

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(90)]

SOON_S = 0.3


def start_again(server: EmbeddedZooKeeper) -> None:
    server.start()
    wait_until(server.is_ready, child=server.child, timeout_s=START_TIMEOUT_S)


def test_a_session_that_is_connecting_again_is_used_once_it_is_there(
    cluster: Cluster, zookeeper_server: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = zookeeper.session(cluster)
    zookeeper_server.child.stop()
    try:
        eventually(lambda: not client.connected, what="the session is lost")
        with monkeypatch.context() as patch:
            patch.setattr(zookeeper, "ZOOKEEPER_CONNECT_TIMEOUT_S", SOON_S)
            for _ in range(2):
                with pytest.raises(Unavailable):
                    zookeeper.session(cluster)
    finally:
        start_again(zookeeper_server)
    assert zookeeper.session(cluster) is client
    assert client.exists("/") is not None


def test_a_call_does_not_wait_until_zookeeper_is_back(
    cluster: Cluster, zookeeper_server: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = zookeeper.session(cluster)
    monkeypatch.setattr(zookeeper, "CALL_TIMEOUT_S", SOON_S)
    zookeeper_server.child.stop()
    try:
        eventually(lambda: not client.connected, what="the session is lost")
        with pytest.raises(zookeeper.ERRORS):
            client.get("/")
    finally:
        start_again(zookeeper_server)
