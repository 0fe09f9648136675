"""A connection's TLS socket for code that expects a plain socket: the same calls, the same errors.

TLS buffers decrypted bytes that were not read, which the event loop does not see. So the stream also replaces the loop:
a reader callback is called as long as there are buffered bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import Callable
from concurrent.futures import Executor
from ipaddress import ip_address
from socket import MSG_PEEK, SO_RCVLOWAT, SOL_SOCKET, socket
from typing import Any, Final, cast

from brokers.engine.network.buffers import SHARED_BYTES

# Maximum number of bytes in one TLS record.
RECORD_BYTES_MAX: Final = 16_384
# Bytes decrypted in one turn of the event loop: half a millisecond.
RECEIVED_PER_TURN_MAX: Final = 262_144
# Missing bytes of a long request are awaited in pieces of this size: a turn of the loop for each record would cost too
# much.
AWAITED_BYTES_MAX: Final = 131_072
# Maximum number of bytes of an incomplete record that TLS may already have read from the socket.
HALF_RECORD_BYTES_MAX: Final = RECORD_BYTES_MAX + 1_024
# Bytes of a file slice that are read and encrypted at a time.
FILE_BYTES_PER_READ: Final = 65_536
# Bytes encrypted in one turn of the event loop, a multiple of RECORD_BYTES_MAX.
SENT_PER_TURN_MAX: Final = 262_144
# The ALPN protocol that a client offers and a server selects to end TLS when the handshake is over. Processes on one
# machine authenticate by a handshake and continue unencrypted on the loopback interface: a process that can read or
# change loopback traffic can also read the keys, and encryption costs as much as replication.
PLAINTEXT_ALPN: Final = "penstock-in-clear"


class TlsStream:
    """Replacement for a connection's socket (`as_socket`) and for its event loop (`as_loop`)."""

    __slots__ = ("_awaited_bytes", "_is_peer_closed", "_is_scheduled", "_loop", "_on_readable", "_peeked_bytes", "_tls")

    def __init__(self, tls: ssl.SSLSocket, loop: asyncio.AbstractEventLoop) -> None:
        """Wraps a non-blocking socket whose handshake is over."""
        self._tls = tls
        self._loop = loop
        self._on_readable: Callable[[], object] | None = None
        self._is_scheduled = False
        # Bytes that were peeked and not yet received.
        self._peeked_bytes = b""
        # True if the peer's close_notify came after bytes that were received first.
        self._is_peer_closed = False
        # The socket becomes readable only with this number of bytes.
        self._awaited_bytes = 1

    @property
    def verified_certificate(self) -> dict[str, Any]:
        """Returns the parsed certificate: subject, names and so on. Empty unless it was verified."""
        return self._tls.getpeercert() or {}

    @property
    def as_socket(self) -> socket:
        return cast(socket, self)

    @property
    def as_loop(self) -> asyncio.AbstractEventLoop:
        return cast(asyncio.AbstractEventLoop, self)

    # -- as a socket --------------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        return self._tls.fileno()

    def recv_into(self, buffer: memoryview) -> int:
        """Receives into `buffer`. Raises OSError like a socket, including BlockingIOError."""
        count = 0
        if self._peeked_bytes:
            count = len(self._peeked_bytes)
            buffer[:count] = self._peeked_bytes
            self._peeked_bytes = b""
        end = min(len(buffer), RECEIVED_PER_TURN_MAX)
        # A longer buffer is for the missing bytes of one request only.
        is_request_rest = len(buffer) > SHARED_BYTES
        try:
            while count < end:
                received = 0 if self._is_peer_closed else self._receive(buffer[count:end])
                self._is_peer_closed = not received
                count += received
                # A small request comes in one record, and looking for another one costs as much as reading it.
                if not received or (not is_request_rest and received < RECORD_BYTES_MAX and not self._tls.pending()):
                    break
        except BlockingIOError:
            if not count:
                raise
        finally:
            self._await_rest(len(buffer) - count if is_request_rest else 0)
        self._watch_pending()
        return count

    def _await_rest(self, missing_bytes: int) -> None:
        """Awaits at least the bytes that are missing on the wire, apart from those that TLS has already read."""
        awaited_bytes = min(missing_bytes - HALF_RECORD_BYTES_MAX, AWAITED_BYTES_MAX)
        if awaited_bytes < RECORD_BYTES_MAX:
            awaited_bytes = 1
        if awaited_bytes != self._awaited_bytes:
            self._awaited_bytes = awaited_bytes
            with contextlib.suppress(OSError):
                self._tls.setsockopt(SOL_SOCKET, SO_RCVLOWAT, awaited_bytes)

    def _receive(self, buffer: memoryview) -> int:
        try:
            return cast(int, self._tls.read(len(buffer), cast(Any, buffer)))
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            # Only a key update is answered while reading, and this peer does not read.
            raise ConnectionAbortedError(0, "the peer updates keys and does not read the responses") from None

    def recv(self, count: int, flags: int) -> bytes:
        """Peeks one byte, to detect that the peer has closed."""
        assert flags == MSG_PEEK and count == 1, "a connection receives into buffers"
        if not self._peeked_bytes:
            byte = bytearray(1)
            self._peeked_bytes = bytes(byte) if self._receive(memoryview(byte)) else b""
        return self._peeked_bytes

    def send(self, data: bytes | memoryview, _flags: int = 0) -> int:
        """Returns the number of sent bytes of `data`. Raises OSError like a socket, including BlockingIOError."""
        view = memoryview(data)
        end = min(len(view), SENT_PER_TURN_MAX)
        count = 0
        while count < end:
            try:
                # One record, because a longer write ends only when all of it is sent. Never fewer bytes than in the
                # last attempt: TLS repeats a partly sent record.
                count += self._tls.write(cast(bytes, view[count : count + RECORD_BYTES_MAX]))
            except ssl.SSLWantWriteError:
                if not count:
                    raise BlockingIOError from None
                break
            except ssl.SSLWantReadError:
                raise ConnectionAbortedError(0, "the peer asks for another handshake") from None
        return count

    def send_file(self, fd: int, position: int, length: int) -> int:
        """Sends like `os.sendfile`, but reads and encrypts the bytes. Returns 0 at the end of the file."""
        data = os.pread(fd, min(length, FILE_BYTES_PER_READ), position)
        return self.send(data) if data else 0

    def close(self) -> None:
        self._on_readable = None
        with contextlib.suppress(OSError, ValueError):
            self._tls.unwrap()  # sends close_notify, so that the peer sees a complete stream; its own is not awaited
        self._tls.close()

    # -- as the event loop --------------------------------------------------------------------------------------------

    def add_reader(self, fd: int, callback: Callable[[], object]) -> None:
        self._on_readable = callback
        self._loop.add_reader(fd, self._call_reader)
        self._watch_pending()

    def remove_reader(self, fd: int) -> bool:
        self._on_readable = None
        return self._loop.remove_reader(fd)

    def _watch_pending(self) -> None:
        if self._is_scheduled or self._on_readable is None:
            return
        if self._peeked_bytes or self._is_peer_closed or self._tls.pending():
            self._is_scheduled = True
            self._loop.call_soon(self._on_pending)

    def _on_pending(self) -> None:
        self._is_scheduled = False
        self._call_reader()

    def _call_reader(self) -> None:
        on_readable = self._on_readable
        if on_readable is not None:
            on_readable()

    def add_writer(self, fd: int, callback: Callable[[], object]) -> None:
        self._loop.add_writer(fd, callback)

    def remove_writer(self, fd: int) -> bool:
        return self._loop.remove_writer(fd)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        return self._loop.call_soon(callback, *args)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, callback, *args)

    def run_in_executor(self, executor: Executor, work: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        return self._loop.run_in_executor(executor, work, *args)


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def plain_socket(tls: ssl.SSLSocket) -> socket:
    """Returns the underlying socket after both sides have ended TLS (`unwrap`)."""
    plain = socket(fileno=tls.detach())
    plain.setblocking(False)
    return plain
