"""One response on its way out: bytes and slices of files, sent as far as the socket takes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from socket import MSG_MORE, MSG_NOSIGNAL, socket

from brokers.engine.values import Slice

# Slices below this are read and joined with the bytes around them: one system call less than sendfile, one copy more.
SENDFILE_BYTES_MIN = 16_384
# After this much the loop gets a turn, however fast the peer reads.
SENT_PER_TURN_MAX = 4_194_304

OnWritten = Callable[[int], object]


def joined(parts: Sequence[bytes | Slice]) -> list[bytes | Slice]:
    """Small slices turned into bytes and joined with their neighbours."""
    out: list[bytes | Slice] = []
    chunk: list[bytes] = []
    for part in parts:
        if isinstance(part, bytes):
            chunk.append(part)
        elif part.length < SENDFILE_BYTES_MIN:
            chunk.append(os.pread(part.fd, part.length, part.position))
            part.release()
        else:
            if chunk:
                out.append(b"".join(chunk))
                chunk = []
            out.append(part)
    if chunk:
        out.append(b"".join(chunk))
    return out


class Outgoing:
    """`send` until it answers True; then, or when the connection dies, `finish` exactly once.

    `on_written` is told how many bytes of file slices went out (what consumption is metered by). Slices that were
    joined count when the bytes around them were sent whole.
    """

    __slots__ = ("_index", "_joined_bytes", "_on_written", "_parts", "_sent_of_bytes", "_sent_of_slices", "next")

    def __init__(self, parts: Sequence[bytes | Slice], on_written: OnWritten | None) -> None:
        slices = sum(part.length for part in parts if not isinstance(part, bytes))
        self._parts = joined(parts)
        self._joined_bytes = slices - sum(part.length for part in self._parts if not isinstance(part, bytes))
        self._on_written = on_written
        self._index = 0
        self._sent_of_bytes = 0
        self._sent_of_slices = 0
        self.next: Outgoing | None = None

    def follow(self, outgoing: Outgoing) -> None:
        """`outgoing` leaves when this one is out."""
        assert self.next is None, "a connection has one response in processing"
        self.next = outgoing

    def send(self, sock: socket) -> bool:
        """Whether everything is out. Raises OSError when the connection is broken."""
        parts = self._parts
        sent_now = 0
        last = len(parts) - 1
        while self._index <= last:
            part = parts[self._index]
            try:
                if isinstance(part, bytes):
                    flags = MSG_NOSIGNAL if self._index == last else MSG_NOSIGNAL | MSG_MORE
                    rest = memoryview(part)[self._sent_of_bytes :] if self._sent_of_bytes else part
                    count = sock.send(rest, flags)
                    if count < len(rest):
                        self._sent_of_bytes += count
                        return False
                    self._sent_of_bytes = 0
                else:
                    count = os.sendfile(sock.fileno(), part.fd, part.position, part.length)
                    if count == 0:
                        raise BrokenPipeError("a segment is shorter than its slice")
                    self._sent_of_slices += count
                    part.position += count
                    part.length -= count
                    sent_now += count
                    if part.length:
                        if sent_now >= SENT_PER_TURN_MAX:
                            return False
                        continue
                    part.release()
            except BlockingIOError:
                return False
            self._index += 1
        return True

    def finish(self) -> None:
        whole = self._index == len(self._parts)
        for part in self._parts[self._index :]:
            if not isinstance(part, bytes):
                part.release()
        if self._on_written is not None:
            on_written, self._on_written = self._on_written, None
            on_written(self._sent_of_slices + (self._joined_bytes if whole else 0))
