"""Listening sockets that open and close at run time (CKA-3), and the limits of who may come in (QUO-50, WIRE-11)."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final, Protocol

from brokers.engine.network.buffers import FrameBuffers
from brokers.engine.network.connection import Connection
from brokers.engine.network.interfaces import OwnedConnection, Session
from brokers.engine.network.reports import NetworkReports

BACKLOG: Final = 1_024
ACCEPTED_PER_TURN_MAX: Final = 64
ACCEPT_PAUSE_S: Final = 0.1
# A peer that stops in the middle of a request or a response is closed after this many sweeps.
STALLED_TICKS_MAX: Final = 3

_OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class Limits:
    """`sweep_ms` is how often `Listeners.sweep` is called; idle time is counted in sweeps."""

    connections_max: int
    connections_per_listener_max: int
    idle_ms_max: int
    sweep_ms: int = 10_000


@dataclass(slots=True)
class Counters:
    """What the network did since the start."""

    accepted: int = 0
    refused: int = 0
    malformed: int = 0
    faults: int = 0


class MakeSession(Protocol):
    """Whoever understands the frames of one listener; plugged in by the assembly."""

    def __call__(self, connection: Connection) -> Session: ...


@dataclass(slots=True, eq=False)
class Listener:
    """One bound port. `name` is the instance's id, or that of the listener inside the cluster."""

    name: str
    host: str
    port: int
    make_session: MakeSession
    owner: Listeners
    socket: socket.socket
    connections_max: int
    # Its connections are refused and closed for nobody else's (QUO-50).
    is_protected: bool = False
    connections: set[OwnedConnection] = field(default_factory=set)

    @property
    def readers(self) -> Executor:
        return self.owner.readers

    def on_acceptable(self) -> None:
        for _ in range(ACCEPTED_PER_TURN_MAX):
            try:
                accepted, address = self.socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue
            except OSError as error:
                self._pause(error)
                return
            self.owner.admit(self, accepted, address)

    def _pause(self, error: OSError) -> None:
        """Out of descriptors or memory: without a pause the loop would spin on a socket that stays readable."""
        self.owner.reports.accept_failed(self.name, error)
        if error.errno not in _OUT_OF_DESCRIPTORS:
            return
        self.owner.loop.remove_reader(self.socket.fileno())
        self.owner.loop.call_later(ACCEPT_PAUSE_S, self._go_on)

    def _go_on(self) -> None:
        if self.socket.fileno() >= 0:
            self.owner.loop.add_reader(self.socket.fileno(), self.on_acceptable)

    def on_closed(self, connection: OwnedConnection, reason: str) -> None:
        self.connections.discard(connection)
        self.owner.count -= 1

    def on_malformed(self, peer_host: str, error: Exception) -> None:
        self.owner.counters.malformed += 1
        self.owner.reports.malformed(self.name, peer_host, error)

    def on_fault(self, peer_host: str, error: Exception) -> None:
        self.owner.counters.faults += 1
        self.owner.reports.fault(self.name, peer_host, error)


class Listeners:
    """All ports of this broker. Opening and closing never waits; `readers` are threads that may wait for a disk."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        reports: NetworkReports,
        readers: Executor,
        buffers: FrameBuffers | None = None,
    ) -> None:
        self.loop = loop
        self.limits = limits
        self.reports = reports
        self.readers = readers
        self.buffers = buffers or FrameBuffers()
        self.counters = Counters()
        self.count = 0
        self._listeners: dict[str, Listener] = {}

    def __iter__(self) -> Iterator[Listener]:
        return iter(self._listeners.values())

    def get(self, name: str) -> Listener | None:
        return self._listeners.get(name)

    def bind(
        self,
        name: str,
        host: str,
        port: int,
        make_session: MakeSession,
        connections_max: int = 0,
        *,
        is_protected: bool = False,
    ) -> Listener:
        """Takes the port without accepting yet. Raises OSError: it is taken, or not ours."""
        assert name not in self._listeners, f"the listener {name} is open already"
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setblocking(False)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((host, port))
            bound.listen(BACKLOG)
        except OSError:
            bound.close()
            raise
        listener = Listener(
            name,
            host,
            port or bound.getsockname()[1],
            make_session,
            self,
            bound,
            connections_max or self.limits.connections_per_listener_max,
            is_protected,
        )
        self._listeners[name] = listener
        return listener

    def open(self, name: str, host: str, port: int, make_session: MakeSession, connections_max: int = 0) -> Listener:
        """Binds and accepts. Raises OSError as `bind`."""
        listener = self.bind(name, host, port, make_session, connections_max)
        self.accept(listener)
        return listener

    def accept(self, listener: Listener) -> None:
        self.loop.add_reader(listener.socket.fileno(), listener.on_acceptable)

    def close(self, name: str, reason: str = "the listener is closed") -> None:
        """Closes the port and every connection that came through it (CKA-3)."""
        listener = self._listeners.pop(name, None)
        if listener is None:
            return
        self.loop.remove_reader(listener.socket.fileno())
        listener.socket.close()
        for connection in tuple(listener.connections):
            connection.close(reason)

    def close_all(self, reason: str) -> None:
        for name in tuple(self._listeners):
            self.close(name, reason)

    def admit(self, listener: Listener, accepted: socket.socket, address: tuple[object, ...]) -> None:
        if len(listener.connections) >= listener.connections_max or not self._has_room(listener):
            self.counters.refused += 1
            accepted.close()
            self.reports.refused(listener.name, str(address[0]), self.count)
            return
        try:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError:
            accepted.close()
            return
        self.counters.accepted += 1
        self.count += 1
        connection = Connection(accepted, str(address[0]), listener, self.buffers, self.loop)
        listener.connections.add(connection)
        connection.start(listener.make_session(connection))

    def _has_room(self, listener: Listener) -> bool:
        """Whether one more may come in through `listener`. When all are taken, whoever has most of them loses the one
        that was quiet longest, so that nobody who opens as many as it may locks the others out (QUO-50).
        """
        if self.count < self.limits.connections_max or listener.is_protected:
            return True
        others = [other for other in self._listeners.values() if not other.is_protected]
        largest = max(others, key=lambda other: len(other.connections))
        if len(largest.connections) <= len(listener.connections) + 1:
            return False
        max(largest.connections, key=lambda connection: connection.idle_ticks).close("others need the room")
        return True

    def sweep(self) -> None:
        """Closes connections that did nothing for `idle_ms_max`, and those stuck in the middle of a message
        (WIRE-11).
        """
        idle_ticks_max = max(1, self.limits.idle_ms_max // self.limits.sweep_ms)
        busy = False
        for listener in tuple(self._listeners.values()):
            for connection in tuple(listener.connections):
                connection.idle_ticks += 1
                busy = busy or connection.idle_ticks <= 1
                if connection.is_stalled and connection.idle_ticks > STALLED_TICKS_MAX and not connection.is_waiting:
                    connection.close("stalled in the middle of a message")
                elif not connection.is_busy and connection.idle_ticks > idle_ticks_max:
                    connection.close("idle")
        if not busy:
            self.buffers.trim()
