"""Output buffer of a connection: threads append without waiting, the loop sends as the reader accepts."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import BinaryIO

from config.web.limits import UNSENT_BYTES_MAX, WAITING_STREAMS_MAX

# Header fields up to this size wait for the first bytes of the body, to use one call and one packet for both.
HEAD_BYTES_JOINED_MAX = 16 * 1024
FILE_BYTES_AT_ONCE = 256 * 1024

_waiting_streams = threading.BoundedSemaphore(WAITING_STREAMS_MAX)


class ConnectionCut(BrokenPipeError):
    """The connection is closed, or its reader is too slow."""


class FilePart:
    """Part of a file that the kernel copies to the socket."""

    def __init__(self, file: BinaryIO, offset: int, count: int) -> None:
        self._descriptor = os.dup(file.fileno())  # the opener closes the file when its thread is done
        self._offset = offset
        self._count = count

    def __len__(self) -> int:
        return self._count

    def send(self, target: socket.socket) -> int:
        sent = os.sendfile(target.fileno(), self._descriptor, self._offset, min(self._count, FILE_BYTES_AT_ONCE))
        if not sent:
            raise ConnectionCut("the file is shorter than it was")
        self._offset += sent
        self._count -= sent
        return sent

    def close(self) -> None:
        os.close(self._descriptor)


class Outgoing:
    """Replaces the socket to which gunicorn writes a response; its calls do not wait for the reader.

    Only a streamed response waits while much of it is unsent, and only a few of those at a time.
    """

    def __init__(self, sock: socket.socket, on_blocked: Callable[[], None]) -> None:
        self._sock = sock
        self._on_blocked = on_blocked
        self._condition = threading.Condition()
        self._parts: deque[memoryview | FilePart] = deque()
        self._pending_head = b""
        self._has_begun = False
        self._is_closed = False
        self.unsent_bytes = 0  # in memory; files count nothing
        self.sent_bytes = 0

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def fileno(self) -> int:
        return self._sock.fileno()

    def sendall(self, data: bytes) -> None:
        """Sends what the kernel accepts, and buffers the rest."""
        if self.unsent_bytes > UNSENT_BYTES_MAX:
            self._wait_for_reader()
        with self._condition:
            if not self._has_begun and len(data) <= HEAD_BYTES_JOINED_MAX:
                self._pending_head, self._has_begun = data, True
                return
            head, self._pending_head = self._pending_head, b""
            self._add(memoryview(head + data if head else data))

    def sendfile(self, file: BinaryIO, offset: int = 0, count: int | None = None) -> None:
        """Implements `socket.sendfile`."""
        size = os.fstat(file.fileno()).st_size - offset if count is None else count
        with self._condition:
            self._flush_pending_head()
            if size > 0:
                self._add(FilePart(file, offset, size))

    def finish(self) -> None:
        """Marks the response as complete."""
        with self._condition:
            self._has_begun = False
            self._flush_pending_head()

    def finish_quietly(self) -> None:
        """Marks the response as complete, also on a connection that is closed."""
        with contextlib.suppress(OSError):
            self.finish()

    def flush(self) -> bool:
        """Sends what the kernel accepts. Returns True if nothing is left. Raises `OSError` if the reader is gone."""
        with self._condition:
            self._flush()
            if not self._parts or self.unsent_bytes <= UNSENT_BYTES_MAX // 2:
                self._condition.notify_all()
            return not self._parts

    def close(self) -> None:
        """Discards unsent data, and wakes waiting threads."""
        with self._condition:
            self._is_closed = True
            while self._parts:
                _release(self._parts.popleft())
            self.unsent_bytes = 0
            self._condition.notify_all()

    def _add(self, part: memoryview | FilePart) -> None:
        if self._is_closed:
            if isinstance(part, FilePart):
                part.close()
            raise ConnectionCut("the connection is closed")
        was_empty = not self._parts
        self._parts.append(part)
        if isinstance(part, memoryview):
            self.unsent_bytes += len(part)
        if was_empty:
            self._flush()
            if self._parts:
                self._on_blocked()

    def _flush_pending_head(self) -> None:
        if self._pending_head:
            head, self._pending_head = self._pending_head, b""
            self._add(memoryview(head))

    def _flush(self) -> None:
        while self._parts:
            part = self._parts[0]
            try:
                sent = part.send(self._sock) if isinstance(part, FilePart) else self._sock.send(part)
            except BlockingIOError:
                return
            self.sent_bytes += sent
            if isinstance(part, memoryview):
                self.unsent_bytes -= sent
                self._parts[0] = part[sent:]
            if not len(self._parts[0]):
                _release(self._parts.popleft())

    def _wait_for_reader(self) -> None:
        """Waits until half of the buffer is sent; the loop closes a connection whose response is overdue."""
        if not _waiting_streams.acquire(blocking=False):
            raise ConnectionCut("too many answers wait for their readers")
        try:
            with self._condition:
                self._condition.wait_for(lambda: self._is_closed or self.unsent_bytes <= UNSENT_BYTES_MAX // 2)
                if self._is_closed:
                    raise ConnectionCut("the connection is closed")
        finally:
            _waiting_streams.release()


def _release(part: memoryview | FilePart) -> None:
    if isinstance(part, FilePart):
        part.close()
    else:
        part.release()
