"""One response being sent: bytes and slices of files, as far as the socket and the page cache allow."""

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
# Maximum number of bytes of small slices copied to memory for one response; further slices are sent from the page
# cache.
JOINED_BYTES_MAX = 262_144
# Number of bytes of a file that are checked for in the page cache, and sent, at a time.
PROBED_BYTES_MAX = 524_288
# Number of bytes after which the loop serves others, however fast the peer reads: a quarter of a millisecond.
SENT_PER_TURN_MAX = PROBED_BYTES_MAX

OnWritten = Callable[[int], object]


class FileSender(Protocol):
    """A replacement for a socket that reads files by itself; implemented by `network.tls_stream.TlsStream`."""

    def fileno(self) -> int: ...

    def send(self, data: bytes | memoryview, flags: int, /) -> int: ...

    def send_file(self, fd: int, position: int, length: int) -> int:
        """Sends a part of a file, like `os.sendfile`."""


def join_small_slices(parts: Sequence[bytes | Slice]) -> tuple[list[bytes | Slice], int]:
    """Returns the parts with small cached slices joined as bytes, and the number of bytes of these slices."""
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
                data = None  # the slice will fail when it is sent, where errors are handled
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


def as_single_frame(parts: Sequence[bytes | Slice]) -> bytes | None:
    """Returns a response without slices of files in one piece, None for others."""
    frame = [part for part in parts if isinstance(part, bytes)]
    return b"".join(frame) if len(frame) == len(parts) else None


def merge_plain_responses(responses: Sequence[Outgoing]) -> list[Outgoing]:
    """Joins neighbouring responses that are bytes only, unsent, and without `on_written`."""
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
    """One response. Call `send` until it returns True; then, or when the connection fails, `finish` exactly once.

    When `send` stops because the disk would block, `uncached` is the slice to continue with: its first bytes have to be
    prefetched into the page cache, and `on_prefetched` reports how many. Otherwise `uncached` is None.

    `on_written` is called with the number of bytes of file slices that were sent, by which consumption is metered.
    Joined slices count when the bytes around them were sent completely. `sent_bytes` of the first part are sent
    already.
    """

    __slots__ = (
        "_cached_until", "_index", "_joined_bytes", "_on_written", "_part_sent_bytes", "_slice_sent_bytes", "parts",
        "uncached",
    )  # fmt: skip

    def __init__(self, parts: Sequence[bytes | Slice], on_written: OnWritten | None, sent_bytes: int = 0) -> None:
        self.parts, self._joined_bytes = join_small_slices(parts)
        self._on_written = on_written
        self._index = 0
        self._part_sent_bytes = sent_bytes
        self._slice_sent_bytes = 0
        self._cached_until = 0
        self.uncached: Slice | None = None

    @property
    def memory_bytes(self) -> int:
        """Returns the bytes of process memory that it holds."""
        count = 0
        for part in self.parts:
            if isinstance(part, bytes):
                count += len(part)
        return count

    @property
    def is_plain(self) -> bool:
        """True for bytes without `on_written`."""
        return self._on_written is None and len(self.parts) == 1 and isinstance(self.parts[0], bytes)

    def send(self, sock: socket | FileSender) -> bool:
        """Sends as much as possible. Returns True if everything is sent. Raises OSError, also for the file."""
        parts = self.parts
        sent_now = 0
        last_index = len(parts) - 1
        while self._index <= last_index:
            part = parts[self._index]
            try:
                if isinstance(part, bytes):
                    flags = MSG_NOSIGNAL if self._index == last_index else MSG_NOSIGNAL | MSG_MORE
                    remaining = memoryview(part)[self._part_sent_bytes :] if self._part_sent_bytes else part
                    count = sock.send(remaining, flags)
                    if count < len(remaining):
                        self._part_sent_bytes += count
                        return False
                    self._part_sent_bytes = 0
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
                self._cached_until = 0  # cached pages may be evicted before the peer reads on
                return False
            self._index += 1
        return True

    def _send_file(self, sock: socket | FileSender, part: Slice) -> int:
        """Returns the number of bytes of `part` that were sent; 0 if they are not in the page cache."""
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
                part.report_failure(error)
            raise
        if count == 0:
            raise BrokenPipeError("a segment is shorter than its slice")
        self._slice_sent_bytes += count
        part.position = position + count
        part.length -= count
        return count

    def on_prefetched(self, length: int) -> None:
        """Records that `length` bytes of `uncached` were just in memory: they are sent without another check, so that
        pages that are evicted at once cannot block the response forever.
        """
        uncached, self.uncached = self.uncached, None
        assert uncached is not None, "no slice was uncached"
        self._cached_until = uncached.position + length

    def finish(self) -> None:
        is_complete = self._index == len(self.parts)
        for part in self.parts[self._index :]:
            if not isinstance(part, bytes):
                part.release()
        if self._on_written is not None:
            on_written, self._on_written = self._on_written, None
            on_written(self._slice_sent_bytes + (self._joined_bytes if is_complete else 0))
