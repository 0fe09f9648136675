"""Listening sockets that open and close at run time (CKA-3), and their connections.

`accept_policy` decides which connections are accepted, `closing` which are kept (WIRE-11).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from itertools import islice
from typing import Final

from brokers.engine.network import closing
from brokers.engine.network.accept_policy import AcceptPolicy
from brokers.engine.network.admission import Limits
from brokers.engine.network.buffers import FrameBuffers, UnreadBytes
from brokers.engine.network.closing import ConnectionDeadlines, MemoryRelief, sweep
from brokers.engine.network.handshakes import Handshakes
from brokers.engine.network.interfaces import OwnedConnection
from brokers.engine.network.listener_group import GroupSpec, ListenerGroup, TenantGroups
from brokers.engine.network.listener_rules import (
    OPEN_TO_ALL,
    ListenerRules,
    MakeSession,
)
from brokers.engine.network.port import Listener
from brokers.engine.network.reports import Counters, NetworkReports
from brokers.engine.scheduling.fair_turns import FairTurns
from brokers.engine.scheduling.time_slice import yield_to_others

# Maximum number of connections of one port that wait in the kernel to be accepted.
BACKLOG: Final = 1_024
# Number of connections closed in one turn of the event loop.
CLOSED_PER_TURN_MAX: Final = 100


def listening_socket(host: str, port: int, backlog: int) -> socket.socket:
    """Returns a socket that listens on a port. Raises OSError if the port is in use or not permitted."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(backlog)
    except OSError:
        bound.close()
        raise
    return bound


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
        self.buffers = buffers or FrameBuffers(call_soon=loop.call_soon)
        self.counters = Counters()
        self.count = 0
        self.entered_count = 0
        self.fair_turns = FairTurns(loop.call_soon)
        self.policy = AcceptPolicy(loop, limits, self, self.counters, reports)
        self._unread = UnreadBytes()
        self._deadlines = ConnectionDeadlines(limits.idle_ms_max, limits.sweep_ms)
        self._listener_by_name: dict[str, Listener] = {}
        self._group_by_name: dict[str, ListenerGroup] = {}
        self._tenant_by_id: dict[str, TenantGroups] = {}
        self.handshakes = Handshakes(loop)
        self.buffers.on_wait = MemoryRelief(self, loop).watch

    def __iter__(self) -> Iterator[Listener]:
        return iter(self._listener_by_name.values())

    @property
    def unread_bytes(self) -> int:
        """Returns the bytes received but not processed, of all connections."""
        return self._unread.count + self.buffers.rented_bytes

    @property
    def unsent_bytes(self) -> int:
        """Returns the bytes of responses that wait for their clients, of all connections."""
        return sum(group.unsent.count for group in self._group_by_name.values())

    def groups(self) -> Iterator[ListenerGroup]:
        return iter(self._group_by_name.values())

    def tenants(self) -> Iterable[TenantGroups]:
        return self._tenant_by_id.values()

    def group_of(self, name: str) -> ListenerGroup | None:
        """Returns the listeners of an instance; None if it has none here."""
        return self._group_by_name.get(name)

    def get(self, name: str) -> Listener | None:
        return self._listener_by_name.get(name)

    def call_soon(self, callback: Callable[[], object]) -> object:
        return self.loop.call_soon(callback)

    def bind(
        self,
        name: str,
        host: str,
        port: int,
        make_session: MakeSession,
        *,
        group: GroupSpec | None = None,
        rules: ListenerRules = OPEN_TO_ALL,
    ) -> Listener:
        """Binds the port, which accepts connections after `Listener.start_accepting`. Raises OSError if the port is in
        use or not permitted.

        Without `group` the listener is alone in a group of its own name.
        """
        assert name not in self._listener_by_name, f"the listener {name} is open already"
        bound = listening_socket(host, port, BACKLOG)
        listener = Listener(
            name=name,
            host=host,
            port=port or bound.getsockname()[1],
            make_session=make_session,
            owner=self,
            socket=bound,
            group=self._group(group or GroupSpec(name)),
            rules=rules,
        )
        listener.group.listeners.append(listener)
        self._listener_by_name[name] = listener
        return listener

    def _group(self, spec: GroupSpec) -> ListenerGroup:
        group = self._group_by_name.get(spec.name)
        if group is None:
            turns = None if spec.is_protected else self.fair_turns
            tenant = None if spec.is_protected else self._enter_tenant(spec.tenant or spec.name)
            group = ListenerGroup(spec.name, self, self.limits, self._unread, turns, spec.connections_max, tenant)
            self.buffers.assign(group, tenant)
            group.entry_queue = self.policy.create_queue(group)
            self._group_by_name[spec.name] = group
        return group

    def _enter_tenant(self, tenant_id: str) -> TenantGroups:
        """Returns the tenant of a new instance; call `_exit_tenant` when the instance is removed from it."""
        turns = self.fair_turns.register_instance(tenant_id)
        tenant = self._tenant_by_id.get(tenant_id)
        if tenant is None:
            tenant = self._tenant_by_id[tenant_id] = TenantGroups(turns, self, self.limits, self._unread)
        return tenant

    def _exit_tenant(self, tenant: TenantGroups) -> None:
        self.fair_turns.exit(tenant.turns)
        if not tenant.groups:
            del self._tenant_by_id[tenant.turns.key]

    def set_tenant(self, instance_id: str, tenant_id: str) -> None:
        """Moves an instance with open ports to another tenant."""
        group = self._group_by_name.get(instance_id)
        if group is not None and group.tenant is not None and group.tenant.turns.key != tenant_id:
            old_tenant, new_tenant = group.tenant, self._enter_tenant(tenant_id)
            group.move_to(new_tenant)
            self.buffers.assign(group, new_tenant)
            self._exit_tenant(old_tenant)

    def set_weights(self, instance_id: str, weight: float, tenant: str, tenant_weight: float) -> None:
        """Sets the weights of an instance and its tenant for their shares of a contended event loop."""
        group = self._group_by_name.get(instance_id)
        if group is not None:
            self.fair_turns.set_weights(group.turns.loop_queue, weight, tenant_weight)
        else:
            self.fair_turns.set_tenant_weight(tenant, tenant_weight)

    def charge(self, instance_id: str, began_s: float, now_s: float) -> None:
        """Charges work that was done for an instance but for none of its connections."""
        group = self._group_by_name.get(instance_id)
        if group is not None:
            group.turns.charge(began_s, now_s)

    def loop_used_ms(self, instance_id: str) -> int:
        """Returns the loop time in ms charged to the instance since its ports were opened."""
        group = self._group_by_name.get(instance_id)
        return 0 if group is None else round(group.turns.loop_queue.used_s * 1_000)

    def close(self, name: str, reason: str = "the listener is closed") -> None:
        """Closes the port and all its connections (CKA-3), some in each turn of the event loop."""
        listener = self._close_port(name)
        if listener is not None:
            self._close_some(listener, reason)

    def close_all(self, reason: str) -> None:
        for name in tuple(self._listener_by_name):
            listener = self._close_port(name)
            assert listener is not None, "the name is from the table"
            for connection in tuple(listener.connections):
                connection.close(reason)
        self.handshakes.close()

    def _close_port(self, name: str) -> Listener | None:
        listener = self._listener_by_name.pop(name, None)
        if listener is not None:
            self.loop.remove_reader(listener.socket.fileno())
            listener.socket.close()
            listener.group.listeners.remove(listener)
            if not listener.group.listeners:
                del self._group_by_name[listener.group.name]
                tenant = listener.group.tenant
                if tenant is not None:
                    del tenant.groups[listener.group]
                    self.buffers.assign(listener.group, None)
                    self._exit_tenant(tenant)
                self.policy.throttled.close_all(listener.group.name)
                listener.group.entry_queue.close_all()
        return listener

    def _close_some(self, listener: Listener, reason: str) -> None:
        for connection in list(islice(listener.connections, CLOSED_PER_TURN_MAX)):
            connection.close(reason)
        if listener.connections:
            self.loop.call_soon(self._close_some, listener, reason)

    def set_rules(self, listener: Listener, rules: ListenerRules) -> None:
        """Sets new rules. Connections of clients that the new rules do not accept are closed, some in each turn."""
        listener.rules = rules
        self._close_disallowed(listener, rules, iter(tuple(listener.connections)))

    def _close_disallowed(self, listener: Listener, rules: ListenerRules, remaining: Iterator[OwnedConnection]) -> None:
        if listener.rules is not rules or rules.admits is None:
            return
        batch = list(islice(remaining, CLOSED_PER_TURN_MAX))
        for connection in batch:
            if connection in listener.connections and not rules.is_admitted(connection.peer_host):
                self.close_connection(connection, closing.NOT_ALLOWED)
        if batch:
            self.loop.call_soon(self._close_disallowed, listener, rules, remaining)

    def close_connection(self, connection: OwnedConnection, reason: str) -> None:
        """Closes the connection for one of the reasons in `closing`."""
        self.counters.count_closed(reason)
        connection.close(reason)

    def sweep(self) -> None:
        """Closes the connections that `closing` has a reason to close."""
        for _ in self._sweep():
            pass

    async def sweep_in_turns(self) -> None:
        """Does the work of `sweep`, and serves other connections in between."""
        for _ in self._sweep():
            await yield_to_others()

    def _sweep(self) -> Iterator[None]:
        return sweep(self._listener_by_name.values(), self.buffers, self._deadlines, self.close_connection)
