"""A real broker whose tenant port another program has: retried until it opens, and logged at a bounded rate."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from brokers.contract import paths
from brokers.contract.documents import InstanceAck, InstanceDocument
from tests.testkit.engine import HOST, MB, EngineCluster, eventually

INSTANCE = "ins-aaaaaaaa"


@pytest.fixture
def stranger() -> socket.socket:
    taken = socket.socket()
    taken.bind((HOST, 0))
    taken.listen()
    return taken


def _publish(cluster: EngineCluster, port: int) -> None:
    document = InstanceDocument(
        generation=1, produce_bps=MB, consume_bps=MB, capacity_bytes=MB,
        endpoints={1: f"{HOST}:{port}"}, ports={1: port},
    )  # fmt: skip
    cluster.zookeeper.ensure_path(paths.INSTANCES)
    cluster.zookeeper.create(paths.instance(INSTANCE), document.to_json())
    cluster._change(f"instances/{INSTANCE}")


def _metric(cluster: EngineCluster, name: str) -> float:
    port = cluster.brokers[0].settings.admin_port
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"penstock_broker_{name} "))


def _acks(cluster: EngineCluster) -> list[InstanceAck]:
    return cluster._acks(INSTANCE)


def test_a_port_that_is_taken_opens_as_soon_as_it_is_free(
    zookeeper_address: str, tmp_path: Path, stranger: socket.socket
) -> None:
    port = stranger.getsockname()[1]
    with stranger, EngineCluster(zookeeper_address, tmp_path) as cluster:
        _publish(cluster, port)
        eventually(lambda: [ack.error for ack in _acks(cluster)] == [f"port {port}: Address already in use"], "told")
        eventually(lambda: _metric(cluster, "listener_failures_total") >= 3, "tried again and again")
        assert _metric(cluster, "unopened_listeners") == 1
        assert not any(ack.listening for ack in _acks(cluster))

        stranger.close()

        eventually(lambda: [ack.listening for ack in _acks(cluster)] == [True], "the port is open")
        assert _metric(cluster, "unopened_listeners") == 0
        assert AdminClient({"bootstrap.servers": f"{HOST}:{port}"}).list_topics(timeout=10).topics == {}
        events = [line["event"] for line in cluster.brokers[0].log_lines()]
        assert events.count("listener_not_opened") == 1
        assert events.count("listener_opened_after_retry") == 1


def test_an_instance_that_goes_meanwhile_is_not_tried_any_more(
    zookeeper_address: str, tmp_path: Path, stranger: socket.socket
) -> None:
    with stranger, EngineCluster(zookeeper_address, tmp_path) as cluster:
        _publish(cluster, stranger.getsockname()[1])
        eventually(lambda: _metric(cluster, "unopened_listeners") == 1, "a port that is not open")
        cluster.zookeeper.delete(paths.instance(INSTANCE), recursive=True)
        cluster._change(f"instances/{INSTANCE}")
        eventually(lambda: _metric(cluster, "unopened_listeners") == 0, "nobody waits for it")
        eventually(lambda: not _acks(cluster), "the acknowledgement is gone")
