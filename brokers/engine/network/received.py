"""What a connection has received: requests so far, and the one that is half here or cannot be processed yet."""

from __future__ import annotations

from struct import Struct
from typing import Final

from brokers.engine.network.buffers import SHARED_BYTES, FrameBuffers, LargeFrame, UnreadBytes
from brokers.engine.protocol.framing import API_KEY_BYTES, SIZE_BYTES

SIZE: Final = Struct(">i")


class Received:
    """`large`: a frame that is being received into a buffer of its own. `pending`: bytes kept from earlier reads."""

    __slots__ = (
        "_buffers", "_held_bytes", "_owner", "_unread", "frame_ticks", "frames", "frames_swept", "large", "pending",
    )  # fmt: skip

    def __init__(self, unread: UnreadBytes, buffers: FrameBuffers, owner: object) -> None:
        self._unread = unread
        self._buffers = buffers
        self._owner = owner
        self._held_bytes = 0
        self.large: LargeFrame | None = None
        self.pending = b""
        # Requests so far, how many they were at the last sweep, and sweeps since the one began that is half here.
        self.frames = 0
        self.frames_swept = 0
        self.frame_ticks = 0

    def keep(self, pending: bytes) -> None:
        self._unread.change(len(pending) - len(self.pending))
        self.pending = pending

    def take_into(self, shared: memoryview) -> int:
        """Puts what is pending at the beginning of `shared`; how many bytes that are."""
        count = len(self.pending)
        if count:
            shared[:count] = self.pending
            self._unread.change(-count)
            self.pending = b""
        return count

    def hold(self, count: int) -> None:
        """The request in processing was copied, to be decoded later: until `release` it takes the place of others."""
        self._held_bytes += count
        self._unread.change(count)
        self._buffers.count(count, self._owner)

    def release(self) -> None:
        if self._held_bytes:
            held_bytes, self._held_bytes = self._held_bytes, 0
            self._unread.change(-held_bytes)
            self._buffers.count(-held_bytes, self._owner)
            self._buffers.wake()

    def forget(self) -> None:
        """The connection is gone."""
        self.keep(b"")
        self.release()

    @property
    def frame_bytes(self) -> int:
        """The size of the request that is half here, 1 while not even its size is; 0 = none is."""
        if self.large is not None:
            return self.large.size_bytes
        if len(self.pending) < SIZE_BYTES:
            return 1 if self.pending else 0
        (size_bytes,) = SIZE.unpack_from(self.pending, 0)
        return int(size_bytes)


def end_of_frame(shared: memoryview, kept: int) -> int:
    """How far to read for the request that `shared[:kept]` begins, and for no other."""
    if kept < SIZE_BYTES + API_KEY_BYTES:
        return SIZE_BYTES + API_KEY_BYTES
    (size_bytes,) = SIZE.unpack_from(shared, 0)
    return max(kept + 1, min(SIZE_BYTES + int(size_bytes), SHARED_BYTES))
