"""Hostile bytes on a tenant's port: the connection is closed without a response, logged at a limited rate, and others
are not disturbed (WIRE-1, WIRE-9, WIRE-11, QUO-34, QUO-50).
"""

from __future__ import annotations

import contextlib
import random
import resource
from collections.abc import AsyncIterator
from pathlib import Path
from struct import pack

import pytest
from structlog.testing import capture_logs

from brokers.contract import paths
from brokers.contract.documents import change_to_json
from brokers.engine.cluster.tree import Create, Delete
from brokers.engine.network.reports import LINES_PER_SECOND_MAX, NetworkReports
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import encode_request
from brokers.engine.protocol.errors import ErrorCode, MalformedRequest
from brokers.engine.protocol.headers import encode_request_frame
from brokers.engine.protocol.messages.metadata import MetadataRequest
from brokers.engine.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from brokers.engine.scheduling.fair_turns import InstanceTurns
from tests.testkit.in_process import InProcessBroker
from tests.testkit.records import batch, fetch_request, produce, produce_request
from tests.testkit.wire import WireClient

INSTANCE = "ins-aaaaaaaa"
EVERYTHING = MetadataRequest(topics=None)
MUTATED_FRAMES = 20_000


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    async with InProcessBroker(tmp_path) as running:
        yield running


@pytest.fixture
async def port(broker: InProcessBroker) -> int:
    return await broker.create_instance(INSTANCE)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes.fromhex("16030100c8010000c40303") + b"\x00" * 100,
        b"SSH-2.0-OpenSSH_9.6\r\n",
        pack(">i", -1),
        pack(">i", 3) + b"abc",
        pack(">i", 104_857_601),
        pack(">ihhih", 10, 3, 12, 1, 30_000),
        pack(">ihhih", 40, 0, 9, 1, -1) + b"\xff" * 30,
    ],
    ids=["http", "tls", "ssh", "negative", "tiny", "oversize", "client-id-past-the-end", "garbage-body"],
)
async def test_bytes_that_are_not_kafka_end_the_connection(broker: InProcessBroker, port: int, data: bytes) -> None:
    client = await broker.client(port)

    await client.send_raw(data)

    assert await client.is_closed()
    other = await broker.client(port)
    assert (await other.call(ApiKey.METADATA, 12, EVERYTHING)).topics == []


async def test_a_frame_may_arrive_byte_by_byte(broker: InProcessBroker, port: int) -> None:
    client = await broker.client(port)
    frame = encode_request_frame(ApiKey.METADATA, 12, 1, None, encode_request(ApiKey.METADATA, 12, EVERYTHING))

    for at in range(len(frame)):
        await client.send_raw(frame[at : at + 1])

    assert (await client.receive(ApiKey.METADATA, 12)).topics == []


async def test_pipelined_requests_are_answered_in_order_also_behind_a_waiting_one(
    broker: InProcessBroker, port: int
) -> None:
    client = await broker.client(port)
    await broker.create_topic(client, "orders")
    await client.send(ApiKey.METADATA, 12, EVERYTHING)
    await client.send(ApiKey.FETCH, 12, fetch_request("orders", max_wait_ms=30))
    for _ in range(200):
        await client.send(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * 300)))

    assert len((await client.receive(ApiKey.METADATA, 12)).topics) == 1
    assert (await client.receive(ApiKey.FETCH, 12)).error_code == 0
    offsets = [(await client.receive(ApiKey.PRODUCE, 9)).responses[0].partition_responses[0] for _ in range(200)]
    assert [line.base_offset for line in offsets] == list(range(200))


async def test_a_large_frame_between_small_ones_stays_whole(broker: InProcessBroker, port: int) -> None:
    client = await broker.client(port)
    await broker.create_topic(client, "orders", 1, max_message_bytes="9000000")
    sizes = [10, 300_000, 20, 65_000, 66_000, 5_000_000, 5]

    for size in sizes:
        await client.send(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * size)))
    answers = [(await client.receive(ApiKey.PRODUCE, 9)).responses[0].partition_responses[0] for _ in sizes]

    assert [(line.error_code, line.base_offset) for line in answers] == [(0, at) for at in range(len(sizes))]


async def test_a_waiting_fetch_ends_with_its_client(broker: InProcessBroker, port: int) -> None:
    client = await broker.client(port)
    await broker.create_topic(client, "orders")
    partition = broker.broker.table.get(f"{INSTANCE}.orders", 0)
    assert partition is not None
    other = await WireClient.connect(port)
    await other.send(ApiKey.FETCH, 12, fetch_request("orders", max_wait_ms=600_000))
    await broker.until(lambda: partition.delayed_operations)

    await other.close()

    await broker.until(lambda: not partition.delayed_operations)
    await broker.until(lambda: broker.broker.listeners.count == 1)


async def test_a_muted_connection_that_goes_away_leaves_nothing_behind(broker: InProcessBroker, port: int) -> None:
    client = await broker.client(port)
    await broker.create_topic(client, "orders")
    await broker.set_quota(INSTANCE, {"producer_byte_rate": "1"}, client_id=None)
    muted = await WireClient.connect(port)
    await produce(muted, "orders", batch(b"a"))

    await muted.close()

    await broker.until(lambda: broker.broker.listeners.count == 1)


async def test_a_reader_that_stops_reading_does_not_stop_the_others(broker: InProcessBroker, port: int) -> None:
    client = await broker.client(port)
    await broker.create_topic(client, "orders", 1, max_message_bytes="9000000")
    await produce(client, "orders", batch(b"x" * 8_000_000))
    lazy = await broker.client(port)
    for _ in range(20):
        await lazy.send(ApiKey.FETCH, 12, fetch_request("orders", partition_max_bytes=9_000_000))

    assert (await client.call(ApiKey.METADATA, 12, EVERYTHING)).topics[0].name == "orders"
    for _ in range(20):
        answer = await lazy.receive(ApiKey.FETCH, 12)
        assert len(answer.responses[0].partitions[0].records) > 8_000_000


async def test_one_instances_connections_lock_nobody_else_out(tmp_path: Path) -> None:
    overrides = {"max.connections": "4"}
    async with InProcessBroker(tmp_path / "limited", overrides=overrides) as broker:
        port, other_port = [await broker.create_instance(instance_id) for instance_id in (INSTANCE, "ins-bbbbbbbb")]
        greedy = [await broker.client(port) for _ in range(4)]
        for client in greedy:
            await client.call(ApiKey.METADATA, 12, EVERYTHING)

        others = [await broker.client(other_port) for _ in range(2)]
        for client in others:
            assert (await client.call(ApiKey.METADATA, 12, EVERYTHING)).topics == []
        one_more = await broker.client(other_port)

        assert await one_more.is_closed(), "as many as the other has"
        assert {listener.name: len(listener.connections) for listener in broker.broker.listeners}[INSTANCE] == 2
        assert (
            await (await broker.internal_client("penstock")).call(ApiKey.METADATA, 12, EVERYTHING)
        ).topics is not None


async def test_the_connections_of_all_instances_of_a_tenant_lock_no_other_tenant_out(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path / "limited", overrides={"max.connections": "6"}) as broker:
        instances = [f"ins-dddddd{number:02}" for number in range(3)]
        ports = [await broker.create_instance(instance_id, tenant_id="ten-hostile") for instance_id in instances]
        other_port = await broker.create_instance("ins-bbbbbbbb")
        for port in ports * 2:
            await (await broker.client(port)).call(ApiKey.METADATA, 12, EVERYTHING)

        for client in [await broker.client(other_port) for _ in range(3)]:
            assert (await client.call(ApiKey.METADATA, 12, EVERYTHING)).topics == []

        assert await (await broker.client(other_port)).is_closed(), "as many as the other tenant has"
        hostile, alone = sorted(broker.broker.listeners.tenants(), key=lambda tenant: -len(tenant.groups))
        assert (hostile.count, alone.count) == (3, 3)


async def test_the_instances_of_a_tenant_open_connections_at_half_of_the_brokers_rate(tmp_path: Path) -> None:
    overrides = {"max.connection.creation.rate": "8", "max.connection.creation.rate.per.instance": "3"}
    async with InProcessBroker(tmp_path / "limited", overrides=overrides) as broker:
        instances = [f"ins-dddddd{number:02}" for number in range(3)]
        ports = [await broker.create_instance(instance_id, tenant_id="ten-hostile") for instance_id in instances]
        other_port = await broker.create_instance("ins-bbbbbbbb")
        hostile = [await broker.client(port) for port in ports * 3]
        (tenant, _) = sorted(broker.broker.listeners.tenants(), key=lambda tenant: -len(tenant.groups))
        await broker.until(lambda: tenant.count >= 4)

        other = await broker.client(other_port)
        assert (await other.call(ApiKey.METADATA, 12, EVERYTHING)).topics == []
        assert tenant.count < len(hostile)


async def test_more_connections_than_allowed_are_closed_at_once(tmp_path: Path) -> None:
    overrides = {"max.connections.per.instance": "3"}
    async with InProcessBroker(tmp_path / "limited", overrides=overrides) as broker:
        port = await broker.create_instance(INSTANCE)
        clients = [await broker.client(port) for _ in range(4)]

        assert await clients[3].is_closed()
        await clients[0].close()
        await broker.until(lambda: broker.broker.listeners.count == 2)
        again = await broker.client(port)
        assert (await again.call(ApiKey.METADATA, 12, EVERYTHING)).topics == []


async def test_idle_connections_are_closed_and_busy_ones_are_not(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path / "idle", overrides={"connections.max.idle.ms": "20000"}) as broker:
        port = await broker.create_instance(INSTANCE)
        idle, busy = await broker.client(port), await broker.client(port)
        for _ in range(3):
            await busy.call(ApiKey.METADATA, 12, EVERYTHING)
            broker.broker.listeners.sweep()

        assert await idle.is_closed()
        assert (await busy.call(ApiKey.METADATA, 12, EVERYTHING)).topics == []


async def test_a_peer_that_stops_in_the_middle_is_closed(broker: InProcessBroker, port: int) -> None:
    client = await broker.client(port)
    await client.send_raw(pack(">i", 1_000_000) + b"\x00\x00")
    await broker.until(lambda: broker.broker.listeners.buffers.rented_bytes)

    for _ in range(5):
        broker.broker.listeners.sweep()

    assert await client.is_closed()
    assert broker.broker.listeners.buffers.rented_bytes == 0


async def test_a_removed_instance_takes_its_port_and_connections_along(broker: InProcessBroker, port: int) -> None:
    """CKA-3."""
    client = await broker.client(port)
    announce = Create(paths.CHANGE_PREFIX, change_to_json([f"instances/{INSTANCE}"]), sequence=True)
    await broker.tree.commit([Delete(paths.instance(INSTANCE), None), announce])

    assert await client.is_closed()
    with pytest.raises(ConnectionError):
        await WireClient.connect(port)


async def test_mutated_frames_end_connections_and_nothing_else(broker: InProcessBroker, port: int) -> None:
    """Whatever the bytes, the broker continues, and its memory does not grow."""
    client = await broker.client(port)
    await broker.create_topic(client, "orders")
    random_ = random.Random(7)
    frames = [
        encode_request_frame(ApiKey.PRODUCE, 9, 1, "c", encode_request(0, 9, produce_request("orders", batch(b"abc")))),
        encode_request_frame(ApiKey.FETCH, 12, 1, "c", encode_request(1, 12, fetch_request("orders"))),
        encode_request_frame(ApiKey.METADATA, 12, 1, "c", encode_request(3, 12, EVERYTHING)),
    ]
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    session = next(iter(broker.broker.listeners.get(INSTANCE).connections)).session  # type: ignore[union-attr]
    session.channel = _Deaf()

    for _ in range(MUTATED_FRAMES):
        frame = bytearray(random_.choice(frames)[4:])
        for _ in range(random_.randint(1, 3)):
            frame[random_.randrange(len(frame))] = random_.randrange(256)
        _feed(session, frame)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 50_000
    other = await broker.client(port)
    assert (await other.call(ApiKey.METADATA, 12, EVERYTHING)).topics[0].name == "orders"


class _Deaf:
    """A channel that drops everything."""

    peer_host = "127.0.0.1"
    closed = False
    turns = InstanceTurns(None)

    def respond(self, frame: bytes, delay_ms: int = 0, mute: object = None) -> None:
        assert len(frame) >= 8

    def respond_parts(
        self, parts: list[object], delay_ms: int = 0, on_written: object = None, mute: object = None
    ) -> None:
        for part in parts:
            if not isinstance(part, bytes):
                part.release()  # type: ignore[attr-defined]

    def finish_without_response(self, delay_ms: int = 0, mute: object = None) -> None:
        return

    def charge_request_copy(self, count: int) -> None:
        return

    def release_request_copy(self) -> None:
        return

    def retain_frame(self) -> None:
        return

    def close(self, reason: str) -> None:
        return

    def fail(self, error: Exception) -> None:
        raise error


def _feed(session: object, frame: bytearray) -> None:
    with contextlib.suppress(MalformedRequest):
        session.on_frame(memoryview(frame), 0, len(frame))  # type: ignore[attr-defined]
    cancel = session.cancel  # type: ignore[attr-defined]
    if cancel is not None:
        cancel()
        session.cancel = None  # type: ignore[attr-defined]


def test_the_log_says_a_few_lines_a_second_and_then_how_many_it_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    now_ms = [0]
    reports = NetworkReports(lambda: now_ms[0])

    for _ in range(LINES_PER_SECOND_MAX + 20):
        reports.log_malformed("x", "1.2.3.4", ValueError("bad"))

    assert reports.suppressed == 20
    now_ms[0] = 1_000
    reports.log_malformed("x", "1.2.3.4", ValueError("bad"))
    assert reports.suppressed == 0


async def test_wrong_secrets_are_logged_a_few_times_a_second(broker: InProcessBroker) -> None:
    token = SaslAuthenticateRequest(auth_bytes=b"\0somebody\0guessed")
    asked = [(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN")), (ApiKey.SASL_AUTHENTICATE, 2, token)]
    frames = [
        encode_request_frame(key, version, 1, None, encode_request(key, version, it)) for key, version, it in asked
    ]
    strangers = [await broker.client(broker.config.internal_port) for _ in range(4 * LINES_PER_SECOND_MAX)]
    with capture_logs() as written:
        for stranger in strangers:
            await stranger.send_raw(b"".join(frames))
        for stranger in strangers:
            assert (await stranger.receive(*asked[0][:2])).error_code == 0
            assert (await stranger.receive(*asked[1][:2])).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await stranger.is_closed()
    lines = [line for line in written if line["event"] == "authentication_failed"]
    assert 0 < len(lines) < len(strangers)
