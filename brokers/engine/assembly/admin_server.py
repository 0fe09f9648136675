"""The admin port: HTTP, with or without TLS, served on the event loop, with one request for each connection.

It shares the event loop with the data path on purpose: a response proves that the loop runs. Handshakes run in a
thread. When the maximum number of connections is open, a new one replaces the oldest one without proof of its identity:
otherwise any peer that reaches the port could lock out the control plane. Health is public, the cluster's processes may
read metrics, and the control plane everything.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

from brokers.contract.process_identity import ProcessIdentity, ProcessRole, identity_in
from brokers.engine.network.buffers import FrameBuffers, UnreadBytes
from brokers.engine.network.connection_handshake import ConnectionHandshake
from brokers.engine.network.handshakes import Handshakes
from brokers.engine.network.interfaces import OwnedConnection
from brokers.engine.network.listener import listening_socket
from brokers.engine.network.listener_rules import OPEN_TO_ALL, ListenerRules, MakeSession
from brokers.engine.network.tls_stream import TlsStream
from brokers.engine.scheduling.fair_turns import InstanceTurns
from brokers.engine.telemetry.admin_http import Handler, Reply, Request, is_authorized, response_bytes

HEAD_BYTES_MAX: Final = 8_192
# Longer requests are read up to this size, so that the peer can receive the response.
READ_BYTES_MAX: Final = 4 * HEAD_BYTES_MAX
REQUEST_TIMEOUT_S: Final = 5.0
CONNECTIONS_MAX: Final = 64
# Priorities of connections. Those of the lowest priority are closed first to make room: connections without proof, then
# those with a request or a certificate. Connections with the control plane's certificate are never closed for that.
UNPROVEN: Final = 0
KNOWN: Final = 1
CONTROL: Final = 2
BACKLOG: Final = 128
HANDSHAKE_THREADS: Final = 1
_END: Final = b"\r\n\r\n"

Report = Callable[[str, str, Exception], object]
HEALTH_PATHS: Final = frozenset({"/healthz", "/readyz"})
METRICS_PATH: Final = "/metrics"


class AdminServer:
    """HTTP server of the admin port, and the `HandshakeOwner` of its connections, which use TLS if `rules` require it.
    `answer` must not block.
    """

    def __init__(
        self,
        answer: Handler,
        rules: ListenerRules = OPEN_TO_ALL,
        report: Report | None = None,
        identify: Callable[[Mapping[str, Any]], ProcessIdentity | None] = identity_in,
    ) -> None:
        """Creates the server. `report` is called for failed handshakes with the listener, the peer and the error.
        `identify` returns the process that a verified certificate proves.
        """
        self.rules = rules
        self.unread = UnreadBytes()
        self.turns = InstanceTurns(None)
        self._answer = answer
        self._report = report
        self._identify = identify
        self._loop = asyncio.get_running_loop()
        self._handshakes = Handshakes(self._loop, HANDSHAKE_THREADS)
        self._buffers = FrameBuffers(call_soon=self._loop.call_soon)
        self._socket: socket.socket | None = None
        # Open connections and handshakes, in the order of arrival.
        self._open: dict[OwnedConnection | _Exchange, None] = {}

    @property
    def group(self) -> AdminServer:
        return self

    async def start(self, host: str, port: int) -> None:
        """Binds the port and starts to accept. Raises OSError if it cannot be bound."""
        self._socket = bound = listening_socket(host, port, BACKLOG)
        self._loop.add_reader(bound.fileno(), self._on_acceptable, bound)

    async def stop(self) -> None:
        bound, self._socket = self._socket, None
        if bound is not None:
            self._loop.remove_reader(bound.fileno())
            bound.close()
        for connection in tuple(self._open):
            connection.close("the broker stops")
        self._handshakes.close()

    def _on_acceptable(self, bound: socket.socket) -> None:
        """Accepts one connection in each turn of the event loop."""
        try:
            accepted, address = bound.accept()
        except OSError:
            return
        if not self._make_room():
            accepted.close()
            return
        accepted.setblocking(False)
        if self.rules.tls is None:
            self.enter(accepted, str(address[0]))
            return
        handshake = ConnectionHandshake(accepted, str(address[0]), self, self._buffers, self._loop, self._handshakes)
        self._open[handshake] = None
        handshake.start(is_proxied=False)

    def _make_room(self) -> bool:
        """Closes the oldest connection of the lowest priority if the maximum is reached. Returns False if none may be
        closed, so that no further one can be accepted.
        """
        if len(self._open) < CONNECTIONS_MAX:
            return True
        oldest = min(self._open, key=_priority)
        if _priority(oldest) == CONTROL:
            return False
        oldest.close("others need its place")
        return True

    # -- connection_handshake.HandshakeOwner ------------------------------------------------------------------------

    def refuses(self, client_host: str) -> bool:
        return False

    def throttle(self, accepted: socket.socket, client_host: str) -> bool:
        return False

    def on_client(self, connection: OwnedConnection, client_host: str) -> None:
        """Does nothing: no proxy is expected, and connections are not counted by address."""

    def enter(
        self, accepted: socket.socket | TlsStream, client_host: str, make_session: MakeSession | None = None
    ) -> None:
        """Starts the exchange of a connection, after its handshake if it uses TLS."""
        process = self._identify(accepted.verified_certificate) if isinstance(accepted, TlsStream) else None
        exchange = _Exchange(accepted, process, self._loop, self._answer, self._forget)
        self._open[exchange] = None
        exchange.start()

    def close_connection(self, connection: OwnedConnection, reason: str) -> None:
        connection.close(reason)

    def on_handshake_failed(self, peer_host: str, error: Exception) -> None:
        if self._report is not None:
            self._report("admin", peer_host, error)

    def on_malformed(self, peer_host: str, error: Exception) -> None:
        self.on_handshake_failed(peer_host, error)

    def on_fault(self, peer_host: str, error: Exception) -> None:
        self.on_handshake_failed(peer_host, error)

    def on_closed(self, connection: OwnedConnection, reason: str) -> None:
        self._forget(connection)

    def _forget(self, connection: OwnedConnection | _Exchange) -> None:
        self._open.pop(connection, None)


class _Exchange:
    """One connection: reads a request, sends the response, and closes."""

    def __init__(
        self,
        accepted: socket.socket | TlsStream,
        process: ProcessIdentity | None,
        loop: asyncio.AbstractEventLoop,
        answer: Handler,
        on_closed: Callable[[_Exchange], object],
    ) -> None:
        self._socket = accepted.as_socket if isinstance(accepted, TlsStream) else accepted
        self._loop = accepted.as_loop if isinstance(accepted, TlsStream) else loop
        self._process = process
        self._answer = answer
        self._on_closed = on_closed
        self._head = b""
        self._unsent = memoryview(b"")
        self._buffer = memoryview(bytearray(READ_BYTES_MAX))
        self._deadline = loop.call_later(REQUEST_TIMEOUT_S, self.close, "no request in time")
        self._is_closed = False
        self.priority = _priority_of_process(process)

    def start(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        try:
            count = self._socket.recv_into(self._buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close("connection lost")
            return
        self._head += self._buffer[:count]
        head, end, _ = self._head.partition(_END)
        if end and len(head) <= HEAD_BYTES_MAX:
            self.priority = max(self.priority, KNOWN)
            self._loop.remove_reader(self._socket.fileno())
            self._unsent = memoryview(response_bytes(head + end, self._process, self._answer))
            self._loop.add_writer(self._socket.fileno(), self._send)
            self._send()
        elif not count or len(self._head) > HEAD_BYTES_MAX:
            self.close("no request")

    def _send(self) -> None:
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close("connection lost")
            return
        if not self._unsent:
            self.close("answered")

    def close(self, reason: str) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._deadline.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._on_closed(self)


def _priority_of_process(process: ProcessIdentity | None) -> int:
    if process is None:
        return UNPROVEN
    return CONTROL if process.role is ProcessRole.CONTROL else KNOWN


def _priority(connection: OwnedConnection | _Exchange) -> int:
    """Returns the priority of a connection; the lowest during its handshake."""
    return connection.priority if isinstance(connection, _Exchange) else UNPROVEN


def access_refusal(request: Request, *, cluster_id: str, secret: str | None) -> Reply | None:
    """Returns the error reply for a request that its peer may not make, else None.

    With `secret`, peers without a certificate may read metrics, and everything else if they send the secret; with None
    they may read health only.
    """
    if request.path in HEALTH_PATHS:
        return None
    process = request.process
    if process is not None:
        is_reader = request.path == METRICS_PATH and process.is_of(cluster_id)
        if process.role is ProcessRole.CONTROL or is_reader:
            return None
        return Reply.json({"error": f"a certificate of the role {process.role} does not open this"}, 403)
    if secret is None:
        return Reply.json({"error": "speak TLS, with a certificate of this installation"}, 403)
    if not request.path.startswith("/v1/") or is_authorized(request, secret):
        return None
    return Reply.json({"error": "the control secret is needed"}, 401)
