"""A connection stops reading for the reasons in `receiving.Busy`, and resumes when the last one is cleared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from brokers.engine.network.admission import Limits
from brokers.engine.network.connection import Connection
from brokers.engine.network.interfaces import CLOSED_SESSION
from brokers.engine.network.listener import Listeners
from brokers.engine.network.receiving import Busy
from brokers.engine.network.reports import NetworkReports

HOST = "127.0.0.1"
FRAME = b"\x00\x00\x00\x10" + bytes(16)
READING = Busy(0)
RESPONSE_BYTES = 16 * 1024 * 1024
LIMITS = Limits(
    connections_max=10,
    connections_per_listener_max=10,
    idle_ms_max=60_000,
    connections_per_address_max=10,
    creations_per_s_max=1_000,
    creations_per_listener_per_s_max=1_000,
)


class SilentSession:
    """A session that counts frames, and answers none by itself."""

    frame_bytes_max = 1_000

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.frames = 0
        self.is_closed = False

    def frame_bytes_max_of(self, api_key: int) -> int:
        return self.frame_bytes_max

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        self.frames += 1

    def on_more_bytes(self) -> None:
        """Does nothing: the request waits."""

    def on_closed(self) -> None:
        self.is_closed = True


class Peer:
    """A client and the session of its connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, session: SilentSession) -> None:
        self.reader = reader
        self.writer = writer
        self.session = session
        self.connection = session.connection

    async def until(self, state: Busy, frames: int) -> None:
        await until(lambda: self.session.frames == frames and self.connection.busy == state)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@asynccontextmanager
async def connected() -> AsyncIterator[Peer]:
    sessions: list[SilentSession] = []

    def make_session(connection: Connection) -> SilentSession:
        sessions.append(SilentSession(connection))
        return sessions[-1]

    with ThreadPoolExecutor(1) as readers:
        listeners = Listeners(asyncio.get_running_loop(), LIMITS, NetworkReports(lambda: 0), readers)
        listener = listeners.bind("ins-a", HOST, 0, make_session)
        listener.start_accepting()
        reader, writer = await asyncio.open_connection(HOST, listener.port)
        await until(lambda: bool(sessions))
        try:
            yield Peer(reader, writer, sessions[0])
        finally:
            writer.close()
            listeners.close_all("the test is over")


async def test_the_next_frame_waits_until_the_one_in_processing_is_answered() -> None:
    async with connected() as peer:
        assert peer.connection.busy == READING
        peer.writer.write(FRAME + FRAME)
        await peer.until(Busy.PROCESSING, frames=1)
        assert peer.connection.is_waiting
        peer.connection.respond(b"first")
        await peer.until(Busy.PROCESSING, frames=2)
        peer.connection.finish_without_response()
        await peer.until(READING, frames=2)


async def test_a_muted_client_is_read_again_when_its_delay_is_over() -> None:
    async with connected() as peer:
        peer.writer.write(FRAME + FRAME)
        await peer.until(Busy.PROCESSING, frames=1)
        peer.connection.respond(b"delayed", delay_ms=20)
        assert peer.connection.busy == Busy.MUTED
        assert peer.session.frames == 1
        await peer.until(Busy.PROCESSING, frames=2)


async def test_a_response_that_the_socket_does_not_take_is_written_before_more_is_read() -> None:
    async with connected() as peer:
        peer.writer.write(FRAME + FRAME)
        await peer.until(Busy.PROCESSING, frames=1)
        peer.connection.respond(bytes(RESPONSE_BYTES))
        assert peer.connection.busy == Busy.WRITING
        assert not peer.connection.is_waiting, "a client that does not read is slow"
        assert len(await peer.reader.readexactly(RESPONSE_BYTES)) == RESPONSE_BYTES
        await peer.until(Busy.PROCESSING, frames=2)


async def test_a_peer_that_closes_ends_a_request_in_processing() -> None:
    async with connected() as peer:
        peer.writer.write(FRAME)
        await peer.until(Busy.PROCESSING, frames=1)
        peer.writer.close()
        await until(lambda: peer.session.is_closed)
        assert peer.connection.is_closed
        assert peer.connection.session is CLOSED_SESSION
