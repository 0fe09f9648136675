"""Simulated clients as processes of their own, which may be paused, and killed with or without notice to their peers.

A client is a coroutine. It finds leaders and coordinators in the image of any broker, which may be outdated.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from brokers.engine.handlers.groups.find_coordinator import coordinator_of
from brokers.engine.protocol.codec import decode_response, encode_request
from brokers.engine.protocol.headers import decode_response_header, encode_request_frame
from tests.simulation.cluster.broker import Process, SimulationContext
from tests.simulation.cluster.clock import US_PER_MS, Handle, ProcessLoop
from tests.simulation.cluster.connections import Dialled
from tests.simulation.cluster.network import CLIENTS
from tests.simulation.cluster.promises import BrokenPromise

# Maximum time of a request, longer than any rebalance, commit or append.
ANSWER_MS_MAX: Final = 3_000
NOBODY: Final = -1


class NoAnswer(Exception):
    """There is no response, so that the outcome is unknown."""


class ClientContext:
    """Context that all clients of a run share. `disturbed_us` is the time of the last fault in the cluster."""

    def __init__(self, context: SimulationContext, note: Callable[[str], object]) -> None:
        self.context = context
        self.note = note
        self.dice = context.dice
        self.disturbed_us = 0

    @property
    def now_us(self) -> int:
        return self.context.world.now_us

    def any_broker(self) -> Process | None:
        """Returns a broker whose image is used, None without one."""
        living = [host.process for host in self.context.hosts.values() if host.process and host.process.is_listening]
        return self.dice.choice(living) if living else None


class _Request:
    __slots__ = ("answer", "api_key", "correlation_id", "deadline", "frame", "sent_us", "version")

    def __init__(self, api_key: int, version: int, correlation_id: int, frame: bytes, sent_us: int) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.frame = frame
        self.sent_us = sent_us
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.deadline: Handle | None = None


class _Connection:
    """A connection to one broker, with responses in order."""

    def __init__(self, machine: Machine, broker: int) -> None:
        self._machine = machine
        self._broker = broker
        self._pending: deque[_Request] = deque()
        self._is_up = False
        context = machine.client_context.context
        self.link = Dialled(context.network, CLIENTS, machine.loop, broker, context.find, self, machine.name)

    def request(self, request: _Request) -> None:
        self._pending.append(request)
        if self._is_up:
            self.link.send(request.frame)

    def on_up(self) -> None:
        self._is_up = True
        for request in self._pending:
            self.link.send(request.frame)

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        request = self._pending.popleft()
        correlation_id, body = decode_response_header(request.api_key, request.version, buffer, start, end)
        assert correlation_id == request.correlation_id, "answers come in order"
        if request.deadline is not None:
            request.deadline.cancel()
        if not request.answer.done():
            request.answer.set_result(decode_response(request.api_key, request.version, buffer, body, end))

    def on_down(self, reason: str) -> None:
        self._machine.forget(self._broker, self)
        for request in self._pending:
            if request.deadline is not None:
                request.deadline.cancel()
            if not request.answer.done():
                request.answer.set_exception(NoAnswer(reason))
        self._pending.clear()

    def disconnect(self) -> None:
        self.link.close()
        self.on_down("no answer")


class Machine:
    """A client process; `is_over` is True after it was killed or has finished."""

    def __init__(self, name: str, client_context: ClientContext) -> None:
        self.name = name
        self.client_context = client_context
        self.dice = client_context.dice
        self.loop = ProcessLoop(client_context.context.world, name)
        self.is_over = False
        self._connections: dict[int, _Connection] = {}
        self._correlation_id = 0
        self._task: asyncio.Task[None] | None = None

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.call_soon(self._begin, work)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self.loop.create_task(work)
        self._task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self.is_over = True
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
        self.note("has nothing more to do")
        self.end()

    def note(self, text: str) -> None:
        self.client_context.note(f"{self.name} {text}")

    # -- the verbs of its incarnation
    # -----------------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        return self.loop.is_paused

    def pause(self) -> None:
        self.loop.pause()

    def resume(self) -> None:
        self.loop.resume(messages_first=self.dice.random() < 0.5)

    def kill(self, *, silently: bool = False) -> None:
        """Kills the client; with `silently` its machine is gone, so that its connections are not closed."""
        self.is_over = True
        self.end(silently=silently)

    def end(self, *, silently: bool = False) -> None:
        self.loop.is_paused = False
        self.loop.end()
        if not silently:
            for connection in tuple(self._connections.values()):
                connection.link.close()
        self._connections.clear()
        if self._task is not None:
            # Suppresses the warning about the unfinished task of a killed process.
            self._task._log_destroy_pending = False  # type: ignore[attr-defined]

    # -- actions -------------------------------------------------------------------------------------------------------

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(ms / 1_000)

    async def wait_before_retry(self) -> None:
        """Waits before a retry."""
        await self.sleep(self.dice.choice((10, 20, 40, 80)))

    def coordinator(self, kind: int, id: str) -> int:
        process = self.client_context.any_broker()
        return NOBODY if process is None else coordinator_of(process.services, kind, id)

    def leader(self, topic: str, index: int) -> int:
        process = self.client_context.any_broker()
        image = None if process is None else process.current.image.topics.get(topic)
        return NOBODY if image is None else image.partitions[index].leader

    async def call(self, broker: int, api_key: int, version: int, message: Any) -> Any:
        """Sends a request and returns the response. Raises Gone."""
        if broker < 0:
            await self.wait_before_retry()
            raise NoAnswer("nobody to ask")
        connection = self._connections.get(broker)
        if connection is None:
            connection = self._connections[broker] = _Connection(self, broker)
        self._correlation_id += 1
        body = encode_request(api_key, version, message)
        frame = encode_request_frame(api_key, version, self._correlation_id, self.name, body)
        request = _Request(api_key, version, self._correlation_id, frame, self.client_context.now_us)
        request.deadline = self.loop.call_later(ANSWER_MS_MAX / 1_000, self._on_time_out, broker, connection, request)
        connection.request(request)
        return await request.answer

    def _on_time_out(self, broker: int, connection: _Connection, request: _Request) -> None:
        client_context = self.client_context
        waited_us = client_context.now_us - request.sent_us
        # After a longer wait the client itself was paused, and the response may be in its socket.
        if request.sent_us > client_context.disturbed_us and waited_us < (ANSWER_MS_MAX + 5) * US_PER_MS:
            raise BrokenPromise(
                f"{self.name} got no answer from b{broker} to {type_of(request)} of {request.sent_us / 1e6:.4f}; "
                f"the last fault was at {client_context.disturbed_us / 1e6:.4f}"
            )
        connection.disconnect()

    def forget(self, broker: int, connection: _Connection) -> None:
        if self._connections.get(broker) is connection:
            del self._connections[broker]


def type_of(request: _Request) -> str:
    return f"call {request.api_key}"
