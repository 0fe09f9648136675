"""Frames that a connection has received: their number, and the frame that is incomplete or cannot be processed yet."""

from __future__ import annotations

from struct import Struct
from typing import Final

from brokers.engine.network.buffers import SHARED_BYTES, FrameBuffers, LargeFrame, RetainedFrame, UnreadBytes
from brokers.engine.protocol.framing import API_KEY_BYTES, SIZE_BYTES

SIZE: Final = Struct(">i")


class InboundFrames:
    """Received frames of one connection: `large_frame` has its own buffer, `pending` has other unprocessed bytes."""

    __slots__ = (
        "_buffers", "_copied_bytes", "_retained_frame", "_unread", "frame_count", "frame_sweeps", "large_frame",
        "owner", "pending", "processed_frame", "swept_frame_count",
    )  # fmt: skip

    def __init__(self, unread: UnreadBytes, buffers: FrameBuffers, owner: object) -> None:
        self._unread = unread
        self._buffers = buffers
        # The memory of the frames is charged to this owner.
        self.owner = owner
        self._copied_bytes = 0
        self._retained_frame: RetainedFrame | None = None
        self.large_frame: LargeFrame | None = None
        # The large frame whose request is in processing, unless a `RetainedFrame` has taken it over.
        self.processed_frame: LargeFrame | None = None
        self.pending = b""
        # Number of requests, their number at the last sweep, and number of sweeps since the incomplete request began.
        self.frame_count = 0
        self.swept_frame_count = 0
        self.frame_sweeps = 0

    def set_pending(self, pending: bytes) -> None:
        self._unread.add(len(pending) - len(self.pending))
        self.pending = pending

    def move_pending_to(self, shared: memoryview) -> int:
        """Moves the pending bytes to the beginning of `shared`. Returns their number."""
        count = len(self.pending)
        if count:
            shared[:count] = self.pending
            self._unread.add(-count)
            self.pending = b""
        return count

    def charge_request_copy(self, count: int) -> None:
        """Charges the copy of the request in processing, which is decoded later, until `release_request_copy`."""
        self._copied_bytes += count
        self._unread.add(count)
        self._buffers.charge(count, self.owner)

    def retain_frame(self) -> RetainedFrame | None:
        """Hands over the buffer of the request in processing, since copying a large request takes long. Returns None if
        the request has no buffer of its own. Closing the connection releases it.
        """
        frame, self.processed_frame = self.processed_frame, None
        if frame is None:
            return None
        self._retained_frame = retained = RetainedFrame(self._buffers, frame.buffer, self.owner)
        return retained

    def return_processed(self) -> None:
        """Gives back the buffer of the processed request, unless it is retained."""
        frame, self.processed_frame = self.processed_frame, None
        if frame is not None:
            self._buffers.return_buffer(frame.buffer, self.owner)

    def release_request_copy(self) -> None:
        if self._copied_bytes:
            copied_bytes, self._copied_bytes = self._copied_bytes, 0
            self._unread.add(-copied_bytes)
            self._buffers.charge(-copied_bytes, self.owner)
            self._buffers.wake()

    def release_all(self) -> None:
        """Releases all memory of a closed connection."""
        self.set_pending(b"")
        self.release_request_copy()
        retained, self._retained_frame = self._retained_frame, None
        if retained is not None:
            retained.release()

    @property
    def frame_bytes(self) -> int:
        """Returns the size of the incomplete request, 1 while its size is unknown, 0 without one."""
        if self.large_frame is not None:
            return self.large_frame.size_bytes
        if len(self.pending) < SIZE_BYTES:
            return 1 if self.pending else 0
        (size_bytes,) = SIZE.unpack_from(self.pending, 0)
        return int(size_bytes)


def end_of_frame(shared: memoryview, pending_bytes: int) -> int:
    """Returns the position at which the next read into `shared` has to end, so that it ends with this request."""
    if pending_bytes < SIZE_BYTES + API_KEY_BYTES:
        return SIZE_BYTES + API_KEY_BYTES
    (size_bytes,) = SIZE.unpack_from(shared, 0)
    return max(pending_bytes + 1, min(SIZE_BYTES + int(size_bytes), SHARED_BYTES))
