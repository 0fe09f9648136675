"""Socket connection to another broker: connects, authenticates (WIRE-18), sends frames and receives responses.

Responses are received into one buffer that the next one overwrites. The broker authenticates with its certificate, or
with the cluster's secret if the peer does not support certificates.
"""

from __future__ import annotations

import asyncio
import os
from socket import IPPROTO_TCP, MSG_NOSIGNAL, SO_KEEPALIVE, SOCK_STREAM, SOL_SOCKET, TCP_NODELAY, socket
from ssl import SSLError
from struct import Struct
from typing import Final

from brokers.contract.process import CLUSTER_USER
from brokers.engine.cluster.image import BrokerInfo
from brokers.engine.network.buffers import SHARED_BYTES, RentedBuffer
from brokers.engine.network.tls_stream import TlsStream
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import decode_response, encode_request
from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.headers import decode_response_header, encode_request_frame
from brokers.engine.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from brokers.engine.replication.interfaces import LinkOwner
from brokers.engine.replication.peer_tls import PeerTls

CONNECT_S_MAX: Final = 5.0
# Size of the buffer, sufficient for most responses; a longer one allocates a larger buffer, which is freed when unused.
BUFFER_BYTES: Final = 65_536
# Number of `trim` calls after which a large buffer is freed. A new one costs a page fault per page, so it is not freed
# between bursts.
IDLE_TRIMS: Final = 30
# Maximum size of a frame that is accepted; a leader sends up to `fetch.max.bytes`, or one larger batch.
FRAME_BYTES_MAX: Final = 134_217_728
_SIZE: Final = Struct(">i")
HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2
# Requests that authenticate this broker, in order: (api key, version).
AUTHENTICATION_REQUESTS: Final = (
    (ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION),
    (ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION),
)


class SocketLink:
    """Implementation of `interfaces.Link`; the reason given to `on_down` never includes the secret."""

    def __init__(
        self,
        broker: BrokerInfo,
        owner: LinkOwner,
        secret: str,
        loop: asyncio.AbstractEventLoop,
        user: str = CLUSTER_USER,
        forwarded_client: str = "",
        tls: PeerTls | None = None,
    ) -> None:
        """Starts connecting.

        `forwarded_client` is the client on whose behalf `user` sends requests
        (`sasl.ForwardedClient.authorization_id`). Without `tls` the secret authenticates this broker.
        """
        self._owner = owner
        self._loop = loop
        # Event loop that watches the socket; a TLS stream has its own.
        self._watching_loop = loop
        self._broker_id = broker.id
        self._tls = tls
        self._is_encrypted = False
        if tls is not None:
            self._mechanism = "EXTERNAL"
            self._login = f"{user} {forwarded_client}" if forwarded_client else user
        else:
            self._mechanism = "PLAIN"
            self._login = f"{forwarded_client}\0{user}\0{secret}"
        self._socket: socket | None = None
        self._buffer = RentedBuffer(BUFFER_BYTES)
        self._filled_bytes = 0
        self._largest_bytes = 0
        self._idle_trims = 0
        self._unsent = b""
        self._authentication_responses = 0
        self._task: asyncio.Task[None] | None = loop.create_task(self._connect(broker.host, broker.port))

    # -- connecting ----------------------------------------------------------------------------------------------------

    async def _connect(self, host: str, port: int) -> None:
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                result = await self._loop.getaddrinfo(host, port, type=SOCK_STREAM)
                family, kind, protocol, _, address = result[0]
                self._socket = socket(family, kind, protocol)
                self._socket.setblocking(False)
                await self._loop.sock_connect(self._socket, address)
                self._socket.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
                self._socket.setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1)
                await self._secure()
        except TimeoutError:
            self._fail(f"{host}:{port} does not answer")
            return
        except SSLError as error:
            self._fail(f"{host}:{port}: {error.reason or error}")
            return
        except OSError as error:
            # The event loop creates errors with its own messages; a name that cannot be resolved has no errno.
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
            self._fail(f"{host}:{port}: {reason}")
            return
        self._task = None
        assert self._socket is not None, "it is connected"
        self._watching_loop.add_reader(self._socket.fileno(), self._on_readable)
        self.send(self._encode_authentication())

    async def _secure(self) -> None:
        """Runs the TLS handshake; `handshake` closes the socket if it fails."""
        sock, tls = self._socket, self._tls
        if tls is None or sock is None:
            return
        self._socket = None
        secured_socket = await tls.handshake(sock, self._broker_id)
        if isinstance(secured_socket, TlsStream):
            self._is_encrypted = True
            self._socket, self._watching_loop = secured_socket.as_socket, secured_socket.as_loop
        else:
            self._socket = secured_socket

    def _encode_authentication(self) -> bytes:
        """Returns both authentication requests at once; the peer answers them in order."""
        token = self._login.encode()
        requests = (SaslHandshakeRequest(mechanism=self._mechanism), SaslAuthenticateRequest(auth_bytes=token))
        frames = []
        for (api_key, version), request in zip(AUTHENTICATION_REQUESTS, requests, strict=True):
            body = encode_request(api_key, version, request)
            frames.append(encode_request_frame(api_key, version, 0, "broker", body))
        return b"".join(frames)

    def _on_authentication_response(self, start: int, end: int) -> None:
        api_key, version = AUTHENTICATION_REQUESTS[self._authentication_responses]
        view = self._buffer.view
        _, body = decode_response_header(api_key, version, view, start, end)
        response = decode_response(api_key, version, view, body, end)
        if response.error_code:
            self._fail("the peer refused the authentication of this broker")
            return
        self._authentication_responses += 1
        if self._authentication_responses == len(AUTHENTICATION_REQUESTS):
            self._owner.on_up()

    # -- receiving -----------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        sock = self._socket
        if sock is None:
            return
        try:
            received_bytes = sock.recv_into(self._receive_view())
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(error.strerror or "connection lost")
            return
        if not received_bytes:
            self._fail("closed by the peer")
            return
        end = self._filled_bytes = self._filled_bytes + received_bytes
        if end < _SIZE.size:
            return
        (size_bytes,) = _SIZE.unpack_from(self._buffer.view, 0)
        if end == _SIZE.size + size_bytes and self._authentication_responses == len(AUTHENTICATION_REQUESTS):
            # One whole response, the usual case.
            self._filled_bytes = 0
            if size_bytes > self._largest_bytes:
                self._largest_bytes = size_bytes
            self._owner.on_frame(self._buffer.view, _SIZE.size, end)
        else:
            self._deliver_frames(end)

    def _receive_view(self) -> memoryview:
        """Returns the part of the buffer to receive into.

        A TLS stream takes a buffer longer than `SHARED_BYTES` for the rest of one frame and awaits all its bytes, so
        the buffer must end with the response.
        """
        filled_bytes = self._filled_bytes
        if not self._is_encrypted:
            return self._buffer.view[filled_bytes:]
        if filled_bytes < _SIZE.size:
            return self._buffer.view[filled_bytes : filled_bytes + SHARED_BYTES]
        (size_bytes,) = _SIZE.unpack_from(self._buffer.view, 0)
        return self._buffer.view[filled_bytes : _SIZE.size + size_bytes]

    def _deliver_frames(self, end: int) -> None:
        """Delivers whole frames, moves an incomplete one to the front, and enlarges the buffer for it if necessary."""
        position = 0
        while end - position >= _SIZE.size:
            (size_bytes,) = _SIZE.unpack_from(self._buffer.view, position)
            if not 0 <= size_bytes <= FRAME_BYTES_MAX:
                self._fail(f"announced a frame of {size_bytes} bytes")
                return
            self._largest_bytes = max(self._largest_bytes, size_bytes)
            start = position + _SIZE.size
            if end - start < size_bytes:
                break
            position = start + size_bytes
            try:
                if self._authentication_responses < len(AUTHENTICATION_REQUESTS):
                    self._on_authentication_response(start, position)
                else:
                    self._owner.on_frame(self._buffer.view, start, position)
            except MalformedRequest as fault:
                self._fail(str(fault))
            if self._socket is None:
                return
        view = self._buffer.view
        if position:
            view[: end - position] = bytes(view[position:end])
            self._filled_bytes = end - position
        if self._filled_bytes >= _SIZE.size:
            (size_bytes,) = _SIZE.unpack_from(view, 0)
            self._enlarge_buffer(_SIZE.size + size_bytes)

    def _enlarge_buffer(self, size_bytes: int) -> None:
        if size_bytes <= self._buffer.size:
            return
        larger = RentedBuffer(1 << (size_bytes - 1).bit_length())
        larger.view[: self._filled_bytes] = self._buffer.view[: self._filled_bytes]
        self._buffer.free()
        self._buffer = larger

    @property
    def buffer_bytes(self) -> int:
        return self._buffer.size

    def trim(self) -> None:
        """Frees a large buffer that was not needed in the last IDLE_TRIMS calls; called periodically."""
        if self._largest_bytes + _SIZE.size > BUFFER_BYTES or self._buffer.size == BUFFER_BYTES:
            self._idle_trims = 0
        else:
            self._idle_trims += 1
        self._largest_bytes = 0
        if self._idle_trims >= IDLE_TRIMS and not self._filled_bytes and self._socket is not None:
            self._idle_trims = 0
            self._buffer.free()
            self._buffer = RentedBuffer(BUFFER_BYTES)

    # -- sending -------------------------------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        sock = self._socket
        if sock is None:
            return
        if self._unsent:
            self._unsent += frame
            return
        try:
            sent_bytes = sock.send(frame, MSG_NOSIGNAL)
        except (BlockingIOError, InterruptedError):
            sent_bytes = 0
        except OSError as error:
            self._fail_soon(error.strerror or "connection lost")
            return
        if sent_bytes < len(frame):
            self._unsent = frame[sent_bytes:]
            self._watching_loop.add_writer(sock.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        sock = self._socket
        if sock is None:
            return
        try:
            sent_bytes = sock.send(self._unsent, MSG_NOSIGNAL)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(error.strerror or "connection lost")
            return
        self._unsent = self._unsent[sent_bytes:]
        if not self._unsent:
            self._watching_loop.remove_writer(sock.fileno())

    # -- closing -------------------------------------------------------------------------------------------------------

    def _fail_soon(self, reason: str) -> None:
        """Reports a failure after the owner's current call of `send` has returned."""
        self._loop.call_soon(self._fail, reason)

    def _fail(self, reason: str) -> None:
        if self._owner is not _NO_OWNER:
            owner = self._owner
            self.close()
            owner.on_down(reason)

    def close(self) -> None:
        self._owner = _NO_OWNER
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task(self._loop):
            task.cancel()
        sock, self._socket = self._socket, None
        if sock is not None:
            fd = sock.fileno()
            if fd >= 0:
                self._watching_loop.remove_reader(fd)
                self._watching_loop.remove_writer(fd)
            sock.close()
        self._buffer.free()


class _NoOwner:
    def on_up(self) -> None: ...
    def on_frame(self, buffer: memoryview, start: int, end: int) -> None: ...
    def on_down(self, reason: str) -> None: ...


_NO_OWNER: Final[LinkOwner] = _NoOwner()
