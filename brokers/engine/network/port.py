"""A bound port of a broker, and the acceptance of connections on it."""

from __future__ import annotations

import asyncio
import errno
import socket
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Final, Protocol

from brokers.engine.network import admission
from brokers.engine.network.accept_policy import AcceptPolicy
from brokers.engine.network.admission import Limits
from brokers.engine.network.buffers import FrameBuffers, UnreadBytes, UnsentBytes
from brokers.engine.network.connection import Connection
from brokers.engine.network.connection_handshake import ConnectionHandshake
from brokers.engine.network.handshakes import Handshakes
from brokers.engine.network.interfaces import OwnedConnection
from brokers.engine.network.listener_group import ListenerGroup
from brokers.engine.network.listener_rules import OPEN_TO_ALL, ListenerRules, MakeSession
from brokers.engine.network.reports import Counters, NetworkReports
from brokers.engine.network.tls_stream import TlsStream
from brokers.engine.scheduling.fair_turns import InstanceTurns

# Maximum number of connections that one listener accepts in one turn: some milliseconds of the event loop.
ACCEPTED_PER_TURN_MAX: Final = 16
ACCEPT_PAUSE_S: Final = 0.1

_OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

PlainSocket = socket.socket
Accepted = PlainSocket | TlsStream


class PortOwner(Protocol):
    """All ports of a broker; implemented by `listener.Listeners`."""

    loop: asyncio.AbstractEventLoop
    readers: Executor
    reports: NetworkReports
    counters: Counters
    policy: AcceptPolicy
    buffers: FrameBuffers
    handshakes: Handshakes
    limits: Limits
    # Number of open connections, and number of all that have entered since the start.
    count: int
    entered_count: int

    def close_connection(self, connection: OwnedConnection, reason: str) -> None: ...


@dataclass(slots=True, eq=False)
class Listener:
    """One bound port: a route of an instance. `group` is the state that the instance's routes share."""

    name: str
    host: str
    port: int
    make_session: MakeSession
    owner: PortOwner
    socket: socket.socket
    group: ListenerGroup
    rules: ListenerRules = OPEN_TO_ALL
    # A dict used as an ordered set: `ListenerGroup.find_longest_idle` moves examined connections to the end.
    connections: dict[OwnedConnection, None] = field(default_factory=dict)

    @property
    def readers(self) -> Executor:
        return self.owner.readers

    @property
    def delays_responses(self) -> bool:
        return self.owner.limits.delays_responses

    @property
    def unread(self) -> UnreadBytes:
        return self.group.unread

    @property
    def unsent(self) -> UnsentBytes:
        return self.group.unsent

    @property
    def turns(self) -> InstanceTurns:
        return self.group.turns

    def on_acceptable(self) -> None:
        turns, began_s = self.group.turns, perf_counter()
        if turns.must_queue(began_s):
            self.owner.loop.remove_reader(self.socket.fileno())
            turns.enqueue(self)
            return
        self._accept_some()
        turns.charge(began_s, perf_counter())

    def on_turn(self) -> None:
        """Accepts connections when the queue reaches the instance (`fair_turns.Waiter`)."""
        if self.socket.fileno() >= 0 and self._accept_some():
            self.start_accepting()

    def _accept_some(self) -> bool:
        """Accepts some connections. Returns True if the listener may continue to accept."""
        for _ in range(ACCEPTED_PER_TURN_MAX):
            try:
                accepted, address = self.socket.accept()
            except (BlockingIOError, InterruptedError):
                break
            except ConnectionError:
                continue
            except OSError as error:
                self.owner.reports.log_accept_failure(self.name, error)
                if error.errno in _OUT_OF_DESCRIPTORS:
                    # Without a pause the event loop would spin on a socket that stays readable.
                    self._pause(ACCEPT_PAUSE_S)
                    return False
                break
            delay_ms = self._accept(accepted, str(address[0]))
            if delay_ms:
                self._pause(delay_ms / 1000)
                return False
        return True

    def _accept(self, accepted: PlainSocket, address: str) -> int:
        """Accepts, queues or refuses a connection. Returns the time in ms for which no other connection is accepted.

        Only connections from a proxy, whose clients are still unknown, delay others in the kernel; all others are
        accepted, and queue by address.
        """
        rules, queue = self.rules, self.group.entry_queue
        if self.group.is_protected or rules.is_proxy(address):
            return self._admit_and_charge(accepted, address)
        if queue.is_pacing and rules.is_admitted(address):
            queue.add(accepted, address, partial(self._admit_later, address=address))
        else:
            queue.pause(self._admit_and_charge(accepted, address))
        return 0

    def _admit_later(self, accepted: PlainSocket, address: str) -> int:
        if self.socket.fileno() < 0:  # the listener is closed
            accepted.close()
            return 0
        began_s = perf_counter()
        delay_ms = self._admit_and_charge(accepted, address)
        self.group.turns.charge(began_s, perf_counter())
        return delay_ms

    def _admit_and_charge(self, accepted: PlainSocket, address: str) -> int:
        cause = self._admit_or_refuse(accepted, address)
        return 0 if cause in admission.UNPACED else self.owner.policy.delay_ms(self.group)

    def _admit_or_refuse(self, accepted: PlainSocket, address: str) -> str | None:
        """Registers or refuses a connection. Returns the cause of a refusal, else None.

        A client behind a proxy is known only later, and checked then (`connection_handshake`).
        """
        owner, is_proxy = self.owner, self.rules.is_proxy(address)
        cause = None if is_proxy else owner.policy.client_refusal(self, address)
        if cause is None and not is_proxy and self.throttle(accepted, address):
            return admission.ADDRESS_RATE
        cause = cause or owner.policy.capacity_refusal(self)
        if cause is not None:
            accepted.close()
            owner.policy.report_refusal(self, address, cause)
            return cause
        try:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError:
            accepted.close()
            return None
        owner.counters.accepted += 1
        if is_proxy or self.rules.tls is not None:
            handshake = ConnectionHandshake(accepted, address, self, owner.buffers, owner.loop, owner.handshakes)
            self._register(handshake)
            handshake.start(is_proxy)
        else:
            self.enter(accepted, address)
        return None

    def _register(self, connection: OwnedConnection) -> None:
        self.owner.count += 1
        self.connections[connection] = None
        self.group.on_entered(connection.peer_host)

    def _pause(self, delay_s: float) -> None:
        self.owner.loop.remove_reader(self.socket.fileno())
        self.owner.loop.call_later(delay_s, self.start_accepting)

    def start_accepting(self) -> None:
        if self.socket.fileno() >= 0:
            self.owner.loop.add_reader(self.socket.fileno(), self.on_acceptable)

    def refuses(self, client_host: str) -> bool:
        cause = self.owner.policy.client_refusal(self, client_host)
        if cause is not None:
            self.owner.policy.report_refusal(self, client_host, cause)
        return cause is not None

    def throttle(self, accepted: PlainSocket, client_host: str) -> bool:
        return self.owner.policy.throttle(self, accepted, client_host)

    def on_client(self, connection: OwnedConnection, client_host: str) -> None:
        self.group.addresses.remove(connection.peer_host)
        connection.peer_host = client_host
        self.group.addresses.add(client_host)

    def enter(self, accepted: Accepted, client_host: str, make_session: MakeSession | None = None) -> None:
        """Starts a connection after its handshake. `make_session` is set if the client is already identified."""
        owner = self.owner
        if isinstance(accepted, TlsStream):
            connection = Connection(accepted.as_socket, client_host, self, owner.buffers, accepted.as_loop)
        else:
            connection = Connection(accepted, client_host, self, owner.buffers, owner.loop)
        owner.entered_count += 1
        connection.number, connection.started_s = owner.entered_count, owner.loop.time()
        self._register(connection)
        connection.start((make_session or self.make_session)(connection))

    def close_connection(self, connection: OwnedConnection, reason: str) -> None:
        self.owner.close_connection(connection, reason)

    def on_closed(self, connection: OwnedConnection, reason: str) -> None:
        if connection in self.connections:
            del self.connections[connection]
            self.group.addresses.remove(connection.peer_host)
            self.owner.count -= 1

    def on_malformed(self, peer_host: str, error: Exception) -> None:
        self.owner.counters.malformed += 1
        self.owner.reports.log_malformed(self.name, peer_host, error)

    def on_handshake_failed(self, peer_host: str, error: Exception) -> None:
        self.owner.reports.log_handshake_failure(self.name, peer_host, error)
        if self.rules.on_handshake_failure is not None:
            self.rules.on_handshake_failure(peer_host, error)

    def on_fault(self, peer_host: str, error: Exception) -> None:
        self.owner.counters.faults += 1
        self.owner.reports.log_fault(self.name, peer_host, error)
