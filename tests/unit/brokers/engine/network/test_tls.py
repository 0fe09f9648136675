"""Connections with TLS: the same requests and responses, handshakes in threads, certificates replaced at run time."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from brokers.contract.certificates import CertificatesDocument
from brokers.contract.connections import HANDSHAKES_PER_ADDRESS_MAX, HANDSHAKES_PER_INSTANCE_MAX
from brokers.contract.routes import RouteDocument
from brokers.engine.network import handshakes
from brokers.engine.network.handshakes import Handshakes
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import encode_request
from brokers.engine.protocol.headers import encode_request_frame
from brokers.engine.protocol.messages.metadata import MetadataRequest
from brokers.engine.scheduling.fair_turns import InstanceTurns, TenantTurns
from tests.testkit.in_process import InProcessBroker
from tests.testkit.ports import unused_port
from tests.testkit.records import batch, fetch_request, produce, produce_request
from tests.testkit.tls import client_context, make_certificate
from tests.testkit.wire import HOST, WireClient
from tests.unit.brokers.engine.network.test_proxy_protocol import header
from tests.unit.brokers.engine.network.test_routes import opened, proxied, route

MINE = "ins-aaaaaaaa"
EVERYTHING = MetadataRequest(topics=None)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    make_certificate(directory)
    return directory


@pytest.fixture
async def broker(tmp_path: Path, authority: Path) -> AsyncIterator[InProcessBroker]:
    async with InProcessBroker(tmp_path, certificate=authority / "broker.pem") as running:
        yield running


@pytest.fixture
async def port(broker: InProcessBroker) -> int:
    port = unused_port()
    secured = RouteDocument(name="secure", security="tls", ports={1: port}, endpoints={1: f"{HOST}:{port}"})
    await broker.create_instance(MINE, routes=(secured,), endpoints=dict(secured.endpoints), ports={})
    return port


async def is_served(client: WireClient) -> bool:
    return (await client.call(ApiKey.METADATA, 12, EVERYTHING)).topics is not None


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_requests_of_every_size_come_and_go(
    broker: InProcessBroker, port: int, authority: Path, version: ssl.TLSVersion
) -> None:
    client = await broker.client(port, tls=client_context(authority, version=version))
    await broker.create_topic(client, "orders", 1, max_message_bytes="9000000")
    sizes = [10, 16_000, 16_384, 20_000, 65_000, 66_000, 300_000, 5_000_000, 5]
    for size in sizes:
        await client.send(ApiKey.PRODUCE, 9, produce_request("orders", batch(os.urandom(size))))
    answers = [(await client.receive(ApiKey.PRODUCE, 9)).responses[0].partition_responses[0] for _ in sizes]
    assert [(line.error_code, line.base_offset) for line in answers] == [(0, at) for at in range(len(sizes))]
    for offset, size in enumerate(sizes):
        answer = await client.call(ApiKey.FETCH, 12, fetch_request("orders", offset, partition_max_bytes=9_000_000))
        assert len(answer.responses[0].partitions[0].records) > size


async def test_a_request_in_the_last_record_of_a_large_one_is_not_forgotten(
    broker: InProcessBroker, port: int, authority: Path
) -> None:
    """TLS has decrypted it already, and the event loop sees no more bytes."""
    client = await broker.client(port, tls=client_context(authority))
    await broker.create_topic(client, "orders")
    body = encode_request(ApiKey.PRODUCE, 9, produce_request("orders", batch(os.urandom(100_000))))
    large = encode_request_frame(ApiKey.PRODUCE, 9, 100, "test", body)
    small = encode_request_frame(ApiKey.METADATA, 12, 101, "test", encode_request(ApiKey.METADATA, 12, EVERYTHING))
    await client.send_raw(large + small)
    assert (await client.receive(ApiKey.PRODUCE, 9)).responses[0].partition_responses[0].error_code == 0
    assert len((await client.receive(ApiKey.METADATA, 12)).topics) == 1


async def test_many_requests_that_come_together_are_answered_in_order(
    broker: InProcessBroker, port: int, authority: Path
) -> None:
    client = await broker.client(port, tls=client_context(authority))
    await broker.create_topic(client, "orders")
    await client.send(ApiKey.METADATA, 12, EVERYTHING)
    await client.send(ApiKey.FETCH, 12, fetch_request("orders", max_wait_ms=30))
    for _ in range(200):
        await client.send(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * 300)))
    assert len((await client.receive(ApiKey.METADATA, 12)).topics) == 1
    assert (await client.receive(ApiKey.FETCH, 12)).error_code == 0
    answers = [(await client.receive(ApiKey.PRODUCE, 9)).responses[0].partition_responses[0] for _ in range(200)]
    assert [line.base_offset for line in answers] == list(range(200))


async def test_a_reader_that_stops_reading_gets_everything_later(
    broker: InProcessBroker, port: int, authority: Path
) -> None:
    client = await broker.client(port, tls=client_context(authority))
    await broker.create_topic(client, "orders", 1, max_message_bytes="9000000")
    await produce(client, "orders", batch(os.urandom(8_000_000)))
    lazy = await broker.client(port, tls=client_context(authority))
    for _ in range(10):
        await lazy.send(ApiKey.FETCH, 12, fetch_request("orders", partition_max_bytes=9_000_000))
    assert await is_served(client)
    for _ in range(10):
        answer = await lazy.receive(ApiKey.FETCH, 12)
        assert len(answer.responses[0].partitions[0].records) > 8_000_000


async def test_a_waiting_fetch_ends_with_its_client(broker: InProcessBroker, port: int, authority: Path) -> None:
    client = await broker.client(port, tls=client_context(authority))
    await broker.create_topic(client, "orders")
    partition = broker.broker.table.get(f"{MINE}.orders", 0)
    assert partition is not None
    other = await WireClient.connect(port, tls=client_context(authority))
    await other.send(ApiKey.FETCH, 12, fetch_request("orders", max_wait_ms=600_000))
    await broker.until(lambda: partition.delayed_operations)
    await other.close()
    await broker.until(lambda: not partition.delayed_operations)
    await broker.until(lambda: broker.broker.listeners.count == 1)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_session_is_taken_up_again(
    broker: InProcessBroker, port: int, authority: Path, version: ssl.TLSVersion
) -> None:
    assert await asyncio.to_thread(_resumes, port, client_context(authority, version=version))


def _resumes(port: int, context: ssl.SSLContext) -> bool:
    session = None
    for _ in range(2):
        plain = socket.create_connection((HOST, port))
        with plain, context.wrap_socket(plain, server_hostname=HOST, session=session) as secured:
            secured.sendall((10).to_bytes(4, "big") + bytes.fromhex("0012000000000001ffff"))
            secured.recv(1_000)  # TLS 1.3 sends tickets before the response
            session, is_reused = secured.session, secured.session_reused
    return bool(is_reused)


async def test_another_certificate_is_shown_to_who_comes_and_nobody_is_cut_off(tmp_path: Path, authority: Path) -> None:
    file = tmp_path / "own.pem"
    file.write_bytes((authority / "broker.pem").read_bytes())
    async with InProcessBroker(tmp_path / "b", certificate=file) as broker:
        port = unused_port()
        secured = RouteDocument(name="secure", security="tls", ports={1: port}, endpoints={1: f"{HOST}:{port}"})
        await broker.create_instance(MINE, routes=(secured,), endpoints=dict(secured.endpoints), ports={})
        before = await broker.client(port, tls=client_context(authority))
        make_certificate(tmp_path / "other")
        (tmp_path / "other" / "broker.pem").rename(file)
        broker.broker.tls_contexts.reload()

        assert await is_served(before)
        assert await is_served(await broker.client(port, tls=client_context(tmp_path / "other")))
        with pytest.raises(ssl.SSLCertVerificationError):
            await WireClient.connect(port, tls=client_context(authority))
        file.write_bytes(b"torn")
        broker.broker.tls_contexts.reload()
        assert await is_served(await broker.client(port, tls=client_context(tmp_path / "other")))


async def test_lists_and_limits_apply_while_an_uploaded_certificate_has_no_key_here(
    broker: InProcessBroker, port: int, authority: Path
) -> None:
    before = await broker.client(port, tls=client_context(authority))
    assert await is_served(before)
    await broker.put_certificates(MINE, "secure", CertificatesDocument(certificate_pem="a", private_key_pem="b"))
    await broker.until(lambda: "route_keys.key" in broker.broker.tenant_listeners._unsupported.get(MINE, ""))
    (secured,) = broker.broker.current.image.instances[MINE].document.routes

    await broker.update_instance(MINE, routes=(replace(secured, connections_max=1),))
    assert await (await broker.client(port)).is_closed()
    assert broker.broker.listeners.counters.refused == {"route": 1}
    assert await is_served(before)

    await broker.update_instance(MINE, routes=(replace(secured, allow_list=("192.0.2.0/24",)),))
    assert await (await broker.client(port)).is_closed()
    assert broker.broker.listeners.counters.refused == {"route": 1, "allow_list": 1}
    assert await before.is_closed()


async def test_a_client_behind_a_proxy_is_counted_before_its_handshake(tmp_path: Path, authority: Path) -> None:
    overrides = {"max.connections.per.ip": "2"}
    async with InProcessBroker(tmp_path, certificate=authority / "broker.pem", overrides=overrides) as broker:
        (port,) = await opened(broker, route("secure", security="tls", proxies=(HOST,)))
        addresses = broker.broker.listeners.get(f"{MINE}/secure").group.addresses
        clients = [await proxied(broker, port, header("192.0.2.7")) for _ in range(2)]
        await broker.until(lambda: addresses.count("192.0.2.7") == 2)
        assert addresses.count(HOST) == 0
        assert await (await proxied(broker, port, header("192.0.2.7"))).is_closed()
        assert broker.broker.listeners.counters.refused == {"address": 1}
        for client in clients:
            await client.close()
        await broker.until(lambda: not addresses._count_by_network)


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", bytes(64)])
async def test_bytes_that_are_no_handshake_end_the_connection_and_are_counted(
    broker: InProcessBroker, port: int, first: bytes
) -> None:
    client = await broker.client(port)
    await client.send_raw(first)
    await _closed(client)
    await broker.until(lambda: broker.broker.listeners.counters.ended == {"handshake": 1})
    assert broker.broker.listeners.count == 0


async def _closed(client: WireClient) -> None:
    """Waits for the end of the connection, possibly after an alert."""
    async with asyncio.timeout(10):
        try:
            await client.reader.read()
        except ConnectionError:
            return


async def test_older_versions_and_weak_ciphers_are_refused(broker: InProcessBroker, port: int, authority: Path) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.load_verify_locations(authority / "ca.pem")
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    old.set_ciphers("ECDHE+SHA:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await WireClient.connect(port, tls=old)
    await broker.until(lambda: broker.broker.listeners.counters.ended == {"handshake": 1})


async def test_a_handshake_that_stands_still_loses_its_place_and_keeps_nobody_waiting(
    broker: InProcessBroker, port: int, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brokers.engine.network.connection_handshake.HANDSHAKE_MS_MAX", 2_000)
    silent = [await broker.client(port) for _ in range(20)]
    torn = [await broker.client(port) for _ in range(20)]
    for client in torn:
        await client.send_raw(bytes.fromhex("16030100c8010000c40303") + b"\x00" * 50)
    assert await is_served(await broker.client(port, tls=client_context(authority)))
    for client in (*silent, *torn):
        await _closed(client)
    assert broker.broker.listeners.counters.ended == {"handshake": 40}
    assert broker.broker.listeners.count == 1


async def test_the_oldest_of_many_stalled_handshakes_makes_room(
    broker: InProcessBroker, port: int, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "HANDSHAKES_PER_INSTANCE_MAX", 5)
    torn = [await broker.client(port) for _ in range(6)]
    for client in torn:
        await client.send_raw(bytes.fromhex("16030100c8010000c40303") + b"\x00" * 50)
    assert await is_served(await broker.client(port, tls=client_context(authority)))
    assert broker.broker.listeners.counters.ended == {"handshake": 2}


class Group:
    """Listeners of one instance."""

    def __init__(self, tenant: TenantTurns | None = None) -> None:
        self.turns = InstanceTurns(None, tenant)


async def test_a_handshake_that_waits_when_the_broker_stops_is_ended_once() -> None:
    """A step in a thread uses its socket, which nothing would close."""
    pool, instance = Handshakes(asyncio.get_running_loop()), Group()
    begun, may_end = threading.Event(), threading.Event()
    ends: list[str] = []

    def slow() -> None:
        begun.set()
        may_end.wait(10)

    for number in range(3):
        pool.submit(instance, "192.0.2.1", slow, lambda _error, n=number: ends.append(f"step {n}"))
    await asyncio.to_thread(begun.wait, 10)
    asyncio.get_running_loop().call_soon(may_end.set)
    await asyncio.sleep(0)
    pool.close()
    assert ends == ["step 0", "step 1", "step 2"]
    await asyncio.sleep(0)  # the thread has ended, and its callback runs now
    assert len(ends) == 3


async def test_one_instance_has_one_handshake_in_a_thread_and_others_are_served_beside_it() -> None:
    loop = asyncio.get_running_loop()
    pool, hostile, honest = Handshakes(loop), Group(), Group()
    order: list[str] = []
    gate = loop.create_future()
    released = asyncio.Event()

    def slow() -> None:
        asyncio.run_coroutine_threadsafe(released.wait(), loop).result()

    def over(name: str) -> None:
        order.append(name)
        if len(order) == 4:
            gate.set_result(None)

    for number in range(3):
        pool.submit(
            hostile, "192.0.2.1", slow if number == 0 else lambda: None, lambda _error, n=number: over(f"hostile {n}")
        )
    pool.submit(honest, "192.0.2.1", lambda: None, lambda _error: (over("honest"), released.set()))
    async with asyncio.timeout(10):
        await gate
    assert order == ["honest", "hostile 0", "hostile 1", "hostile 2"]
    pool.close()


async def test_addresses_of_one_instance_come_one_after_the_other() -> None:
    loop = asyncio.get_running_loop()
    pool, instance = Handshakes(loop, threads=1), Group()
    order: list[str] = []
    over = asyncio.Event()
    gate = threading.Event()

    def on_step(name: str, _error: BaseException | None) -> None:
        order.append(name)
        if len(order) == 7:
            over.set()

    pool.submit(instance, "192.0.2.1", lambda: gate.wait(10), partial(on_step, "first"))
    for number in range(4):
        pool.submit(instance, "192.0.2.1", lambda: None, partial(on_step, f"stranger {number}"))
    pool.submit(instance, "192.0.2.2", lambda: None, partial(on_step, "honest"))
    pool.submit(instance, "2001:db8::1", lambda: None, partial(on_step, "of six"))
    gate.set()
    async with asyncio.timeout(10):
        await over.wait()
    assert order == ["first", "stranger 0", "honest", "of six", "stranger 1", "stranger 2", "stranger 3"]
    pool.close()


async def test_eight_instances_of_a_tenant_delay_the_handshakes_of_another_no_longer_than_one_does() -> None:
    pool, tenant, honest = Handshakes(asyncio.get_running_loop(), threads=1), TenantTurns("hostile"), Group()
    order: list[str] = []
    gate, over = threading.Event(), asyncio.Event()

    def on_step(name: str, _error: BaseException | None) -> None:
        order.append(name)
        if len(order) == 19:
            over.set()

    pool.submit(Group(tenant), "192.0.2.1", lambda: gate.wait(10), partial(on_step, "first"))
    for group in [Group(tenant) for _ in range(8)]:
        for _ in range(2):
            pool.submit(group, "192.0.2.1", lambda: None, partial(on_step, "hostile"))
    for _ in range(2):
        pool.submit(honest, "192.0.2.2", lambda: None, partial(on_step, "honest"))
    gate.set()
    async with asyncio.timeout(10):
        await over.wait()
    pool.close()
    assert order.index("honest") <= 2, "it waits for the step that runs and one more"
    assert order[::-1].index("honest") >= 10, "its second one as well"


@pytest.mark.parametrize("others", [0, 100])
async def test_an_address_that_begins_too_many_handshakes_loses_its_own(others: int) -> None:
    pool, instance = Handshakes(asyncio.get_running_loop()), Group()
    dropped: list[str] = []

    def begin(address: str, name: str) -> None:
        def drop() -> None:
            dropped.append(name)
            pool.end(instance, address, name)

        pool.begin(instance, address, name, drop)

    for number in range(others):
        begin(f"198.51.100.{number}", f"honest {number}")
    for number in range(2 * HANDSHAKES_PER_ADDRESS_MAX):
        begin("192.0.2.1", f"stranger {number}")
    assert dropped == [f"stranger {number}" for number in range(HANDSHAKES_PER_ADDRESS_MAX)]
    for number in range(2 * HANDSHAKES_PER_ADDRESS_MAX):
        begin(f"2001:db8::{number:x}", f"of six {number}")
    assert len(dropped) == 2 * HANDSHAKES_PER_ADDRESS_MAX, "they are of one network"
    for number in range(HANDSHAKES_PER_INSTANCE_MAX):
        begin(f"203.0.113.{number}", f"late {number}")
    assert not any(name.startswith("honest") for name in dropped[: 3 * HANDSHAKES_PER_ADDRESS_MAX])
