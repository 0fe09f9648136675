"""Cuts a byte stream into frames: int32 size, then that many bytes (WIRE-1). Owns no socket.

Feed bytes with `receive`, prefetch whole frames with `next_frame`, which answers None for "more, please". A size that
is negative or over the limit is the peer's fault and final: the connection must be closed without an answer.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from brokers.engine.protocol.errors import FrameTooLarge, MalformedRequest

SIZE_BYTES: Final = 4
# `socket.request.max.bytes`: what one request of an admitted client may weigh.
FRAME_BYTES_MAX: Final = 104_857_600
# Before a peer has proved who it is (SASL), it may not make us hold more than this.
UNAUTHENTICATED_FRAME_BYTES_MAX: Final = 65_536
# The shortest request header: api key, version, correlation id.
FRAME_BYTES_MIN: Final = 8

_SIZE: Final = Struct(">i")

assert FRAME_BYTES_MIN < UNAUTHENTICATED_FRAME_BYTES_MAX < FRAME_BYTES_MAX


def check_frame_size(size_bytes: int, bytes_max: int) -> None:
    """Refuse a size that no honest frame has.

    TLS and HTTP greetings land here too: read as a size, their first four bytes exceed any sane limit.
    Raises FrameTooLarge, or MalformedRequest when the frame could not even hold a header.
    """
    if size_bytes > bytes_max:
        raise FrameTooLarge(f"a frame of {size_bytes} bytes exceeds the limit of {bytes_max}")
    if size_bytes < FRAME_BYTES_MIN:
        raise MalformedRequest(f"a frame of {size_bytes} bytes cannot hold a request header")


class FrameSplitter:
    """Collects received bytes and hands them out frame by frame.

    `bytes_max` may be raised at any time (after authentication); it is read anew for every frame. What is held never
    exceeds one incomplete frame plus whatever one `receive` brought.
    """

    __slots__ = ("_buffer", "_start", "bytes_max")

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._buffer = bytearray()
        self._start = 0

    @property
    def buffered_bytes(self) -> int:
        """How many received bytes are not handed out yet."""
        return len(self._buffer) - self._start

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take what came from the peer."""
        if self._start:
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """The next whole frame without its size, or None when bytes are missing.

        Raises FrameTooLarge, MalformedRequest.
        """
        body = self._start + SIZE_BYTES
        if len(self._buffer) < body:
            return None
        (size_bytes,) = _SIZE.unpack_from(self._buffer, self._start)
        check_frame_size(size_bytes, self.bytes_max)
        end = body + size_bytes
        if len(self._buffer) < end:
            return None
        self._start = end
        return bytes(memoryview(self._buffer)[body:end])
