"""The internal listener of a broker with a certificate, beside brokers with and without one."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import socket

import pytest

from brokers.contract import paths
from brokers.contract.process import CLUSTER_USER
from brokers.contract.process_identity import CA_FILE, ProcessIdentity, ProcessRole, control
from brokers.contract.process_identity import broker as broker_identity
from brokers.contract.revoked_certificates import RevokedCertificates
from brokers.engine.assembly.admin_server import CONNECTIONS_MAX
from brokers.engine.assembly.internal_security import INTERNAL_LISTENER
from brokers.engine.cluster.image import BrokerInfo
from brokers.engine.cluster.tree import Create, Delete, Set
from brokers.engine.network import connection_handshake
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import encode_request
from brokers.engine.protocol.headers import encode_request_frame
from brokers.engine.protocol.messages.metadata import MetadataRequest
from brokers.engine.protocol.messages.sasl import ApiVersionsRequest
from brokers.engine.replication import peer_tls
from brokers.infra.certificates import ensure_certificate
from tests.testkit.fake_store import FakeEnsemble
from tests.testkit.in_process import SECRET, InProcessBroker
from tests.testkit.tls import context_with, process_context
from tests.testkit.wire import WireClient


async def logs_in(broker: InProcessBroker) -> bool:
    """True if a client can sign in with the secret."""
    client = await WireClient.connect(broker.config.internal_port)
    try:
        return bool((await client.log_in(CLUSTER_USER, SECRET)).error_code == 0)
    except (ConnectionError, asyncio.IncompleteReadError):
        return False
    finally:
        await client.close()


@dataclass
class Owner:
    """Owner of a link; records its calls."""

    is_up: bool = False
    frames: int = 0
    reasons: list[str] = field(default_factory=list)

    def on_up(self) -> None:
        self.is_up = True

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        self.frames += 1

    def on_down(self, reason: str) -> None:
        self.reasons.append(reason)


def known(broker: InProcessBroker, *, broker_id: int | None = None, has_tls: bool = True) -> BrokerInfo:
    """Returns the broker as in the cluster metadata."""
    config = broker.config
    return BrokerInfo(
        broker_id or config.broker_id, "127.0.0.1", config.internal_port, config.admin_port, None, 1, has_tls=has_tls
    )


async def test_a_broker_registers_that_it_takes_tls(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path / "1", internal_tls=tmp_path / "tls") as broker:
        assert broker.broker.current.image.brokers[1].has_tls


async def test_the_secret_opens_while_a_broker_without_certificate_is_registered_and_no_longer(tmp_path: Path) -> None:
    ensemble, tls = FakeEnsemble(), tmp_path / "tls"
    async with InProcessBroker(tmp_path / "1", ensemble=ensemble, internal_tls=tls) as broker:
        assert not await logs_in(broker)
        async with InProcessBroker(tmp_path / "2", broker_id=2, ensemble=ensemble):
            await broker.until(lambda: 2 in broker.broker.current.image.brokers)
            assert await logs_in(broker)
            staying = await broker.client(broker.config.internal_port)
            assert (await staying.log_in(CLUSTER_USER, SECRET)).error_code == 0
        await broker.until(lambda: 2 not in broker.broker.current.image.brokers)
        assert await staying.is_closed()
        assert not await logs_in(broker)


@pytest.mark.parametrize("is_near", [True, False])
async def test_a_link_is_up_by_certificate_and_carries_answers_of_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_near: bool
) -> None:
    """Brokers on one machine continue without TLS after the handshake; links to others stay encrypted."""
    monkeypatch.setattr(peer_tls, "is_loopback", lambda host: is_near)
    tls = tmp_path / "tls"
    async with (
        InProcessBroker(tmp_path / "1", internal_tls=tls) as one,
        InProcessBroker(tmp_path / "2", broker_id=2, internal_tls=tls) as two,
    ):
        owner = Owner()
        link = one.broker.security.link(known(two), owner)
        await one.until(lambda: owner.is_up)
        assert isinstance(link._socket, socket) is is_near
        (connection,) = two.broker.listeners.get(INTERNAL_LISTENER).connections
        assert isinstance(connection._socket, socket) is is_near
        assert connection.session.principal.process == broker_identity(one.config.cluster_id, 1)
        body = encode_request(
            ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="t", client_software_version="1")
        )
        frame = encode_request_frame(ApiKey.API_VERSIONS, 3, 1, "tests", body)
        for _ in range(500):
            link.send(frame)
        await one.until(lambda: owner.frames == 500)
        link.close()


async def test_a_peer_from_elsewhere_stays_encrypted_under_any_offer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_handshake, "is_loopback", lambda host: False)
    async with (
        InProcessBroker(tmp_path / "1", internal_tls=tmp_path / "tls") as one,
        InProcessBroker(tmp_path / "2", broker_id=2, internal_tls=tmp_path / "tls") as two,
    ):
        owner = Owner()
        one.broker.security.link(known(two), owner)
        await one.until(lambda: owner.reasons)
        assert not owner.is_up


async def test_a_link_to_a_broker_that_is_another_one_does_not_come_up(tmp_path: Path) -> None:
    tls = tmp_path / "tls"
    async with (
        InProcessBroker(tmp_path / "1", internal_tls=tls) as one,
        InProcessBroker(tmp_path / "2", broker_id=2, internal_tls=tls) as two,
        InProcessBroker(tmp_path / "3", broker_id=2, internal_tls=tmp_path / "others") as stranger,
    ):
        for meant in (known(two, broker_id=3), known(stranger)):
            owner = Owner()
            one.broker.security.link(meant, owner)
            await one.until(lambda owner=owner: owner.reasons)
            assert not owner.is_up
        assert "is not that of broker 3" in str(owner.reasons) or "CERTIFICATE" in str(owner.reasons)


async def test_revoked_certificates_of_a_broker_open_nothing_and_a_later_one_does(tmp_path: Path) -> None:
    tls = tmp_path / "tls"
    async with (
        InProcessBroker(tmp_path / "1", internal_tls=tls) as one,
        InProcessBroker(tmp_path / "2", broker_id=2, internal_tls=tls) as two,
    ):
        cluster_id = one.config.cluster_id
        second = broker_identity(cluster_id, 2)

        async def opens(certificate: ssl.SSLContext) -> bool:
            client = await one.client(one.config.internal_port, tls=certificate)
            try:
                return bool((await client.call(ApiKey.METADATA, 9, MetadataRequest(topics=None))).brokers)
            except (OSError, asyncio.IncompleteReadError):
                return False

        async def metrics(certificate: ssl.SSLContext) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", one.config.admin_port, ssl=certificate)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            answer = await reader.read()
            writer.close()
            return answer.split(b" ", 2)[1]

        earlier, third = process_context(tls, second), process_context(tls, broker_identity(cluster_id, 3))
        assert (await opens(earlier), await metrics(earlier)) == (True, b"200")
        staying = await one.client(one.config.internal_port, tls=earlier)
        assert (await staying.call(ApiKey.METADATA, 9, MetadataRequest(topics=None))).brokers

        from_at = datetime.now(UTC) + timedelta(minutes=1)
        document = RevokedCertificates({2: int(from_at.timestamp())})
        await one.tree.commit([Create(paths.REVOKED_CERTIFICATES, document.to_json())])
        await one.broker.revocations.refresh()
        assert await staying.is_closed()
        assert (await opens(earlier), await metrics(earlier)) == (False, b"403")
        assert await opens(third)
        owner = Owner()
        one.broker.security.link(known(two), owner)
        await one.until(lambda: owner.reasons)
        assert "is revoked" in owner.reasons[0]

        await one.tree.commit([Set(paths.REVOKED_CERTIFICATES, b"no document", None)])
        await one.broker.revocations.refresh()
        assert not await opens(earlier)
        await one.tree.commit([Delete(paths.REVOKED_CERTIFICATES, None)])
        await one.broker.revocations.refresh()
        assert not await opens(earlier), "a lost document revokes no revocation"
        file = ensure_certificate(tls, "later", ["127.0.0.1"], from_at, process=second)
        assert await opens(context_with(file, tls / CA_FILE))


async def test_a_link_that_is_closed_in_the_middle_of_its_handshake_leaves_nothing(tmp_path: Path) -> None:
    tls = tmp_path / "tls"
    async with (
        InProcessBroker(tmp_path / "1", internal_tls=tls) as one,
        InProcessBroker(tmp_path / "2", broker_id=2, internal_tls=tls) as two,
    ):
        owners = [Owner() for _ in range(20)]
        for turns, owner in enumerate(owners):
            link = one.broker.security.link(known(two), owner)
            for _ in range(turns):
                await asyncio.sleep(0)
            link.close()
        assert not [owner for owner in owners if owner.reasons]
        # The connections are accepted and rejected; one more gets a place.
        owner = Owner()
        one.broker.security.link(known(two), owner)
        await one.until(lambda: owner.is_up)
        await two.until(lambda: two.broker.listeners.count == 1)


async def test_the_admin_port_tells_health_without_tls_and_the_rest_to_the_control_plane(tmp_path: Path) -> None:
    tls = tmp_path / "tls"

    async def status_of(path: str, *, certified: bool) -> bytes:
        context = process_context(tls, control("web")) if certified else None
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.config.admin_port, ssl=context)
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        return answer.split(b" ", 2)[1]

    async with InProcessBroker(tmp_path / "1", internal_tls=tls) as broker:
        assert await status_of("/healthz", certified=False) == b"200"
        assert await status_of("/v1/status", certified=False) == b"403"
        assert await status_of("/v1/status", certified=True) == b"200"


async def test_places_of_the_admin_port_go_to_the_control_plane_first(tmp_path: Path) -> None:
    """Neither strangers nor processes with other certificates lock it out, and it loses no place to them."""
    tls = tmp_path / "tls"
    reader_of_metrics = ProcessIdentity(ProcessRole.METRICS, "prometheus")
    async with InProcessBroker(tmp_path / "1", internal_tls=tls) as broker, AsyncExitStack() as stack:

        async def connect(process: ProcessIdentity | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            context = None if process is None else process_context(tls, process)
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.config.admin_port, ssl=context)
            stack.callback(writer.close)
            return reader, writer

        async def status(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
            writer.write(b"GET /v1/status HTTP/1.1\r\n\r\n")
            return (await reader.readline()).split(b" ")[1]

        early = await connect(control("web"))
        for process in (reader_of_metrics, None):
            for _ in range(CONNECTIONS_MAX + 10):
                await connect(process)
            assert await status(*await connect(control("worker"))) == b"200"
        assert await status(*early) == b"200", "it was there before all of them"
