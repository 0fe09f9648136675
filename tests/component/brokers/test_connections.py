"""Connections that real brokers report and close."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from brokers.engine.assembly.connection_report import CONNECTIONS_PER_PAGE
from brokers.monitoring.connections import BrokerConnections
from instances.clients.interfaces import Connection
from tenants.errors import NotFound
from tests.testkit.engine import EngineCluster, eventually
from tests.testkit.engine_fleet import create_fleet_rows

INSTANCE_ID = "ins-client01"
OTHER_ID = "ins-client02"
AT_MOST = 10_000
# More than two pages, each with the longest client id that the protocol has.
MANY = 2 * CONNECTIONS_PER_PAGE + 20
LONGEST = "x" * 32_767
METADATA, VERSION = 3, 1

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def engines(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("clients"), size=2) as running:
        running.create_instance(INSTANCE_ID)
        running.create_instance(OTHER_ID)
        yield running


@pytest.fixture(autouse=True)
def _rows(engines: EngineCluster, tmp_path: Path, db: None) -> None:
    create_fleet_rows(engines, tmp_path, INSTANCE_ID, OTHER_ID)


def now(instance_id: str = INSTANCE_ID) -> list[Connection]:
    return list(BrokerConnections().connections(instance_id, AT_MOST).connections)


def of(client_id: str) -> list[Connection]:
    return [connection for connection in now() if connection.client_id == client_id]


def test_a_connection_is_listed_with_its_software_and_requests(engines: EngineCluster) -> None:
    producer = Producer({"bootstrap.servers": engines.instances[INSTANCE_ID].bootstrap, "client.id": "till-7"})
    before_ms = time.time_ns() // 1_000_000
    producer.list_topics(timeout=20)
    connection = max(eventually(lambda: of("till-7"), "the client is there"), key=lambda one: one.requests)
    assert (connection.software, connection.address) == ("confluent-kafka-python", "127.0.0.1") or (
        connection.software.startswith("librdkafka") and connection.address == "127.0.0.1"
    )
    assert connection.software_version
    assert connection.requests >= 2
    assert abs(connection.since_ms - before_ms) < 20_000
    assert not connection.is_signing_in
    assert not [one for one in now(OTHER_ID) if one.client_id == "till-7"]


def test_a_closed_connection_ends_at_once_and_its_id_is_of_no_other(engines: EngineCluster) -> None:
    with ExitStack() as open_:
        peers = [open_.enter_context(_connected(engines, "to-close")) for _ in range(2)]
        first, second = eventually(lambda: len(of("to-close")) == 2 and of("to-close"), "both are there")
        with pytest.raises(NotFound):
            BrokerConnections().close(OTHER_ID, first.id)
        assert len(of("to-close")) == 2, "another instance's client is closed by nobody else"
        BrokerConnections().close(INSTANCE_ID, first.id)
        assert [connection.id for connection in of("to-close")] == [second.id]
        ended = [peer for peer in peers if _is_ended(peer)]
        assert len(ended) == 1
        with pytest.raises(NotFound):
            BrokerConnections().close(INSTANCE_ID, first.id)


@pytest.mark.parametrize("id_", ["con-1-0-1", "con-9-0-1", "con-1-zz", "", "con-1-0-1/../../x", "con-1-0-zzzzzzzzzzzz"])
def test_an_id_of_no_connection_is_not_found(id_: str) -> None:
    with pytest.raises(NotFound):
        BrokerConnections().close(INSTANCE_ID, id_)


def test_very_many_connections_with_very_long_names_come_in_pages_that_hold_nobody_up(engines: EngineCluster) -> None:
    engine = engines.brokers[0]
    with ExitStack() as open_:
        for _ in range(MANY):
            open_.enter_context(_connected(engines, LONGEST))
        eventually(lambda: len(of(LONGEST[:249])) == MANY, "all are there")
        page = engine.admin(f"/v1/instances/{INSTANCE_ID}/connections")
        assert len(page["connections"]) == CONNECTIONS_PER_PAGE
        rest = engine.admin(f"/v1/instances/{INSTANCE_ID}/connections?after={page['next']}")
        assert len(rest["connections"]) == CONNECTIONS_PER_PAGE, "two pages are full, and a third has the rest"
        numbers = [line[0] for line in (*page["connections"], *rest["connections"])]
        assert len(set(numbers)) == len(numbers)
    listed = BrokerConnections().connections(INSTANCE_ID, 10)
    assert len(listed.connections) <= 10


def _connected(engines: EngineCluster, client_id: str) -> socket.socket:
    """Opens a connection to the first broker that has requested metadata once."""
    host, _, port = engines.instances[INSTANCE_ID].document.endpoints[1].partition(":")
    peer = socket.create_connection((host, int(port)), timeout=20)
    raw = client_id.encode()
    body = struct.pack(">hhih", METADATA, VERSION, 1, len(raw)) + raw + struct.pack(">i", 0)
    peer.sendall(struct.pack(">i", len(body)) + body)
    (size,) = struct.unpack(">i", peer.recv(4, socket.MSG_WAITALL))
    peer.recv(size, socket.MSG_WAITALL)
    return peer


def _is_ended(peer: socket.socket) -> bool:
    peer.settimeout(0.5)
    try:
        return peer.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True
