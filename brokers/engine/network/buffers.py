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
from typing import Protocol

SHARED_BYTES = 65_536
RENTED_BYTES_MIN = 131_072
# Announced bytes of all half-received large frames together; more of them wait their turn unread.
RENTED_BYTES_MAX = 536_870_912
# Of one owner; a frame that is longer is received when its owner receives no other.
RENTED_BYTES_PER_OWNER_MAX = 33_554_432
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
    """`view` is writable; pages cost memory only once they are written."""

    __slots__ = ("_map", "size", "view")

    def __init__(self, size: int) -> None:
        # Pages of a shared mapping would take twice as long to free.
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.size = size
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
    """A frame that is being received into a buffer of its own. `view` is whole once `receive` answered True."""

    __slots__ = ("_filled", "buffer", "size_bytes")

    def __init__(self, buffer: RentedBuffer, size_bytes: int, received: memoryview) -> None:
        self.buffer = buffer
        self.size_bytes = size_bytes
        self._filled = len(received)
        buffer.view[: self._filled] = received

    def receive(self, sock: socket) -> bool:
        """Takes what is there. Raises OSError, also when the peer is gone."""
        end = min(self.size_bytes, self._filled + RECEIVED_AT_ONCE_BYTES_MAX)
        count = sock.recv_into(self.buffer.view[self._filled : end])
        if not count:
            raise ConnectionAbortedError(0, "closed by the peer")
        self._filled += count
        return self._filled == self.size_bytes


class Waiter(Protocol):
    """Who waits for a buffer."""

    def on_memory(self) -> None:
        """It may be had now. Called inside somebody else's request."""


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
    """`shared` is written by whoever reads a socket now. `rent` answers None when too much is lent out.

    Owners are instances. What one has rented may not exceed what it leaves free for all others, so that nobody who
    announces large frames and never sends them keeps others from sending theirs.

    `soon` calls what it is given in the next round of the loop. Without it large buffers are freed at once.
    """

    def __init__(
        self, rented_bytes_max: int = RENTED_BYTES_MAX, soon: Callable[[Callable[[], None]], object] | None = None
    ) -> None:
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self.rented_bytes = 0
        self._rented_bytes_max = rented_bytes_max
        self._soon = soon
        self._leaving: deque[tuple[RentedBuffer, object]] = deque()
        self._rented_by: dict[object, int] = {}
        self._kept: dict[int, list[RentedBuffer]] = {}
        self._kept_bytes = 0
        # By owner: who waits, in order, and for how much.
        self._waiting: dict[object, dict[Waiter, int]] = {}

    def rent(self, size: int, owner: object) -> RentedBuffer | None:
        """A buffer of at least `size` bytes."""
        rounded = _rounded(size)
        if not self._fits(rounded, self._rented_by.get(owner, 0), self.rented_bytes):
            return None
        self.count(rounded, owner)
        kept = self._kept.get(rounded)
        if kept:
            self._kept_bytes -= rounded
            return kept.pop()
        return RentedBuffer(rounded)

    def _fits(self, rounded: int, of_owner: int, of_all: int) -> bool:
        """Whether who has rented `of_owner` of `of_all` may have `rounded` bytes more."""
        if of_owner and of_owner + rounded > RENTED_BYTES_PER_OWNER_MAX:
            return False
        return not of_all or of_owner + rounded <= self._rented_bytes_max - of_all - rounded

    def count(self, change: int, owner: object) -> None:
        """Requests that are kept in memory of their own count as rented; afterwards `wake`."""
        self.rented_bytes += change
        left = self._rented_by.get(owner, 0) + change
        if left:
            self._rented_by[owner] = left
        else:
            self._rented_by.pop(owner, None)

    def give_back(self, buffer: RentedBuffer, owner: object) -> None:
        if buffer.size > FREED_AT_ONCE_BYTES_MAX and self._soon is not None:
            self._leaving.append((buffer, owner))
            if len(self._leaving) == 1:
                self._soon(self._free_some)
            return
        self.count(-buffer.size, owner)
        if buffer.size <= KEPT_SIZE_MAX and self._kept_bytes + buffer.size <= KEPT_BYTES_MAX:
            self._kept.setdefault(buffer.size, []).append(buffer)
            self._kept_bytes += buffer.size
        else:
            buffer.free()
        if self._waiting:
            self.wake()

    def _free_some(self) -> None:
        """Of one that leaves. The rest of it stays rented until it is freed too."""
        buffer, owner = self._leaving[0]
        self.count(-buffer.free_tail(), owner)
        if not buffer.size:
            buffer.free()
            self._leaving.popleft()
        if self._leaving and self._soon is not None:
            self._soon(self._free_some)
        if self._waiting:
            self.wake()

    def wait(self, size: int, owner: object, waiter: Waiter) -> None:
        """Calls `waiter.on_memory` once, when `size` bytes may be had."""
        self._waiting.setdefault(owner, {})[waiter] = _rounded(size)

    def forget(self, owner: object, waiter: Waiter) -> None:
        """It waits no longer."""
        of_owner = self._waiting.get(owner)
        if of_owner is not None and of_owner.pop(waiter, None) is not None and not of_owner:
            del self._waiting[owner]

    def is_contended(self, owner: object) -> bool:
        """Whether somebody of this owner waits for a buffer."""
        return owner in self._waiting

    def wake(self) -> None:
        """Tells those whose turn it is. Who was told and then takes nothing calls this again, for the others."""
        of_all = self.rented_bytes
        for owner in tuple(self._waiting):
            of_owner = self._rented_by.get(owner, 0)
            waiting = self._waiting[owner]
            while waiting:
                waiter = next(iter(waiting))
                rounded = waiting[waiter]
                if not self._fits(rounded, of_owner, of_all):
                    break
                of_all += rounded
                of_owner += rounded
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
