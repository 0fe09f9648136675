"""The socket between two brokers: connection, framing and closing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from struct import pack
from typing import Any

from brokers.engine.cluster.image import BrokerInfo
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import encode_request, encode_response
from brokers.engine.protocol.headers import encode_request_frame, encode_response_frame
from brokers.engine.protocol.messages.sasl import ApiVersionsRequest, SaslAuthenticateResponse, SaslHandshakeResponse
from brokers.engine.replication.link import BUFFER_BYTES, IDLE_TRIMS, SocketLink
from config.embedded.process import free_port
from tests.testkit.in_process import SECRET, InProcessBroker

HOST = "127.0.0.1"
TIMEOUT_S = 10.0


class Owner:
    """Records its events; `on_frame_do` is called inside `on_frame`."""

    def __init__(self) -> None:
        self.is_up = False
        self.frames: list[bytes] = []
        self.reasons: list[str] = []
        self.on_frame_do: Callable[[], object] = lambda: None

    def on_up(self) -> None:
        self.is_up = True

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        assert not buffer.readonly, "records are appended from where they were received"
        self.frames.append(bytes(buffer[start:end]))
        self.on_frame_do()

    def on_down(self, reason: str) -> None:
        self.reasons.append(reason)

    async def until(self, holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not holds():  # noqa: ASYNC110 (any condition: there is no event to wait for)
                await asyncio.sleep(0.002)


def linked(port: int, secret: str = SECRET) -> tuple[SocketLink, Owner]:
    owner = Owner()
    broker = BrokerInfo(2, HOST, port, 0, None, 1)
    return SocketLink(broker, owner, secret, asyncio.get_running_loop()), owner


GREETINGS = encode_response_frame(
    ApiKey.SASL_HANDSHAKE, 1, 0, encode_response(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeResponse(error_code=0))
) + encode_response_frame(
    ApiKey.SASL_AUTHENTICATE,
    2,
    0,
    encode_response(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateResponse(error_code=0, auth_bytes=b"")),
)


@asynccontextmanager
async def peer() -> AsyncIterator[tuple[asyncio.StreamWriter, SocketLink, Owner]]:
    """Returns a connected link and the other end of it, which may write anything."""
    arrived: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(GREETINGS)
        arrived.put_nowait(writer)

    server = await asyncio.start_server(serve, HOST, 0)
    link, owner = linked(server.sockets[0].getsockname()[1])
    writer = await arrived.get()
    await owner.until(lambda: owner.is_up)
    yield writer, link, owner
    link.close()
    await ended(writer)
    server.close()


async def ended(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def frame(data: bytes) -> bytes:
    return pack(">i", len(data)) + data


async def test_a_broker_authenticates_another_one_and_answers_it(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        link, owner = linked(broker.config.internal_port)
        await owner.until(lambda: owner.is_up)
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        body = encode_request(ApiKey.API_VERSIONS, 3, request)
        link.send(encode_request_frame(ApiKey.API_VERSIONS, 3, 4711, "broker", body))
        await owner.until(lambda: owner.frames)
        assert owner.frames[0][:4] == pack(">i", 4711)
        link.close()
        assert owner.reasons == []


async def test_a_wrong_secret_is_reported_without_the_secret(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path) as broker:
        _, owner = linked(broker.config.internal_port, "not-the-secret-of-this-cluster")
        await owner.until(lambda: owner.reasons)
        assert (owner.reasons, owner.is_up) == (["the peer refused the authentication of this broker"], False)


async def test_a_refused_connection_is_reported_once() -> None:
    link, owner = linked(free_port())
    await owner.until(lambda: owner.reasons)
    assert owner.reasons[0].endswith("Connection refused")
    link.close()
    assert len(owner.reasons) == 1


async def test_frames_are_separated_however_they_arrive() -> None:
    async with peer() as (writer, _, owner):
        sent = [b"one", b"", b"three" * 1_000, bytes(3 * BUFFER_BYTES), b"five"]
        stream = b"".join(map(frame, sent))
        for start in range(0, len(stream), 10_007):
            writer.write(stream[start : start + 10_007])
            await writer.drain()
        await owner.until(lambda: len(owner.frames) == len(sent))
        assert owner.frames == sent


async def test_a_large_buffer_is_freed_when_it_was_not_needed_for_a_while() -> None:
    async with peer() as (writer, link, owner):
        writer.write(frame(bytes(3 * BUFFER_BYTES)))
        await owner.until(lambda: len(owner.frames) == 1)
        assert link.buffer_bytes > BUFFER_BYTES
        for _ in range(IDLE_TRIMS):
            link.trim()
            assert link.buffer_bytes > BUFFER_BYTES
        link.trim()
        assert link.buffer_bytes == BUFFER_BYTES
        writer.write(frame(b"small"))
        await owner.until(lambda: len(owner.frames) == 2)


async def test_a_peers_close_is_reported_once_and_our_own_never() -> None:
    async with peer() as (writer, _, owner):
        writer.close()
        await owner.until(lambda: owner.reasons)
        assert owner.reasons == ["closed by the peer"]
    async with peer() as (writer, link, owner):
        link.close()
        writer.write(frame(b"late"))
        await writer.drain()
        assert (owner.frames, owner.reasons) == ([], [])


async def test_a_link_may_be_closed_in_its_own_callback() -> None:
    async with peer() as (writer, link, owner):
        owner.on_frame_do = link.close
        writer.write(frame(b"first") + frame(b"second"))
        await owner.until(lambda: owner.frames)
        assert owner.frames == [b"first"]
        assert owner.reasons == []


async def test_an_impossible_frame_size_closes_the_link() -> None:
    async with peer() as (writer, _, owner):
        writer.write(b"HTTP/1.1 200 OK")
        await owner.until(lambda: owner.reasons)
        assert "announced" in owner.reasons[0]


async def test_a_request_larger_than_the_socket_buffer_is_sent_whole() -> None:
    received = bytearray()
    is_over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GREETINGS)
        while chunk := await reader.read(65_536):
            received.extend(chunk)
        await ended(writer)
        is_over.set()

    server = await asyncio.start_server(serve, HOST, 0)
    link, owner = linked(server.sockets[0].getsockname()[1])
    await owner.until(lambda: owner.is_up)
    parts = [bytes([number]) * 4_000_000 for number in range(3)]
    for part in parts:
        link.send(part)
    await owner.until(lambda: received.endswith(b"".join(parts)))
    link.close()
    await is_over.wait()
    server.close()
