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
from brokers.engine.network.buffers import UnreadBytes
from brokers.engine.network.counters import Counters
from brokers.engine.network.fair_turns import InstanceTurns
from brokers.engine.network.interfaces import OwnedConnection
from brokers.engine.network.listener_group import ListenerGroup
from brokers.engine.network.listener_rules import OPEN_TO_ALL, ListenerRules, MakeSession
from brokers.engine.network.reports import NetworkReports
from brokers.engine.network.tls_stream import TlsStream
from brokers.engine.network.unsent import UnsentBytes

# Maximum number accepted on one listener in one turn: some milliseconds of the event loop.
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
    count: int

    def admit(self, listener: Listener, accepted: PlainSocket, address: str) -> str | None:
        """Returns the cause if the connection was refused, else None."""

    def enter(
        self, listener: Listener, accepted: Accepted, address: str, make_session: MakeSession | None = None
    ) -> None: ...

    def end(self, connection: OwnedConnection, reason: str) -> None: ...


@dataclass(slots=True, eq=False)
class Listener:
    """One bound port: a route of an instance. `group` has what the instance's routes share."""

    name: str
    host: str
    port: int
    make_session: MakeSession
    owner: PortOwner
    socket: socket.socket
    group: ListenerGroup
    rules: ListenerRules = OPEN_TO_ALL
    # A dict used as a set, so that iteration can resume anywhere; the order has no meaning.
    connections: dict[OwnedConnection, None] = field(default_factory=dict)

    @property
    def readers(self) -> Executor:
        return self.owner.readers

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
        if turns.must_wait(began_s):
            self.owner.loop.remove_reader(self.socket.fileno())
            turns.join(self)
            return
        self._accept_some()
        turns.used(began_s, perf_counter())

    def on_turn(self) -> None:
        """Accepts in the turn of the instance (`fair_turns.Queuing`)."""
        if self.socket.fileno() >= 0 and self._accept_some():
            self.go_on()

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
                self.owner.reports.accept_failed(self.name, error)
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
        """Returns the time in ms for which no other connection is accepted. Only connections from a proxy, whose
        clients are still unknown, delay others in the kernel; all others are accepted, and queue by address.
        """
        rules, queue = self.rules, self.group.entry_queue
        if self.group.is_protected or rules.is_proxy(address):
            return self._admit(accepted, address)
        if queue.is_pacing and rules.is_admitted(address):
            queue.add(accepted, address, partial(self._admit_later, address=address))
        else:
            queue.pause(self._admit(accepted, address))
        return 0

    def _admit_later(self, accepted: PlainSocket, address: str) -> int:
        if self.socket.fileno() < 0:  # the listener is closed
            accepted.close()
            return 0
        began_s = perf_counter()
        delay_ms = self._admit(accepted, address)
        self.group.turns.used(began_s, perf_counter())
        return delay_ms

    def _admit(self, accepted: PlainSocket, address: str) -> int:
        cause = self.owner.admit(self, accepted, address)
        return 0 if cause in admission.UNPACED else self.owner.policy.delay_ms(self.group)

    def _pause(self, delay_s: float) -> None:
        self.owner.loop.remove_reader(self.socket.fileno())
        self.owner.loop.call_later(delay_s, self.go_on)

    def go_on(self) -> None:
        if self.socket.fileno() >= 0:
            self.owner.loop.add_reader(self.socket.fileno(), self.on_acceptable)

    def refuses(self, client_host: str) -> bool:
        cause = self.owner.policy.refusal_of_client(self, client_host)
        if cause is not None:
            self.owner.policy.note_refusal(self, client_host, cause)
        return cause is not None

    def throttle(self, accepted: PlainSocket, client_host: str) -> bool:
        return self.owner.policy.throttle(self, accepted, client_host)

    def enter(self, accepted: Accepted, client_host: str, make_session: MakeSession | None = None) -> None:
        self.owner.enter(self, accepted, client_host, make_session)

    def end(self, connection: OwnedConnection, reason: str) -> None:
        self.owner.end(connection, reason)

    def on_closed(self, connection: OwnedConnection, reason: str) -> None:
        if connection in self.connections:
            del self.connections[connection]
            self.group.addresses.remove(connection.peer_host)
            self.owner.count -= 1

    def on_malformed(self, peer_host: str, error: Exception) -> None:
        self.owner.counters.malformed += 1
        self.owner.reports.malformed(self.name, peer_host, error)

    def on_handshake_failed(self, peer_host: str, error: Exception) -> None:
        self.owner.reports.handshake_failed(self.name, peer_host, error)
        if self.rules.note_failure is not None:
            self.rules.note_failure(peer_host, error)

    def on_fault(self, peer_host: str, error: Exception) -> None:
        self.owner.counters.faults += 1
        self.owner.reports.fault(self.name, peer_host, error)
