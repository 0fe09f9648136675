"""Memory for frames. Small frames live in one receive buffer that all connections share, large ones in rented buffers.

A frame is consumed while it is handed over, so the shared buffer is free again before the next read; an idle
connection holds no buffer at all.
"""

from __future__ import annotations

import contextlib
import mmap
from collections import deque
from collections.abc import Callable
from socket import socket
from typing import NamedTuple, Protocol

from brokers.contract.connections import RECEIVED_BYTES_PER_INSTANCE_MAX, RECEIVED_BYTES_PER_INSTANCE_MIN

SHARED_BYTES = 65_536
RENTED_BYTES_MIN = 131_072
# Received bytes of all large frames together, each of which counts as `RENTED_BYTES_MIN` at least; more of them wait
# unread. One frame at a time may pass the bound, so that frames that are all half received come to their end.
RENTED_BYTES_MAX = 536_870_912
# Received bytes of one owner, and what each finds room for.
RENTED_BYTES_PER_OWNER_MAX = RECEIVED_BYTES_PER_INSTANCE_MAX
RENTED_BYTES_PER_OWNER_MIN = RECEIVED_BYTES_PER_INSTANCE_MIN
# Buffers of up to this size are kept for the next large frame, this many bytes in all.
KEPT_SIZE_MAX = 2_097_152
KEPT_BYTES_MAX = 8_388_608
# Of small requests that are not whole, or cannot be processed yet. Whoever has more reads no further than the end of
# the request it is at, and rents a buffer for that one unless it is tiny.
UNREAD_BYTES_PER_INSTANCE_MAX = 12_582_912
UNREAD_BYTES_MAX = 134_217_728
TINY_BYTES_MAX = 1_024
# Each page costs the kernel time when it is first written, and when it is freed: so much of a frame in one turn.
RECEIVED_AT_ONCE_BYTES_MAX = 2_097_152
FREED_AT_ONCE_BYTES_MAX = 8_388_608


class RentedBuffer:
    """Memory for one frame. Pages of the writable `view` take memory once they are written. `counted_bytes` are on its
    owner's account.
    """

    __slots__ = ("_map", "counted_bytes", "size", "view")

    def __init__(self, size: int) -> None:
        # Pages of a shared mapping would take twice as long to free.
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.size = size
        self.counted_bytes = 0
        self.view = memoryview(self._map)

    def free_tail(self) -> int:
        """Frees as much of its end as is freed at once, and answers how much that is. Not to be used any more."""
        freed_bytes = min(FREED_AT_ONCE_BYTES_MAX, self.size)
        self.size -= freed_bytes
        begin = self.size - self.size % mmap.PAGESIZE
        self._map.madvise(mmap.MADV_DONTNEED, begin, self.size + freed_bytes - begin)
        return freed_bytes

    def free(self) -> None:
        # Somebody may still look at a part of it (an exception's traceback does): then the last one to let go frees it.
        with contextlib.suppress(BufferError):
            self.view.release()
            self._map.close()


class LargeFrame:
    """A frame that is being received into a buffer of its own. `view` is whole once `receive` answered True.
    `checked_bytes`: how much was there when memory was short last, -1 before that.
    """

    __slots__ = ("buffer", "checked_bytes", "filled", "size_bytes")

    def __init__(self, buffer: RentedBuffer, size_bytes: int, received: memoryview) -> None:
        self.buffer = buffer
        self.size_bytes = size_bytes
        self.filled = len(received)
        self.checked_bytes = -1
        buffer.view[: self.filled] = received

    @property
    def end(self) -> int:
        """Position up to which the next `receive` may fill it."""
        return min(self.size_bytes, self.filled + RECEIVED_AT_ONCE_BYTES_MAX)

    def receive(self, sock: socket) -> bool:
        """Takes what is there. Raises OSError, also when the peer is gone."""
        count = sock.recv_into(self.buffer.view[self.filled : self.end])
        if not count:
            raise ConnectionAbortedError(0, "closed by the peer")
        self.filled += count
        return self.filled == self.size_bytes


class Waiter(Protocol):
    """A connection that waits for memory."""

    def on_memory(self) -> None:
        """There is room now. Called inside somebody else's request."""


class Wish(NamedTuple):
    """A number of bytes that a waiter wants for a buffer that it has, or for another one (None)."""

    count_bytes: int
    buffer: RentedBuffer | None


class UnreadBytes:
    """What connections of one instance have received and not processed; `of_all` counts that of all instances."""

    __slots__ = ("_bytes_max", "_of_all", "count")

    def __init__(self, of_all: UnreadBytes | None = None, bytes_max: int = UNREAD_BYTES_MAX) -> None:
        self._of_all = of_all
        self._bytes_max = bytes_max
        self.count = 0

    def change(self, by: int) -> None:
        self.count += by
        if self._of_all is not None:
            self._of_all.count += by

    @property
    def are_many(self) -> bool:
        """Whether to read no more than has to be."""
        return self.count > self._bytes_max or (self._of_all is not None and self._of_all.are_many)


def _rounded(size: int) -> int:
    return max(RENTED_BYTES_MIN, 1 << (size - 1).bit_length()) if size <= KEPT_SIZE_MAX else size


class FrameBuffers:
    """Memory for the frames of all connections. `shared` is written by the connection that reads its socket now. `rent`
    returns None when too much is rented.

    Owners are instances. A frame counts as what of it has arrived, so that nobody takes memory by announcing. What one
    owner has may not exceed what it leaves free for all others, and each has room for `RENTED_BYTES_PER_OWNER_MIN` in
    any case. `on_wait` is called when somebody begins to wait for memory.

    `soon` calls what it is given in the next round of the loop. Without it large buffers are freed at once.
    """

    def __init__(
        self,
        rented_bytes_max: int = RENTED_BYTES_MAX,
        soon: Callable[[Callable[[], None]], object] | None = None,
        owner_bytes_min: int = RENTED_BYTES_PER_OWNER_MIN,
    ) -> None:
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self.rented_bytes = 0
        self.on_wait: Callable[[], object] = _unwatched
        self._rented_bytes_max = rented_bytes_max
        self._owner_bytes_min = owner_bytes_min
        self._soon = soon
        self._leaving: deque[tuple[RentedBuffer, object]] = deque()
        self._rented_by: dict[object, int] = {}
        # The buffer of each owner that may pass the bound of its owner, and the one that may pass the bound of all.
        self._oldest: dict[object, RentedBuffer] = {}
        self._ahead: RentedBuffer | None = None
        self._kept: dict[int, list[RentedBuffer]] = {}
        self._kept_bytes = 0
        # By owner: who waits, in order, and for what.
        self._waiting: dict[object, dict[Waiter, Wish]] = {}

    def rent(self, size: int, owner: object) -> RentedBuffer | None:
        """A buffer of at least `size` bytes, which counts as the least until more of it is `received`."""
        rounded = _rounded(size)
        if not self._fits(RENTED_BYTES_MIN, None, owner, self._rented_by.get(owner, 0), self.rented_bytes):
            return None
        self.count(RENTED_BYTES_MIN, owner)
        kept = self._kept.get(rounded)
        if kept:
            self._kept_bytes -= rounded
            buffer = kept.pop()
        else:
            buffer = RentedBuffer(rounded)
        buffer.counted_bytes = RENTED_BYTES_MIN
        return buffer

    def has_room(self, buffer: RentedBuffer, end: int, owner: object) -> bool:
        """True if a buffer may be filled up to `end`."""
        more = end - buffer.counted_bytes
        if more <= 0:
            return True
        return self._may_grow(more, buffer, owner, self._rented_by.get(owner, 0), self.rented_bytes)

    def _may_grow(self, more: int, buffer: RentedBuffer, owner: object, of_owner: int, of_all: int) -> bool:
        oldest = self._oldest.setdefault(owner, buffer)
        if self._fits(more, buffer, owner, of_owner, of_all):
            return True
        if self._ahead is None and buffer is oldest:
            self._ahead = buffer
            return True
        return False

    def received(self, buffer: RentedBuffer, filled: int, owner: object) -> None:
        """A buffer is filled so far."""
        if filled > buffer.counted_bytes:
            self.count(filled - buffer.counted_bytes, owner)
            buffer.counted_bytes = filled

    def _fits(self, more: int, buffer: RentedBuffer | None, owner: object, of_owner: int, of_all: int) -> bool:
        """True if an owner that has `of_owner` of `of_all` bytes may have `more` of them, for this buffer."""
        if of_owner + more <= self._owner_bytes_min:
            return True
        if buffer is not None and buffer is self._ahead:
            return True
        is_oldest = buffer is not None and buffer is self._oldest.get(owner)
        if of_owner + more > RENTED_BYTES_PER_OWNER_MAX and not is_oldest:
            return False
        if of_owner == of_all and (is_oldest or not of_all):
            return True
        return of_owner + more <= self._rented_bytes_max - of_all - more

    def count(self, change: int, owner: object) -> None:
        """Requests that are kept in memory of their own count as rented; afterwards `wake`."""
        self.rented_bytes += change
        left = self._rented_by.get(owner, 0) + change
        if left:
            self._rented_by[owner] = left
        else:
            self._rented_by.pop(owner, None)

    def rented_by(self, owner: object) -> int:
        return self._rented_by.get(owner, 0)

    def give_back(self, buffer: RentedBuffer, owner: object) -> None:
        if self._oldest.get(owner) is buffer:
            del self._oldest[owner]
        if self._ahead is buffer:
            self._ahead = None
        if buffer.counted_bytes > FREED_AT_ONCE_BYTES_MAX and self._soon is not None:
            self._leaving.append((buffer, owner))
            if len(self._leaving) == 1:
                self._soon(self._free_some)
            return
        self.count(-buffer.counted_bytes, owner)
        if buffer.size <= KEPT_SIZE_MAX and self._kept_bytes + buffer.size <= KEPT_BYTES_MAX:
            self._kept.setdefault(buffer.size, []).append(buffer)
            self._kept_bytes += buffer.size
        else:
            buffer.free()
        if self._waiting:
            self.wake()

    def _free_some(self) -> None:
        """Frees a part of a buffer that leaves. The rest of it stays rented until it is freed too."""
        buffer, owner = self._leaving[0]
        buffer.free_tail()
        left = min(buffer.counted_bytes, buffer.size)
        self.count(left - buffer.counted_bytes, owner)
        buffer.counted_bytes = left
        if not buffer.size:
            buffer.free()
            self._leaving.popleft()
        if self._leaving and self._soon is not None:
            self._soon(self._free_some)
        if self._waiting:
            self.wake()

    def wait(self, owner: object, waiter: Waiter, buffer: RentedBuffer | None = None, end: int = 0) -> None:
        """Calls `waiter.on_memory` once, when a buffer may be had, or `buffer` be filled up to `end`."""
        count_bytes = RENTED_BYTES_MIN if buffer is None else end - buffer.counted_bytes
        self._waiting.setdefault(owner, {})[waiter] = Wish(count_bytes, buffer)
        self.on_wait()

    def forget(self, owner: object, waiter: Waiter) -> None:
        """It waits no longer."""
        of_owner = self._waiting.get(owner)
        if of_owner is not None and of_owner.pop(waiter, None) is not None and not of_owner:
            del self._waiting[owner]

    def is_contended(self, owner: object) -> bool:
        """True if a connection of this owner waits for memory."""
        return owner in self._waiting

    @property
    def is_short(self) -> bool:
        """True if a connection waits for memory."""
        return bool(self._waiting)

    @property
    def missing_bytes(self) -> int:
        """Memory that has to be freed for the first connection that waits for other owners; 0: none does."""
        missing = []
        for owner, waiting in self._waiting.items():
            of_owner = self._rented_by.get(owner, 0)
            more, buffer = next(iter(waiting.values()))
            is_oldest = buffer is not None and buffer is self._oldest.get(owner)
            if is_oldest or of_owner + more <= RENTED_BYTES_PER_OWNER_MAX:  # else it waits for its own
                missing.append(of_owner + 2 * more + self.rented_bytes - self._rented_bytes_max)
        return max(0, min(missing, default=0))

    def wake(self) -> None:
        """Calls those whose turn it is. One that was called and then takes nothing calls this again, for the others."""
        of_all = self.rented_bytes
        for owner in tuple(self._waiting):
            of_owner = self._rented_by.get(owner, 0)
            waiting = self._waiting[owner]
            while waiting:
                waiter = next(iter(waiting))
                wish = waiting[waiter]
                more, buffer = wish
                if buffer is None:
                    has_room = self._fits(more, None, owner, of_owner, of_all)
                else:
                    has_room = self._may_grow(more, buffer, owner, of_owner, of_all)
                if not has_room:
                    break
                of_all += more
                of_owner += more
                del waiting[waiter]
                waiter.on_memory()
            if not waiting:
                del self._waiting[owner]

    def trim(self) -> None:
        """Frees what is kept; called when the broker has been quiet for a while."""
        for buffers in self._kept.values():
            for buffer in buffers:
                buffer.free()
        self._kept.clear()
        self._kept_bytes = 0


def _unwatched() -> None:
    """Does nothing, until `on_wait` is plugged in."""


class HeldFrame:
    """The buffer of a request that is processed in several turns. Threads that look into it have it `pin`ned."""

    __slots__ = ("_buffer", "_buffers", "_is_over", "_owner", "_pins")

    def __init__(self, buffers: FrameBuffers, buffer: RentedBuffer, owner: object) -> None:
        self._buffers = buffers
        self._buffer: RentedBuffer | None = buffer
        self._owner = owner
        self._pins = 0
        self._is_over = False

    def pin(self) -> None:
        """Until `unpin`, it is not given back."""
        self._pins += 1

    def unpin(self) -> None:
        self._pins -= 1
        if self._is_over:
            self.release()

    def release(self) -> None:
        """The request is over. Harmless when repeated."""
        self._is_over = True
        buffer = self._buffer
        if buffer is not None and not self._pins:
            self._buffer = None
            self._buffers.give_back(buffer, self._owner)
