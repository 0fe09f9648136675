"""Authenticated connection to a broker's internal listener with one request at a time."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from typing import Any

from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from brokers.contract.process_identity import ProcessIdentity
from brokers.dataplane.unresponsive_brokers import unresponsive_brokers
from brokers.infra import internal_tls
from brokers.limits import (
    ADMIN_CLIENT_ANSWER_BYTES_MAX,
    ADMIN_CLIENT_ANSWER_TIMEOUT_S,
    ADMIN_CLIENT_CONNECT_TIMEOUT_S,
    ADMIN_CLIENT_HELLO_TIMEOUT_S,
)

CLIENT_ID = "penstock-control"
MECHANISM = "PLAIN"
MECHANISM_BY_CERTIFICATE = "EXTERNAL"
SASL_HANDSHAKE_VERSION = 1
SASL_AUTHENTICATE_VERSION = 2

_SIZE = struct.Struct(">i")


class LinkDown(Exception):
    """The broker does not answer, or not as expected. Another broker may.

    `was_sent` means that the request was sent completely, so that the broker may have executed it.
    """

    was_sent = False


class LinkTimeout(LinkDown):
    """No response in time: repeating the request to the same broker would take as long."""


class Link:
    """Connection that must not be used by two threads at once (`Links` ensures that). It never stores the password.

    With `peer` the broker must present the certificate of this identity, and accepts this process by its certificate
    instead of a password.
    """

    def __init__(
        self,
        address: tuple[str, int],
        username: str,
        password: str,
        peer: ProcessIdentity | None = None,
        client_id: str = CLIENT_ID,
    ) -> None:
        self.address = address
        self._client_id = client_id
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection(address, ADMIN_CLIENT_CONNECT_TIMEOUT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if peer is not None:
                self._socket = internal_tls.wrap_socket(self._socket, peer)
        except OSError as error:
            if isinstance(error, TimeoutError):
                unresponsive_brokers.mark_unresponsive(address)
            raise LinkDown(f"no connection to {address[0]}:{address[1]}") from error
        try:
            if peer is None:
                self._authenticate(username, MECHANISM, f"\0{username}\0{password}".encode())
            else:
                self._authenticate(username, MECHANISM_BY_CERTIFICATE, username.encode())
        except LinkDown as error:
            self.close()
            error.was_sent = False  # the handshake changes nothing
            raise
        except BaseException:
            self.close()
            raise

    @property
    def is_alive(self) -> bool:
        """True if the peer has neither closed nor broken an idle link, as far as known."""
        try:
            self._socket.settimeout(0)
            self._socket.recv(1)  # a byte of an unrequested response is not needed
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False  # end of stream, or an unrequested response

    def call(self, request: Any, *, timeout_s: float = ADMIN_CLIENT_ANSWER_TIMEOUT_S) -> Any:
        """Sends one request (with its version) and reads the response. Raises `LinkDown`; the link is then closed."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        request.with_header(correlation_id=self._correlation_id, client_id=self._client_id)
        response_class = ResponseClassRegistry.get_response_class(request.header)
        was_sent = False
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(request.encode(header=True, framed=True))
            was_sent = True
            size = _SIZE.unpack(self._read_exactly(_SIZE.size))[0]
            if not 0 < size <= ADMIN_CLIENT_ANSWER_BYTES_MAX:
                raise LinkDown(f"an answer of {size} bytes")
            response = response_class.decode(self._read_exactly(size), header=True)
            if response.header.correlation_id != self._correlation_id:
                raise LinkDown("an answer to another request")
        except (OSError, ValueError, struct.error) as error:
            self.close()
            error_class = LinkTimeout if isinstance(error, TimeoutError) else LinkDown
            if error_class is LinkTimeout:
                unresponsive_brokers.mark_unresponsive(self.address)
            failure = error_class(f"{self.address[0]}:{self.address[1]} does not answer: {type(error).__name__}")
            failure.was_sent = was_sent
            raise failure from error
        except LinkDown as error:
            self.close()
            error.was_sent = was_sent
            raise
        unresponsive_brokers.mark_responsive(self.address)
        return response

    def close(self) -> None:
        self._socket.close()

    def _authenticate(self, username: str, mechanism: str, token: bytes) -> None:
        handshake = self.call(
            SaslHandshakeRequest(mechanism=mechanism, version=SASL_HANDSHAKE_VERSION),
            timeout_s=ADMIN_CLIENT_HELLO_TIMEOUT_S,
        )
        response = handshake
        if not handshake.error_code:
            response = self.call(
                SaslAuthenticateRequest(auth_bytes=token, version=SASL_AUTHENTICATE_VERSION),
                timeout_s=ADMIN_CLIENT_HELLO_TIMEOUT_S,
            )
        if response.error_code:
            raise LinkDown(f"authentication as {username} was refused with error {response.error_code}")

    def _read_exactly(self, size: int) -> bytes:
        parts, missing_bytes = [], size
        while missing_bytes:
            part = self._receive(min(missing_bytes, 1 << 20))
            if not part:
                raise LinkDown("the broker closed the connection")
            parts.append(part)
            missing_bytes -= len(part)
        return b"".join(parts)

    def _receive(self, bytes_max: int) -> bytes:
        """Returns the next bytes, none at the end of the stream. Raises OSError."""
        return self._socket.recv(bytes_max)


class Links:
    """Idle links by key, removed while in use. The oldest are closed beyond `idle_max`."""

    def __init__(self, idle_max: int) -> None:
        self._idle_max = idle_max
        self._idle: dict[Any, list[Link]] = {}
        self._order: list[tuple[Any, Link]] = []
        self._lock = threading.Lock()

    def acquire(self, key: Any) -> Link | None:
        """Removes and returns an idle link; None if there is none."""
        with self._lock:
            idle = self._idle.get(key)
            if not idle:
                return None
            link = idle.pop()
            self._order.remove((key, link))
            return link

    def release(self, key: Any, link: Link) -> None:
        """Returns a working link to the pool."""
        with self._lock:
            self._idle.setdefault(key, []).append(link)
            self._order.append((key, link))
            while len(self._order) > self._idle_max:
                oldest_key, oldest = self._order.pop(0)
                self._idle[oldest_key].remove(oldest)
                oldest.close()

    def close(self) -> None:
        """Closes all idle links."""
        with self._lock:
            for _, link in self._order:
                link.close()
            self._order.clear()
            self._idle.clear()
