"""Requests of this broker to others, over one connection to each broker's internal listener.

Requests are pipelined and answered in order. A connection is established on demand; after a failure, requests are
refused for a short time instead of waiting for a broker that may be gone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from brokers.engine.cluster.image import BrokerInfo
from brokers.engine.protocol.codec import decode_response, encode_request
from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.headers import decode_response_header, encode_request_frame
from brokers.engine.replication.interfaces import CallLater, Connect, Link, Timer

# Longer than the time for which a peer waits for its followers.
REQUEST_TIMEOUT_MS: Final = 35_000
BACK_OFF_MS_MIN: Final = 50
BACK_OFF_MS_MAX: Final = 1_000
# Maximum number of unanswered requests to one broker; further ones are refused.
REQUESTS_MAX: Final = 1_000
_CORRELATION_ID_MAX: Final = 2**31 - 1


class PeerUnavailable(Exception):
    """The broker is down, does not respond or has closed the connection; it may have executed the request."""


class Peers:
    """Connections to brokers by id; everything runs in the event loop's thread.

    `client_id` is the name that the other brokers log. Callers that must not wait for each other use separate `Peers`.
    """

    def __init__(
        self,
        *,
        connect: Connect,
        call_later: CallLater,
        monotonic_ms: Callable[[], int],
        client_id: str,
    ) -> None:
        self.connect = connect
        self.call_later = call_later
        self.monotonic_ms = monotonic_ms
        self.client_id = client_id
        self._brokers: Mapping[int, BrokerInfo] = {}
        self._peers: dict[int, _Peer] = {}

    def on_brokers(self, brokers: Mapping[int, BrokerInfo]) -> None:
        """Sets the live brokers of the image; requests to brokers that are gone fail."""
        previous_brokers, self._brokers = self._brokers, brokers
        for broker_id, peer in tuple(self._peers.items()):
            if brokers.get(broker_id) != previous_brokers.get(broker_id) and not _is_same(
                brokers.get(broker_id), peer.broker
            ):
                self._peers.pop(broker_id).close("the broker left the cluster or has re-registered")

    async def request(
        self, broker_id: int, api_key: int, version: int, message: Any, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> Any:
        """Returns the response to `message`. Raises PeerUnavailable."""
        peer = self._peers.get(broker_id)
        if peer is None:
            broker = self._brokers.get(broker_id)
            if broker is None:
                raise PeerUnavailable(f"broker {broker_id} is not in the cluster")
            peer = self._peers[broker_id] = _Peer(broker, self)
        return await peer.request(api_key, version, message, timeout_ms)

    def trim(self) -> None:
        """Frees unused memory of the connections; called periodically."""
        for peer in self._peers.values():
            peer.trim()

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close("this broker is stopping")
        self._peers.clear()


def _is_same(current: BrokerInfo | None, known: BrokerInfo) -> bool:
    """True if both are the same incarnation at the same address, even if the broker is stopping."""
    return current is not None and (current.host, current.port, current.epoch) == (known.host, known.port, known.epoch)


class _Request:
    """A pending request; `deadline` fires unless it is answered before."""

    __slots__ = ("api_key", "correlation_id", "deadline", "frame", "response", "version")

    def __init__(self, api_key: int, version: int, correlation_id: int, frame: bytes) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.frame = frame
        self.response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.deadline: Timer | None = None

    def complete(self, response: Any) -> None:
        self._end()
        if not self.response.done():
            self.response.set_result(response)

    def fail(self, reason: str) -> None:
        self._end()
        if not self.response.done():
            self.response.set_exception(PeerUnavailable(reason))

    def _end(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None


class _Peer:
    """Link owner (`interfaces.LinkOwner`) of the connection to `broker`, if there is one."""

    def __init__(self, broker: BrokerInfo, peers: Peers) -> None:
        self.broker = broker
        self._peers = peers
        self._link: Link | None = None
        self._is_up = False
        self._requests: deque[_Request] = deque()
        self._correlation_id = 0
        self._back_off_ms = BACK_OFF_MS_MIN
        self._refusing_until_ms = 0
        self._reason = ""

    def request(self, api_key: int, version: int, message: Any, timeout_ms: int) -> asyncio.Future[Any]:
        """Sends a request, or queues it until the connection is up. Raises PeerUnavailable if it was not sent."""
        if self._link is None and self._peers.monotonic_ms() < self._refusing_until_ms:
            raise PeerUnavailable(self._reason)
        if len(self._requests) >= REQUESTS_MAX:
            raise PeerUnavailable(f"{REQUESTS_MAX} requests wait for broker {self.broker.id}")
        self._correlation_id = correlation_id = self._correlation_id % _CORRELATION_ID_MAX + 1
        body = encode_request(api_key, version, message)
        frame = encode_request_frame(api_key, version, correlation_id, self._peers.client_id, body)
        request = _Request(api_key, version, correlation_id, frame)
        self._requests.append(request)
        request.deadline = self._peers.call_later(timeout_ms, self._on_timeout)
        if self._link is None:
            self._link = self._peers.connect(self.broker, self)
        elif self._is_up:
            self._link.send(frame)
        return request.response

    def on_up(self) -> None:
        assert self._link is not None
        self._is_up = True
        self._back_off_ms = BACK_OFF_MS_MIN
        for request in self._requests:
            self._link.send(request.frame)

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        """Completes the oldest request."""
        try:
            if not self._requests:
                raise MalformedRequest("a response without a request")
            request = self._requests[0]
            correlation_id, body = decode_response_header(request.api_key, request.version, buffer, start, end)
            if correlation_id != request.correlation_id:
                raise MalformedRequest(f"response {correlation_id} to request {request.correlation_id}")
            response = decode_response(request.api_key, request.version, buffer, body, end)
        except MalformedRequest as fault:
            self._disconnect(str(fault))
            return
        self._requests.popleft()
        request.complete(response)

    def on_down(self, reason: str) -> None:
        self._link = None
        self._fail_requests(reason)

    def _on_timeout(self) -> None:
        """Closes the connection after a timeout; responses come in order, so later requests would wait too."""
        self._disconnect(f"broker {self.broker.id} does not answer")

    def _disconnect(self, reason: str) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()
        self._fail_requests(reason)

    def _fail_requests(self, reason: str) -> None:
        self._is_up = False
        self._reason = reason
        self._refusing_until_ms = self._peers.monotonic_ms() + self._back_off_ms
        self._back_off_ms = min(2 * self._back_off_ms, BACK_OFF_MS_MAX)
        failed_requests, self._requests = self._requests, deque()
        for request in failed_requests:
            request.fail(reason)

    def trim(self) -> None:
        if self._link is not None:
            self._link.trim()

    def close(self, reason: str) -> None:
        self._disconnect(reason)
