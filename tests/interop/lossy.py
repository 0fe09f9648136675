"""A TCP proxy in front of one broker that loses every n-th answer: the request went through, its sender hears nothing.

The connection is cut where an answer is lost, as on a broken network; the client connects again and repeats what it has
not heard about.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from struct import Struct

_SIZE = Struct(">i")
HEAD = Struct(">hh")
JOIN_TIMEOUT_S = 10.0


class LossyProxy:
    """Answers to calls of `api_key` are counted over all connections; every `every`-th is lost. A context manager."""

    def __init__(self, port: int, upstream: tuple[str, int], *, every: int, api_key: int) -> None:
        self.port, self.upstream, self.every, self.api_key = port, upstream, every, api_key
        self.answered = self.lost = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lossy")

    def __enter__(self) -> LossyProxy:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(JOIN_TIMEOUT_S)
        self._loop.close()

    def _run(self, task: object) -> None:
        asyncio.run_coroutine_threadsafe(task, self._loop).result(JOIN_TIMEOUT_S)  # type: ignore[arg-type]

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _finish(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        their_reader, their_writer = await asyncio.open_connection(*self.upstream)
        # What the requests under way are, by correlation id.
        asked: dict[int, int] = {}

        def note(frame: bytes) -> bool:
            api_key, _ = HEAD.unpack_from(frame)
            asked[int.from_bytes(frame[4:8], "big")] = api_key
            return True

        def keep(frame: bytes) -> bool:
            return not self._is_lost(asked.pop(int.from_bytes(frame[:4], "big"), -1))

        ways = [
            asyncio.ensure_future(way)
            for way in (pass_on(reader, their_writer, note), pass_on(their_reader, writer, keep))
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for stream in (writer, their_writer):
                stream.close()
            await asyncio.gather(*ways, return_exceptions=True)

    def _is_lost(self, api_key: int) -> bool:
        if api_key != self.api_key:
            return False
        self.answered += 1
        is_lost = self.answered % self.every == 0
        self.lost += is_lost
        return is_lost


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wants: Callable[[bytes], bool]) -> None:
    """Frame by frame, until either side ends or a frame is not wanted."""
    while True:
        try:
            size = await reader.readexactly(_SIZE.size)
            frame = await reader.readexactly(_SIZE.unpack(size)[0])
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        if not wants(frame):
            return
        writer.write(size + frame)
        try:
            await writer.drain()
        except ConnectionError:
            return
