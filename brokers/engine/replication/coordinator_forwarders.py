"""Forwarding of tenants' requests to another broker on behalf of the instance.

A request may take as long as a rebalance, and a connection processes one request at a time, so each request uses its
own connection. Idle connections are kept for a while for the next request of the same client.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from brokers.engine.cluster.image import BrokerInfo
from brokers.engine.protocol.codec import decode_response, encode_request
from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.headers import decode_response_header, encode_request_frame
from brokers.engine.replication.interfaces import Link, LinkOwner

# Maximum number of connections to all brokers. A further connection replaces an idle one or is refused.
CONNECTIONS_MAX: Final = 2_000
# Maximum number of connections for one instance: a rebalance has as many pending requests as a group has members, and
# must leave connections for heartbeats of other groups.
CONNECTIONS_PER_INSTANCE_MAX: Final = 1_000
IDLE_MS_MAX: Final = 30_000
_CORRELATION_ID_MAX: Final = 2**31 - 1


class ForwardingUnavailable(Exception):
    """The broker is down or has closed the connection without a response; it may have executed the request."""


class ForwardedIdentity(NamedTuple):
    """Identity of a forwarded request: the instance and its client.

    The client is named as in a login (`sasl.ForwardedClient.authorization_id`), and is "" for the instance itself.
    """

    instance_id: str
    client: str


ConnectFor = Callable[[BrokerInfo, LinkOwner, ForwardedIdentity], Link]


class Forwarders:
    """Pool of forwarding connections to other brokers; everything runs in the event loop's thread."""

    def __init__(
        self,
        *,
        connect: ConnectFor,
        monotonic_ms: Callable[[], int],
        connections_max: int = CONNECTIONS_MAX,
        connections_per_instance_max: int = CONNECTIONS_PER_INSTANCE_MAX,
    ) -> None:
        self._connect = connect
        self._monotonic_ms = monotonic_ms
        self._connections_max = connections_max
        self._connections_per_instance_max = connections_per_instance_max
        self._broker_by_id: Mapping[int, BrokerInfo] = {}
        self._connections: set[_ForwardingConnection] = set()
        self._count_by_instance: Counter[str] = Counter()
        self._idle_by_target: dict[tuple[int, ForwardedIdentity], list[_ForwardingConnection]] = {}
        # The idle connections in the order in which they became idle.
        self._idle_order: dict[_ForwardingConnection, None] = {}

    def __len__(self) -> int:
        """Number of connections."""
        return len(self._connections)

    @property
    def pending_requests(self) -> int:
        """Number of requests that wait for their response."""
        return len(self._connections) - len(self._idle_order)

    def on_brokers(self, brokers: Mapping[int, BrokerInfo]) -> None:
        """Sets the live brokers of the image; requests to brokers that are gone fail."""
        self._broker_by_id = brokers
        for connection in tuple(self._connections):
            if not _is_same_incarnation(brokers.get(connection.broker.id), connection.broker):
                connection.end("the broker left the cluster or has re-registered")

    async def request(
        self,
        broker_id: int,
        forwarded_identity: ForwardedIdentity,
        client_id: str,
        api_key: int,
        version: int,
        message: Any,
    ) -> Any:
        """Forwards a request and returns the response. Raises ForwardingUnavailable.

        If the caller is cancelled, the connection is closed.
        """
        connection = self._acquire(broker_id, forwarded_identity)
        try:
            response = await connection.request(client_id, api_key, version, message)
        except BaseException:
            connection.end("the request was cancelled")
            raise
        connection.idle_since_ms = self._monotonic_ms()
        if connection in self._connections:
            self._idle_by_target.setdefault((broker_id, forwarded_identity), []).append(connection)
            self._idle_order[connection] = None
        return response

    def _acquire(self, broker_id: int, forwarded_identity: ForwardedIdentity) -> _ForwardingConnection:
        idle = self._idle_by_target.get((broker_id, forwarded_identity))
        if idle:
            connection = idle[-1]
            self._remove_from_idle(connection)
            return connection
        broker = self._broker_by_id.get(broker_id)
        if broker is None:
            raise ForwardingUnavailable(f"broker {broker_id} is not in the cluster")
        self._evict_if_full(forwarded_identity.instance_id)
        connection = _ForwardingConnection(broker, forwarded_identity, self._forget)
        self._connections.add(connection)
        self._count_by_instance[forwarded_identity.instance_id] += 1
        connection.link = self._connect(broker, connection, forwarded_identity)
        return connection

    def _evict_if_full(self, instance_id: str) -> None:
        """Closes the longest idle connection if a limit is reached. Raises ForwardingUnavailable if none is idle."""
        if self._count_by_instance[instance_id] >= self._connections_per_instance_max:
            evicted = next(
                (
                    connection
                    for connection in self._idle_order
                    if connection.forwarded_identity.instance_id == instance_id
                ),
                None,
            )
        elif len(self._connections) >= self._connections_max:
            evicted = next(iter(self._idle_order), None)
        else:
            return
        if evicted is None:
            raise ForwardingUnavailable("too many forwarded requests")
        evicted.end("replaced by another connection")

    def _remove_from_idle(self, connection: _ForwardingConnection) -> None:
        """Marks the connection as used, if it was idle."""
        if connection not in self._idle_order:
            return
        del self._idle_order[connection]
        key = connection.broker.id, connection.forwarded_identity
        idle = self._idle_by_target[key]
        idle.remove(connection)
        if not idle:
            del self._idle_by_target[key]

    def _forget(self, connection: _ForwardingConnection) -> None:
        self._remove_from_idle(connection)
        if connection in self._connections:
            self._connections.remove(connection)
            self._count_by_instance[connection.forwarded_identity.instance_id] -= 1
            if not self._count_by_instance[connection.forwarded_identity.instance_id]:
                del self._count_by_instance[connection.forwarded_identity.instance_id]

    def sweep(self) -> None:
        """Closes connections that were idle for too long; called periodically."""
        before_ms = self._monotonic_ms() - IDLE_MS_MAX
        for connection in tuple(self._idle_order):
            if connection.idle_since_ms <= before_ms:
                connection.end("idle")
        for connection in self._connections:
            if connection.link is not None:
                connection.link.trim()

    def close(self) -> None:
        for connection in tuple(self._connections):
            connection.end("this broker is stopping")


def _is_same_incarnation(current: BrokerInfo | None, known: BrokerInfo) -> bool:
    """True if both are the same incarnation at the same address, even if the broker is stopping."""
    return current is not None and (current.host, current.port, current.epoch) == (known.host, known.port, known.epoch)


class _ForwardingConnection:
    """Link owner (`interfaces.LinkOwner`) of one connection with at most one pending request."""

    def __init__(
        self, broker: BrokerInfo, forwarded_identity: ForwardedIdentity, forget: Callable[[_ForwardingConnection], None]
    ) -> None:
        self.broker = broker
        self.forwarded_identity = forwarded_identity
        self.link: Link | None = None
        self.idle_since_ms = 0
        self._forget = forget
        self._is_up = False
        self._frame = b""
        self._api_key_and_version = (0, 0)
        self._correlation_id = 0
        self._response: asyncio.Future[Any] | None = None

    def request(self, client_id: str, api_key: int, version: int, message: Any) -> asyncio.Future[Any]:
        assert self._response is None, "a connection carries one call at a time"
        self._correlation_id = self._correlation_id % _CORRELATION_ID_MAX + 1
        self._api_key_and_version = (api_key, version)
        body = encode_request(api_key, version, message)
        self._frame = encode_request_frame(api_key, version, self._correlation_id, client_id, body)
        self._response = asyncio.get_running_loop().create_future()
        if self._is_up and self.link is not None:
            self.link.send(self._frame)
        return self._response

    def on_up(self) -> None:
        self._is_up = True
        if self._response is not None and self.link is not None:
            self.link.send(self._frame)

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        try:
            api_key, version = self._api_key_and_version
            correlation_id, body = decode_response_header(api_key, version, buffer, start, end)
            if self._response is None or correlation_id != self._correlation_id:
                raise MalformedRequest("a response without a request")
            response = decode_response(api_key, version, buffer, body, end)
        except MalformedRequest as fault:
            self.end(str(fault))
            return
        response_future, self._response, self._frame = self._response, None, b""
        if not response_future.done():
            response_future.set_result(response)

    def on_down(self, reason: str) -> None:
        self.link = None
        self.end(reason)

    def end(self, reason: str) -> None:
        """Closes the connection and fails its request; may be called repeatedly."""
        link, self.link = self.link, None
        if link is not None:
            link.close()
        self._forget(self)
        response_future, self._response = self._response, None
        if response_future is not None and not response_future.done():
            response_future.set_exception(ForwardingUnavailable(reason))
