"""Forwarding of tenants' requests to another broker on behalf of the instance.

A request may take as long as a rebalance, and a connection answers one request at a time, so each request uses its own
connection. Idle connections are kept for a while for the next request of the same client.
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

# Maximum number of connections to all brokers. A further one replaces an idle one or is refused.
LINES_MAX: Final = 2_000
# Maximum for one instance: a rebalance has as many pending requests as a group has members, and must leave connections
# for heartbeats of other groups.
LINES_PER_INSTANCE_MAX: Final = 1_000
IDLE_MS_MAX: Final = 30_000
_CORRELATION_ID_MAX: Final = 2**31 - 1


class ForwardingUnavailable(Exception):
    """The broker is down or has closed the connection without a response; it may have executed the request."""


class ForwardedIdentity(NamedTuple):
    """Identity of a forwarded request: the instance and its client.

    The client is named as in a login (`sasl.PassedOn.authorization_id`), and is "" for the instance itself.
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
        lines_max: int = LINES_MAX,
        lines_per_instance_max: int = LINES_PER_INSTANCE_MAX,
    ) -> None:
        self._connect = connect
        self._monotonic_ms = monotonic_ms
        self._lines_max = lines_max
        self._lines_per_instance_max = lines_per_instance_max
        self._brokers: Mapping[int, BrokerInfo] = {}
        self._lines: set[_ForwardingConnection] = set()
        self._of_instance: Counter[str] = Counter()
        self._idle: dict[tuple[int, ForwardedIdentity], list[_ForwardingConnection]] = {}
        # The idle connections in the order in which they became idle.
        self._resting: dict[_ForwardingConnection, None] = {}

    def __len__(self) -> int:
        """Number of connections."""
        return len(self._lines)

    @property
    def busy(self) -> int:
        """Number of requests that wait for their response."""
        return len(self._lines) - len(self._resting)

    def on_brokers(self, brokers: Mapping[int, BrokerInfo]) -> None:
        """Sets the live brokers of the image; requests to brokers that are gone fail."""
        self._brokers = brokers
        for line in tuple(self._lines):
            if not _is_same(brokers.get(line.broker.id), line.broker):
                line.end("the broker left the cluster or has re-registered")

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
        line = self._take(broker_id, forwarded_identity)
        try:
            response = await line.request(client_id, api_key, version, message)
        except BaseException:
            line.end("the request was cancelled")
            raise
        line.idle_since_ms = self._monotonic_ms()
        if line in self._lines:
            self._idle.setdefault((broker_id, forwarded_identity), []).append(line)
            self._resting[line] = None
        return response

    def _take(self, broker_id: int, forwarded_identity: ForwardedIdentity) -> _ForwardingConnection:
        idle = self._idle.get((broker_id, forwarded_identity))
        if idle:
            line = idle[-1]
            self._wake(line)
            return line
        broker = self._brokers.get(broker_id)
        if broker is None:
            raise ForwardingUnavailable(f"broker {broker_id} is not in the cluster")
        self._make_room(forwarded_identity.instance_id)
        line = _ForwardingConnection(broker, forwarded_identity, self._forget)
        self._lines.add(line)
        self._of_instance[forwarded_identity.instance_id] += 1
        line.link = self._connect(broker, line, forwarded_identity)
        return line

    def _make_room(self, instance_id: str) -> None:
        """Closes the longest idle connection if a limit is reached. Raises ForwardingUnavailable if none is idle."""
        if self._of_instance[instance_id] >= self._lines_per_instance_max:
            result = next((line for line in self._resting if line.forwarded_identity.instance_id == instance_id), None)
        elif len(self._lines) >= self._lines_max:
            result = next(iter(self._resting), None)
        else:
            return
        if result is None:
            raise ForwardingUnavailable("too many forwarded requests")
        result.end("replaced by another connection")

    def _wake(self, line: _ForwardingConnection) -> None:
        """Marks the connection as used, if it was idle."""
        if line not in self._resting:
            return
        del self._resting[line]
        key = line.broker.id, line.forwarded_identity
        idle = self._idle[key]
        idle.remove(line)
        if not idle:
            del self._idle[key]

    def _forget(self, line: _ForwardingConnection) -> None:
        self._wake(line)
        if line in self._lines:
            self._lines.remove(line)
            self._of_instance[line.forwarded_identity.instance_id] -= 1
            if not self._of_instance[line.forwarded_identity.instance_id]:
                del self._of_instance[line.forwarded_identity.instance_id]

    def sweep(self) -> None:
        """Closes connections that were idle for too long; called periodically."""
        before_ms = self._monotonic_ms() - IDLE_MS_MAX
        for line in tuple(self._resting):
            if line.idle_since_ms <= before_ms:
                line.end("idle")
        for line in self._lines:
            if line.link is not None:
                line.link.trim()

    def close(self) -> None:
        for line in tuple(self._lines):
            line.end("this broker is stopping")


def _is_same(now: BrokerInfo | None, then: BrokerInfo) -> bool:
    """True if it is the same incarnation at the same address; a broker that is stopping still is."""
    return now is not None and (now.host, now.port, now.epoch) == (then.host, then.port, then.epoch)


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
        self._asked = (0, 0)
        self._correlation_id = 0
        self._answer: asyncio.Future[Any] | None = None

    def request(self, client_id: str, api_key: int, version: int, message: Any) -> asyncio.Future[Any]:
        assert self._answer is None, "a connection carries one call at a time"
        self._correlation_id = self._correlation_id % _CORRELATION_ID_MAX + 1
        self._asked = (api_key, version)
        body = encode_request(api_key, version, message)
        self._frame = encode_request_frame(api_key, version, self._correlation_id, client_id, body)
        self._answer = asyncio.get_running_loop().create_future()
        if self._is_up and self.link is not None:
            self.link.send(self._frame)
        return self._answer

    def on_up(self) -> None:
        self._is_up = True
        if self._answer is not None and self.link is not None:
            self.link.send(self._frame)

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        try:
            api_key, version = self._asked
            answered, body = decode_response_header(api_key, version, buffer, start, end)
            if self._answer is None or answered != self._correlation_id:
                raise MalformedRequest("a response without a request")
            response = decode_response(api_key, version, buffer, body, end)
        except MalformedRequest as fault:
            self.end(str(fault))
            return
        answer, self._answer, self._frame = self._answer, None, b""
        if not answer.done():
            answer.set_result(response)

    def on_down(self, reason: str) -> None:
        self.link = None
        self.end(reason)

    def end(self, reason: str) -> None:
        """Closes the connection and fails its request; may be called repeatedly."""
        link, self.link = self.link, None
        if link is not None:
            link.close()
        self._forget(self)
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(ForwardingUnavailable(reason))
