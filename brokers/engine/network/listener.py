"""Listening sockets that open and close at run time (CKA-3), and who may come in and stay (QUO-50, QUO-51, WIRE-11)."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter
from typing import Final, Protocol

from brokers.engine.network import endings
from brokers.engine.network.admission import ADDRESS, BROKER, INSTANCE, Addresses, CreationPace, Limits
from brokers.engine.network.buffers import UNREAD_BYTES_PER_INSTANCE_MAX, FrameBuffers, UnreadBytes
from brokers.engine.network.connection import Connection
from brokers.engine.network.endings import Deadlines
from brokers.engine.network.fair_turns import FairTurns, InstanceTurns
from brokers.engine.network.interfaces import OwnedConnection, Session
from brokers.engine.network.reports import NetworkReports
from brokers.engine.network.unsent import UnsentBytes

BACKLOG: Final = 1_024
# Of one listener: some milliseconds of the loop.
ACCEPTED_PER_TURN_MAX: Final = 16
ACCEPT_PAUSE_S: Final = 0.1
# Connections that are looked at, or closed, before the loop serves others.
SWEPT_PER_TURN_MAX: Final = 500
CLOSED_PER_TURN_MAX: Final = 100
# Of the connections of who has most, so many are looked at for the one that was quiet longest.
CANDIDATES_MAX: Final = 64

_OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@dataclass(slots=True)
class Counters:
    """What the network did since the start. `refused` is by cause (`admission`), `ended` by reason (`endings`)."""

    accepted: int = 0
    paced: int = 0
    malformed: int = 0
    faults: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)


class MakeSession(Protocol):
    """Whoever understands the frames of one listener; plugged in by the assembly."""

    def __call__(self, connection: Connection) -> Session: ...


class OnHeldBack(Protocol):
    """Told of a listener whose connections were refused, or not accepted for `delay_ms` (cause None)."""

    def __call__(self, listener: str, cause: str | None, delay_ms: int) -> object: ...


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
    pace: CreationPace
    unread: UnreadBytes
    turns: InstanceTurns
    # Its connections are the cluster's own: they are refused and closed for nobody else's (QUO-50), queue for nobody,
    # and come as fast as they like.
    is_protected: bool = False
    unsent: UnsentBytes = field(default_factory=UnsentBytes)
    # In no order that matters; a dict, so that one can begin somewhere and go round.
    connections: dict[OwnedConnection, None] = field(default_factory=dict)
    addresses: Addresses = field(default_factory=Addresses)
    is_relieving: bool = False

    @property
    def readers(self) -> Executor:
        return self.owner.readers

    def on_acceptable(self) -> None:
        turns, began_s = self.turns, perf_counter()
        if turns.must_wait(began_s):
            self.owner.loop.remove_reader(self.socket.fileno())
            turns.join(self)
            return
        self._accept_some()
        turns.used(began_s, perf_counter())

    def on_turn(self) -> None:
        """As `fair_turns.Queuing`."""
        if self.socket.fileno() >= 0 and self._accept_some():
            self.go_on()

    def _accept_some(self) -> bool:
        """Whether to go on accepting."""
        for _ in range(ACCEPTED_PER_TURN_MAX):
            try:
                accepted, address = self.socket.accept()
            except (BlockingIOError, InterruptedError):
                break
            except ConnectionError:
                continue
            except OSError as error:
                self.owner.reports.accept_failed(self.name, error)
                if error.errno in _OUT_OF_DESCRIPTORS:
                    # Without a pause the loop would spin on a socket that stays readable.
                    self._pause(ACCEPT_PAUSE_S)
                    return False
                break
            self.owner.admit(self, accepted, str(address[0]))
            delay_ms = self.owner.delay_ms(self)
            if delay_ms:
                self._pause(delay_ms / 1000)
                return False
        return True

    def _pause(self, delay_s: float) -> None:
        self.owner.loop.remove_reader(self.socket.fileno())
        self.owner.loop.call_later(delay_s, self.go_on)

    def go_on(self) -> None:
        if self.socket.fileno() >= 0:
            self.owner.loop.add_reader(self.socket.fileno(), self.on_acceptable)

    def on_closed(self, connection: OwnedConnection, reason: str) -> None:
        if connection in self.connections:
            del self.connections[connection]
            self.addresses.remove(connection.peer_host)
            self.owner.count -= 1

    def on_malformed(self, peer_host: str, error: Exception) -> None:
        self.owner.counters.malformed += 1
        self.owner.reports.malformed(self.name, peer_host, error)

    def on_fault(self, peer_host: str, error: Exception) -> None:
        self.owner.counters.faults += 1
        self.owner.reports.fault(self.name, peer_host, error)

    def on_excess(self) -> None:
        """Answers that nobody reads take too much memory. Called inside somebody's request: others are closed later."""
        if not self.is_relieving:
            self.is_relieving = True
            self.owner.loop.call_soon(self._relieve)

    def _relieve(self) -> None:
        """Who took nothing for longest goes first, then who holds most; who holds all of it alone stays."""
        self.is_relieving = False
        holding = [connection for connection in self.connections if connection.unsent_bytes]
        holding.sort(key=lambda connection: (connection.idle_ticks, connection.unsent_bytes), reverse=True)
        for connection in holding[:-1]:
            if not self.unsent.are_too_many:
                break
            self.owner.end(connection, endings.UNREAD_ANSWERS)

    def quietest(self) -> OwnedConnection:
        """Of some of the connections the one that was quiet longest. Those looked at come last the next time."""
        candidates = list(islice(self.connections, CANDIDATES_MAX))
        for connection in candidates:
            del self.connections[connection]
            self.connections[connection] = None
        return max(candidates, key=lambda connection: connection.idle_ticks)


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
        self.fair_turns = FairTurns(loop.call_soon)
        self.on_held_back: OnHeldBack = _unheard
        self._pace = CreationPace(limits.creations_per_s_max)
        self._unread = UnreadBytes()
        self._deadlines = Deadlines(limits.idle_ms_max, limits.sweep_ms)
        self._listeners: dict[str, Listener] = {}

    def __iter__(self) -> Iterator[Listener]:
        return iter(self._listeners.values())

    @property
    def unread_bytes(self) -> int:
        """Received and not processed, of all connections."""
        return self._unread.count + self.buffers.rented_bytes

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
        limits = self.limits
        listener = Listener(
            name=name,
            host=host,
            port=port or bound.getsockname()[1],
            make_session=make_session,
            owner=self,
            socket=bound,
            connections_max=connections_max or limits.connections_per_listener_max,
            pace=CreationPace(limits.creations_per_listener_per_s_max),
            unread=UnreadBytes(self._unread, UNREAD_BYTES_PER_INSTANCE_MAX),
            turns=InstanceTurns(None if is_protected else self.fair_turns),
            is_protected=is_protected,
        )
        if not is_protected:
            listener.unsent = UnsentBytes(listener.on_excess)
        self._listeners[name] = listener
        return listener

    def open(self, name: str, host: str, port: int, make_session: MakeSession, connections_max: int = 0) -> Listener:
        """Binds and accepts. Raises OSError as `bind`."""
        listener = self.bind(name, host, port, make_session, connections_max)
        self.accept(listener)
        return listener

    def accept(self, listener: Listener) -> None:
        listener.go_on()

    def close(self, name: str, reason: str = "the listener is closed") -> None:
        """Closes the port, and every connection that came through it (CKA-3), some in each turn of the loop."""
        listener = self._close_port(name)
        if listener is not None:
            self._close_some(listener, reason)

    def close_all(self, reason: str) -> None:
        for name in tuple(self._listeners):
            listener = self._close_port(name)
            assert listener is not None, "it was there"
            for connection in tuple(listener.connections):
                connection.close(reason)

    def _close_port(self, name: str) -> Listener | None:
        listener = self._listeners.pop(name, None)
        if listener is not None:
            self.loop.remove_reader(listener.socket.fileno())
            listener.socket.close()
        return listener

    def _close_some(self, listener: Listener, reason: str) -> None:
        for connection in list(islice(listener.connections, CLOSED_PER_TURN_MAX)):
            connection.close(reason)
        if listener.connections:
            self.loop.call_soon(self._close_some, listener, reason)

    def admit(self, listener: Listener, accepted: socket.socket, address: str) -> None:
        cause = self._refusal(listener, address)
        if cause is not None:
            _count(self.counters.refused, cause)
            accepted.close()
            self.reports.refused(listener.name, address, cause, len(listener.connections))
            self.on_held_back(listener.name, cause, 0)
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
        connection = Connection(accepted, address, listener, self.buffers, self.loop)
        listener.connections[connection] = None
        listener.addresses.add(address)
        connection.start(listener.make_session(connection))

    def _refusal(self, listener: Listener, address: str) -> str | None:
        """Why one more from this address may not come in; None = it may."""
        if len(listener.connections) >= listener.connections_max:
            return INSTANCE
        if listener.is_protected:
            return None
        if listener.addresses.count(address) >= self.limits.connections_per_address_max:
            return ADDRESS
        return None if self._has_room(listener) else BROKER

    def delay_ms(self, listener: Listener) -> int:
        """One was accepted, or refused; how long to accept no other from this listener (QUO-51)."""
        if listener.is_protected:
            return 0
        now_ms = round(self.loop.time() * 1000)
        delay_ms = max(listener.pace.charge(now_ms), self._pace.charge(now_ms))
        if delay_ms:
            self.counters.paced += 1
            self.on_held_back(listener.name, None, delay_ms)
        return delay_ms

    def _has_room(self, listener: Listener) -> bool:
        """Whether one more may come in through `listener`. When all are taken, whoever has most of them loses one that
        was quiet for long, so that nobody who opens as many as it may locks the others out (QUO-50).
        """
        if self.count < self.limits.connections_max:
            return True
        others = [other for other in self._listeners.values() if not other.is_protected]
        largest = max(others, key=lambda other: len(other.connections))
        if len(largest.connections) <= len(listener.connections) + 1:
            return False
        self.end(largest.quietest(), endings.NEEDED)
        return True

    def end(self, connection: OwnedConnection, reason: str) -> None:
        """Closes it for one of the reasons of `endings`."""
        _count(self.counters.ended, reason)
        connection.close(reason)

    def sweep(self) -> None:
        """Closes connections that lose their place (`endings`)."""
        for _ in self._sweep():
            pass

    async def sweep_in_turns(self) -> None:
        """As `sweep`; others are served in between."""
        for _ in self._sweep():
            await asyncio.sleep(0)

    def _sweep(self) -> Iterator[None]:
        busy = False
        for listener in tuple(self._listeners.values()):
            is_contended = self.buffers.is_contended(listener)
            connections = tuple(listener.connections)
            for at in range(0, len(connections), SWEPT_PER_TURN_MAX):
                for connection in connections[at : at + SWEPT_PER_TURN_MAX]:
                    endings.note_sweep(connection)
                    busy = busy or connection.idle_ticks <= 1
                    reason = endings.reason_to_close(connection, self._deadlines, is_contended)
                    if reason is not None:
                        self.end(connection, reason)
                yield
        if not busy:
            self.buffers.trim()


def _count(counts: dict[str, int], what: str) -> None:
    counts[what] = counts.get(what, 0) + 1


def _unheard(listener: str, cause: str | None, delay_ms: int) -> None:
    """Before the assembly has plugged in who is."""
