"""Simulated connections to a broker: whole frames in each direction, answered in order as by `network.connection`.

Followers and clients call `dial`; the other end is the engine's `Session` with the cluster's identity.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from brokers.contract.process import CLUSTER_USER
from brokers.engine.access.principals import internal_login_principal
from brokers.engine.handlers.api_table import DISPATCH_TABLE
from brokers.engine.handlers.session import Session
from brokers.engine.protocol.apis import ADVERTISED_INTERNAL
from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.scheduling.fair_turns import InstanceTurns
from brokers.engine.throttling.waits import Mute
from brokers.engine.values import Slice
from tests.simulation.cluster.clock import US_PER_MS, Handle, ProcessLoop
from tests.simulation.cluster.network import Network, Place

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import Process

CONNECT_MS_MAX: Final = 1_000
HELLO: Final = "hello"
# Marks the end of a connection between frames, which are bytes.
BYE: Final = "bye"
SIZE_BYTES: Final = 4
# Finds the process that listens at a place.
FindProcess = Callable[[Place], "Process | None"]


def _do_nothing() -> None:
    """Does nothing; the `on_closed` of responses that were complete at once."""


class Owner(Protocol):
    def on_up(self) -> None: ...
    def on_frame(self, buffer: memoryview, start: int, end: int) -> None: ...
    def on_down(self, reason: str) -> None: ...


class Dialled:
    """The connecting side, with the interface of a follower's link. `loop` is None for a client."""

    def __init__(
        self,
        network: Network,
        source: Place,
        loop: ProcessLoop | None,
        target: Place,
        find: FindProcess,
        owner: Owner,
        client: str,
    ) -> None:
        self._network = network
        self._source = source
        self._loop = loop
        self._target = target
        self._find = find
        self._owner: Owner | None = owner
        self._client = client
        self._accepted: Accepted | None = None
        self._later(2 * network.delay_us(source, target), self._open_connection)

    def _later(self, delay_us: int, call: Callable[..., object], *arguments: Any) -> None:
        world = self._network.world
        world.at(world.now_us + delay_us, Handle(self._loop, call, arguments))

    def _open_connection(self) -> None:
        if self._owner is None:
            return
        process = self._find(self._target)
        if not self._network.joins(self._source, self._target) or (process is not None and process.is_silent):
            self._later(CONNECT_MS_MAX * US_PER_MS, self._end_connection, "no answer")
        elif process is None or not process.is_listening:
            self._end_connection("refused")
        else:
            accepted = self._accepted = Accepted(self._network, process, self._source, self._loop, self._arrive)
            accepted.client = self._client
            accepted.to_server.send(HELLO)

    def _arrive(self, message: Any) -> None:
        owner = self._owner
        if owner is None:
            return
        if message == HELLO:
            owner.on_up()
        elif message == BYE:
            self._end_connection("closed by the peer")
        else:
            view = memoryview(bytearray(message))
            owner.on_frame(view, SIZE_BYTES, len(view))

    def _end_connection(self, reason: str) -> None:
        owner, self._owner = self._owner, None
        if owner is not None:
            if self._accepted is not None:
                self._accepted.to_client.close()
            owner.on_down(reason)

    # -- ports.Link ----------------------------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        assert self._accepted is not None, "nothing is sent before `on_up`"
        self._accepted.to_server.send(frame)

    def trim(self) -> None: ...

    def close(self) -> None:
        self._owner = None
        if self._accepted is not None:
            self._accepted.to_client.close()
            self._accepted.to_server.send(BYE)


class PendingResponse:
    """A response in the order of the requests; None until it is complete."""

    def __init__(self, accepted: Accepted, frame: bytes | None, on_closed: Callable[[], object]) -> None:
        self._accepted = accepted
        self.frame = frame
        self.on_closed = on_closed

    def complete(self, frame: bytes) -> None:
        if self.frame is None:
            self.frame = frame
            self._accepted.complete_soon()


class Accepted:
    """The broker's side; implements `handlers.context.Channel`. Frames wait while one is being answered."""

    peer_host = "127.0.0.1"

    def __init__(
        self,
        network: Network,
        process: Process,
        peer: Place,
        peer_loop: ProcessLoop | None,
        deliver: Callable[[Any], object],
    ) -> None:
        self.is_closed = False
        self.client = ""
        self.session: Session | None = None
        self._process = process
        # Turns of the cluster's own identity, which never queues.
        self.turns = InstanceTurns(None)
        self._busy = False
        self._is_processing = False
        self._waiting: deque[bytes] = deque()
        self._pending: deque[PendingResponse] = deque()
        self.to_server = network.connect(peer, process.id, process.loop, self._arrive)
        self.to_client = network.connect(process.id, peer, peer_loop, deliver)
        process.connections[self] = None

    def _arrive(self, message: Any) -> None:
        if self.is_closed:
            return
        if message == HELLO:
            principal = internal_login_principal(CLUSTER_USER)
            assert principal is not None
            self.session = Session(self._process.services, self, principal, ADVERTISED_INTERNAL, DISPATCH_TABLE)
            self.to_client.send(HELLO)
        elif message == BYE:
            self._end()
        else:
            self._waiting.append(message)
            if self._busy:
                assert self.session is not None
                self.session.on_more_bytes()
            else:
                self._process_waiting()

    def _process_waiting(self) -> None:
        self._is_processing = True
        try:
            while self._waiting and not self._busy and not self.is_closed:
                frame = bytearray(self._waiting.popleft())
                self._busy = True
                assert self.session is not None
                try:
                    self.session.on_frame(memoryview(frame), SIZE_BYTES, len(frame))
                except MalformedRequest as error:
                    self.fail(error)
        finally:
            self._is_processing = False

    def _on_answered(self) -> None:
        self._busy = False
        if self._waiting and not self._is_processing:
            self._process.loop.call_soon(self._process_waiting)

    # -- Channel -------------------------------------------------------------------------------------------------------

    def respond(self, frame: bytes, delay_ms: int = 0, mute: Mute | None = None) -> None:
        if self.is_closed:
            return
        if self._pending:
            self._pending.append(PendingResponse(self, bytes(frame), _do_nothing))
        else:
            self.to_client.send(bytes(frame))
        self._on_answered()

    def defer(self, on_closed: Callable[[], object]) -> PendingResponse:
        """Lets the next requests be processed, and answered after this one."""
        pending = PendingResponse(self, None, on_closed)
        self._pending.append(pending)
        self._on_answered()
        return pending

    def complete_soon(self) -> None:
        # Not during the append or the response that completed it.
        if not self.is_closed:
            self._process.loop.call_soon(self._send_complete)

    def _send_complete(self) -> None:
        while self._pending and self._pending[0].frame is not None and not self.is_closed:
            self.to_client.send(self._pending.popleft().frame)

    def respond_parts(
        self,
        parts: Sequence[bytes | Slice],
        delay_ms: int = 0,
        on_written: Callable[[int], object] | None = None,
        mute: Mute | None = None,
    ) -> None:
        frame, count = bytearray(), 0
        for part in parts:
            if isinstance(part, bytes):
                frame += part
            else:
                if not self.is_closed:
                    frame += os.pread(part.fd, part.length, part.position)
                    count += part.length
                part.release()
        if on_written is not None:
            on_written(count)
        self.respond(bytes(frame), delay_ms)

    def finish_without_response(self, delay_ms: int = 0, mute: Mute | None = None) -> None:
        if not self.is_closed:
            self._on_answered()

    def charge_request_copy(self, count: int) -> None:
        """Does nothing: memory is not simulated."""

    def release_request_copy(self) -> None:
        """Does nothing: memory is not simulated."""

    def retain_frame(self) -> None:
        """Does nothing: memory is not simulated."""

    def close(self, reason: str) -> None:
        if not self.is_closed:
            self.to_client.send(BYE)
            self._end()

    def fail(self, error: Exception) -> None:
        if not isinstance(error, MalformedRequest):
            self._process.loop.faults.append(f"a request failed: {error!r}")
        self.close(repr(error))

    def _end(self) -> None:
        self.is_closed = True
        self.to_server.close()
        self._process.connections.pop(self, None)
        while self._pending:
            pending = self._pending.popleft()
            if pending.frame is None:
                pending.on_closed()
        if self.session is not None:
            self.session.on_closed()

    def reset(self) -> None:
        """Ends the connection because the process is gone; the other side is notified."""
        self.is_closed = True
        self.to_server.close()
        self.to_client.send(BYE)
