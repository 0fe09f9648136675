"""Frames that a connection has received: how many, and the one that is half here or cannot be processed yet."""

from __future__ import annotations

from struct import Struct
from typing import Final

from brokers.engine.network.buffers import SHARED_BYTES, FrameBuffers, HeldFrame, LargeFrame, UnreadBytes
from brokers.engine.protocol.framing import API_KEY_BYTES, SIZE_BYTES

SIZE: Final = Struct(">i")


class InboundFrames:
    """Frames of one connection. `large` is being received into a buffer of its own; `pending` are bytes kept from
    earlier reads.
    """

    __slots__ = (
        "_buffers", "_held", "_held_bytes", "_owner", "_unread", "frame_ticks", "frames", "frames_swept", "large",
        "pending", "processed",
    )  # fmt: skip

    def __init__(self, unread: UnreadBytes, buffers: FrameBuffers, owner: object) -> None:
        self._unread = unread
        self._buffers = buffers
        self._owner = owner
        self._held_bytes = 0
        self._held: HeldFrame | None = None
        self.large: LargeFrame | None = None
        # While its request is in processing, and nobody holds it.
        self.processed: LargeFrame | None = None
        self.pending = b""
        # Requests so far, how many they were at the last sweep, and sweeps since the one began that is half here.
        self.frames = 0
        self.frames_swept = 0
        self.frame_ticks = 0

    @property
    def owner(self) -> object:
        """Whose account its memory is on."""
        return self._owner

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

    def hold_frame(self) -> HeldFrame | None:
        """The buffer of the request in processing, which keeps it until `release`: to copy a large one takes long. None
        when it has no buffer of its own. A connection that closes releases it.
        """
        frame, self.processed = self.processed, None
        if frame is None:
            return None
        self._held = held = HeldFrame(self._buffers, frame.buffer, self._owner)
        return held

    def give_back_processed(self) -> None:
        """Unless it is held."""
        frame, self.processed = self.processed, None
        if frame is not None:
            self._buffers.give_back(frame.buffer, self._owner)

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
        held, self._held = self._held, None
        if held is not None:
            held.release()

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
    """Returns the end of the request that `shared[:kept]` begins: nothing is read beyond it."""
    if kept < SIZE_BYTES + API_KEY_BYTES:
        return SIZE_BYTES + API_KEY_BYTES
    (size_bytes,) = SIZE.unpack_from(shared, 0)
    return max(kept + 1, min(SIZE_BYTES + int(size_bytes), SHARED_BYTES))
