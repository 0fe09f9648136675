"""Decides which connections are accepted and at what rate: limits by address, by instance, and of the broker (QUO-50 to
QUO-52).

`port` accepts connections and consults the policy; `listener` keeps them. Causes of refusals are in `admission`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from socket import socket
from typing import Final, Protocol

from brokers.engine.network import admission, closing
from brokers.engine.network.admission import AddressLimit, CreationPace, Limits
from brokers.engine.network.entry_queue import EntryQueue, QueuedCount
from brokers.engine.network.interfaces import OwnedConnection
from brokers.engine.network.listener_group import ListenerGroup, TenantGroups
from brokers.engine.network.listener_rules import ListenerRules
from brokers.engine.network.reports import Counters, NetworkReports

# Maximum number of throttled connections of one instance; further ones are closed at once. Each takes a file descriptor
# in the broker and at its peer.
THROTTLED_PER_INSTANCE_MAX: Final = 100
# Returns the limit of new connections, by the name of a group and a client's address; None without a limit.
AddressRateLimit = Callable[[str, str], AddressLimit | None]


class OnConnectionsHeldBack(Protocol):
    """Called when a connection was refused or delayed; `listener` is the name of its group.

    With a `cause` the connection was refused, or left unread for `delay_ms` (cause `ADDRESS_RATE`). Without a cause the
    group accepts no connection for `delay_ms`.
    """

    def __call__(self, listener: str, cause: str | None, delay_ms: int) -> object: ...


class ThrottledConnections:
    """Sockets of connections that exceeded the rate of their address, by the name of their group: open and unread until
    their delay is over, then closed (QUO-52). No listener counts them.

    A client that opens connections one by one thus waits for each, instead of retrying at once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers_by_group: dict[str, dict[socket, asyncio.TimerHandle]] = {}
        self.count = 0

    def add(self, group: str, accepted: socket, delay_ms: int) -> None:
        timer_by_socket = self._timers_by_group.setdefault(group, {})
        if len(timer_by_socket) >= THROTTLED_PER_INSTANCE_MAX:
            accepted.close()
            return
        timer_by_socket[accepted] = self._loop.call_later(delay_ms / 1_000, self._close, group, accepted)
        self.count += 1

    def _close(self, group: str, accepted: socket) -> None:
        timer_by_socket = self._timers_by_group[group]
        timer_by_socket.pop(accepted).cancel()
        if not timer_by_socket:
            del self._timers_by_group[group]
        self.count -= 1
        accepted.close()

    def close_one(self) -> None:
        """Closes a connection of the group with most before its delay is over, because its descriptor is needed."""
        group = max(self._timers_by_group, key=lambda name: len(self._timers_by_group[name]))
        self._close(group, next(iter(self._timers_by_group[group])))

    def close_all(self, group: str) -> None:
        for accepted in tuple(self._timers_by_group.get(group, ())):
            self._close(group, accepted)


class OpenConnections(Protocol):
    """All connections of a broker; implemented by `listener.Listeners`."""

    count: int

    def tenants(self) -> Iterable[TenantGroups]: ...

    def close_connection(self, connection: OwnedConnection, reason: str) -> None: ...


class Port(Protocol):
    """A bound port, as the policy sees it; implemented by `port.Listener`."""

    name: str
    group: ListenerGroup
    rules: ListenerRules
    connections: dict[OwnedConnection, None]


class AcceptPolicy:
    """Limits of all ports of a broker. `connections_per_s` returns the rate limit of an address of an instance, and
    `on_held_back` is called for each connection that was refused or delayed; the assembly sets both.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        open_connections: OpenConnections,
        counters: Counters,
        reports: NetworkReports,
    ) -> None:
        self.connections_per_s: AddressRateLimit = lambda _group, _address: None
        self.on_held_back: OnConnectionsHeldBack = lambda listener, cause, delay_ms: None
        self.throttled = ThrottledConnections(loop)
        self._loop = loop
        self._limits = limits
        self._open_connections = open_connections
        self._counters = counters
        self._reports = reports
        self._pace = CreationPace(limits.creations_per_s_max)
        self._queued = QueuedCount()

    def create_queue(self, group: ListenerGroup) -> EntryQueue:
        """Returns a queue for a new group, for connections that arrive faster than the group may accept them."""
        return EntryQueue(self._loop, partial(self._exceeded_limit, group), partial(self._drop, group), self._queued)

    # -- by address ---------------------------------------------------------------------------------------------------

    def client_refusal(self, port: Port, address: str) -> str | None:
        """Returns the cause for refusing a client; None if it is accepted."""
        if not port.rules.is_admitted(address):
            return admission.ALLOW_LIST
        group = port.group
        if not group.is_protected and group.addresses.count(address) >= self._limits.connections_per_address_max:
            return admission.ADDRESS
        return None

    def throttle(self, port: Port, accepted: socket, address: str) -> bool:
        """Takes over a connection whose address exceeds its rate, to be closed after its delay; then returns True."""
        group = port.group
        limit = None if group.is_protected else self.connections_per_s(group.name, address)
        if limit is None:
            return False
        delay_ms = group.address_rates.charge(address, limit, self._now_ms())
        if not delay_ms:
            return False
        if self._open_connections.count + self.throttled.count < self._limits.connections_max:
            self.throttled.add(group.name, accepted, delay_ms)
        else:
            accepted.close()
        self._counters.count_refused(admission.ADDRESS_RATE)
        self._reports.log_refused(port.name, address, admission.ADDRESS_RATE, len(port.connections))
        self.on_held_back(group.name, admission.ADDRESS_RATE, delay_ms)
        return True

    # -- by route, instance and broker --------------------------------------------------------------------------------

    def capacity_refusal(self, port: Port) -> str | None:
        """Returns the cause of refusing one more connection for lack of room; None if there is room."""
        group, rules = port.group, port.rules
        if rules.connections_max is not None and len(port.connections) >= rules.connections_max:
            return admission.ROUTE
        if group.count >= group.connections_max:
            return admission.INSTANCE
        return None if group.is_protected or self._has_room(group) else admission.BROKER

    def _has_room(self, group: ListenerGroup) -> bool:
        """True if the broker has room for one more connection of the group.

        At the broker's limit, an idle connection of the tenant with most connections is closed, so that no tenant can
        lock the others out by opening connections (QUO-50).
        """
        if self._open_connections.count + self.throttled.count < self._limits.connections_max:
            return True
        if self.throttled.count:
            self.throttled.close_one()
            return True
        largest = max(self._open_connections.tenants(), key=lambda tenant: tenant.count)
        largest_group = max(largest.groups, key=lambda candidate: candidate.count)
        assert group.tenant is not None, "a protected group always has room"
        surplus = largest_group.count - group.count if largest is group.tenant else largest.count - group.tenant.count
        if surplus <= 1:
            return False
        self._open_connections.close_connection(largest_group.find_longest_idle(), closing.EVICTED)
        return True

    def _exceeded_limit(self, group: ListenerGroup) -> str | None:
        """Returns the cause for refusing a connection in the queue; None if there are places for all of them."""
        if group.count + group.entry_queue.count > group.connections_max:
            return admission.INSTANCE
        used = self._open_connections.count + self.throttled.count + self._queued.count
        return None if used <= self._limits.connections_max else admission.BROKER

    def _drop(self, group: ListenerGroup, accepted: socket, address: str, cause: str) -> None:
        accepted.close()
        self._report_refusal(group, group.name, address, cause, group.count)

    # -- by rate ------------------------------------------------------------------------------------------------------

    def delay_ms(self, group: ListenerGroup) -> int:
        """Charges a connection to the rate limits; returns the time in ms without another of the group (QUO-51)."""
        if group.tenant is None:
            return 0
        now_ms = self._now_ms()
        delay_ms = max(pace.charge(now_ms) for pace in (group.pace, group.tenant.pace, self._pace))
        if delay_ms:
            self._counters.paced += 1
            self.on_held_back(group.name, None, delay_ms)
        return delay_ms

    # -- reports ------------------------------------------------------------------------------------------------------

    def report_refusal(self, port: Port, address: str, cause: str) -> None:
        self._report_refusal(port.group, port.name, address, cause, len(port.connections))

    def _report_refusal(self, group: ListenerGroup, name: str, address: str, cause: str, count: int) -> None:
        self._counters.count_refused(cause)
        self._reports.log_refused(name, address, cause, count)
        if cause != admission.ALLOW_LIST:  # strangers must not slow down the instance's clients
            self.on_held_back(group.name, cause, 0)

    def _now_ms(self) -> int:
        return round(self._loop.time() * 1000)
