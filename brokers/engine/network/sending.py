"""One response on its way out: bytes and slices of files, sent as far as the socket and the page cache go."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from socket import MSG_MORE, MSG_NOSIGNAL, socket
from typing import Protocol

from brokers.engine.page_cache import read_cached
from brokers.engine.values import Slice

# Slices below this are read and joined with the bytes around them: one system call less than sendfile, one copy more.
SENDFILE_BYTES_MIN = 16_384
# So many bytes of small slices are held in memory for one response; the others are sent from the page cache.
JOINED_BYTES_MAX = 262_144
# So much of a file is asked for in the page cache, and sent, at a time.
PROBED_BYTES_MAX = 524_288
# After this much the loop gets a turn, however fast the peer reads: a quarter of a millisecond.
SENT_PER_TURN_MAX = PROBED_BYTES_MAX

OnWritten = Callable[[int], object]


class FileSender(Protocol):
    """What stands in a socket's place and reads files by itself; `network.tls_stream.TlsStream` fits."""

    def fileno(self) -> int: ...

    def send(self, data: bytes | memoryview, flags: int, /) -> int: ...

    def send_file(self, fd: int, position: int, length: int) -> int:
        """As `os.sendfile`."""


def joined(parts: Sequence[bytes | Slice]) -> tuple[list[bytes | Slice], int]:
    """Small slices turned into bytes and joined with their neighbours, if they are in memory; and how many bytes of
    slices that were.
    """
    out: list[bytes | Slice] = []
    chunk: list[bytes] = []
    joined_bytes = 0
    for part in parts:
        if isinstance(part, bytes):
            chunk.append(part)
            continue
        if part.length < SENDFILE_BYTES_MIN and joined_bytes < JOINED_BYTES_MAX:
            try:
                data = read_cached(part.fd, part.length, part.position)
            except OSError:
                data = None  # as a slice it will fail where that is told
            if data is not None:
                chunk.append(data)
                joined_bytes += len(data)
                part.release()
                continue
        if chunk:
            out.append(b"".join(chunk))
            chunk = []
        out.append(part)
    if chunk:
        out.append(b"".join(chunk))
    return out, joined_bytes


def joined_up(responses: Sequence[Outgoing]) -> list[Outgoing]:
    """Neighbouring responses of bytes alone as one: nothing of any of them was sent, and nobody waits to hear of it."""
    out: list[Outgoing] = []
    frames: list[bytes | Slice] = []
    for response in responses:
        if response.is_plain:
            frames += response.parts
            continue
        if frames:
            out.append(Outgoing(frames, None))
            frames = []
        out.append(response)
    if frames:
        out.append(Outgoing(frames, None))
    return out


class Outgoing:
    """`send` until it answers True; then, or when the connection dies, `finish` exactly once.

    When `send` stopped because the disk would have to be waited for, `uncached` is the slice to go on with: its first
    bytes are to be prefetched into the page cache, and `prefetched` says how far. Otherwise `uncached` is None.

    `on_written` is told how many bytes of file slices went out (what consumption is metered by). Slices that were
    joined count when the bytes around them were sent whole. `sent_bytes` of the first part are out already.
    """

    __slots__ = (
        "_cached_until",
        "_index",
        "_joined_bytes",
        "_on_written",
        "_parts",
        "_sent_of_bytes",
        "_sent_of_slices",
        "uncached",
    )

    def __init__(self, parts: Sequence[bytes | Slice], on_written: OnWritten | None, sent_bytes: int = 0) -> None:
        self._parts, self._joined_bytes = joined(parts)
        self._on_written = on_written
        self._index = 0
        self._sent_of_bytes = sent_bytes
        self._sent_of_slices = 0
        self._cached_until = 0
        self.uncached: Slice | None = None

    @property
    def parts(self) -> list[bytes | Slice]:
        return self._parts

    @property
    def memory_bytes(self) -> int:
        """What it holds of the process's memory."""
        count = 0
        for part in self._parts:
            if isinstance(part, bytes):
                count += len(part)
        return count

    @property
    def is_plain(self) -> bool:
        """Bytes, and nobody to tell."""
        return self._on_written is None and len(self._parts) == 1 and isinstance(self._parts[0], bytes)

    def send(self, sock: socket | FileSender) -> bool:
        """Whether everything is out. Raises OSError when the connection is broken, or the file is."""
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
                    count = self._send_file(sock, part)
                    if not count:
                        return False
                    sent_now += count
                    if part.length:
                        if sent_now >= SENT_PER_TURN_MAX:
                            return False
                        continue
                    part.release()
                    self._cached_until = 0
            except BlockingIOError:
                self._cached_until = 0  # until the peer reads on, what is cached may be forgotten again
                return False
            self._index += 1
        return True

    def _send_file(self, sock: socket | FileSender, part: Slice) -> int:
        """How many bytes of `part` left; 0 if it is not in the page cache."""
        position = part.position
        ready_bytes = self._cached_until - position
        if ready_bytes <= 0:
            ready_bytes = part.length if part.length < PROBED_BYTES_MAX else PROBED_BYTES_MAX
            if not part.is_cached(ready_bytes):
                self.uncached = part
                return 0
            self._cached_until = position + ready_bytes
        try:
            if isinstance(sock, socket):
                count = os.sendfile(sock.fileno(), part.fd, position, ready_bytes)
            else:
                count = sock.send_file(part.fd, position, ready_bytes)
        except OSError as error:
            if error.errno == errno.EIO:
                part.failed(error)
            raise
        if count == 0:
            raise BrokenPipeError("a segment is shorter than its slice")
        self._sent_of_slices += count
        part.position = position + count
        part.length -= count
        return count

    def prefetched(self, length: int) -> None:
        """`length` bytes of `uncached` were in memory just now: they are sent without asking once more, so that what is
        forgotten at once cannot keep the response here for ever.
        """
        uncached, self.uncached = self.uncached, None
        assert uncached is not None, "nothing was cold"
        self._cached_until = uncached.position + length

    def finish(self) -> None:
        whole = self._index == len(self._parts)
        for part in self._parts[self._index :]:
            if not isinstance(part, bytes):
                part.release()
        if self._on_written is not None:
            on_written, self._on_written = self._on_written, None
            on_written(self._sent_of_slices + (self._joined_bytes if whole else 0))
