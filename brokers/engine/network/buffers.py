"""Memory for frames. Small frames use one receive buffer that all connections share, large ones use rented buffers.

A small frame is consumed during the call that hands it over, so the shared buffer is free again before the next read.
An idle connection has no buffer.
"""

from __future__ import annotations

import contextlib
import mmap
from collections import deque
from collections.abc import Callable
from socket import socket
from typing import NamedTuple, Protocol

from brokers.contract.connections import (
    RECEIVED_BYTES_PER_INSTANCE_MAX,
    RECEIVED_BYTES_PER_INSTANCE_MIN,
    RECEIVED_BYTES_PER_TENANT_MAX,
    UNSENT_BYTES_PER_INSTANCE_MAX,
)

SHARED_BYTES = 65_536
RENTED_BYTES_MIN = 131_072
# Maximum of the received bytes of all large frames, each of which counts as `RENTED_BYTES_MIN` at least; further ones
# stay unread. One frame at a time may exceed the limit, so that frames that are all half received can be completed.
RENTED_BYTES_MAX = 536_870_912
# Maximum of the received bytes of one owner (an instance) and of one tenant, and the bytes that each owner can use
# whatever other tenants do.
RENTED_BYTES_PER_OWNER_MAX = RECEIVED_BYTES_PER_INSTANCE_MAX
RENTED_BYTES_PER_TENANT_MAX = RECEIVED_BYTES_PER_TENANT_MAX
RENTED_BYTES_PER_OWNER_MIN = RECEIVED_BYTES_PER_INSTANCE_MIN
# Number of owners of one tenant that can use their minimum at the same time while other tenants use all memory.
MINIMA_PER_TENANT = 4
# Maximum size of a buffer that is pooled for the next large frame, and of all pooled buffers together.
POOLED_SIZE_MAX = 2_097_152
POOLED_BYTES_MAX = 8_388_608
# Limits of bytes in small requests that are incomplete or cannot be processed yet. Beyond them, a connection reads only
# to the end of its current request, and rents a buffer for that request unless it is tiny.
UNREAD_BYTES_PER_INSTANCE_MAX = 12_582_912
UNREAD_BYTES_PER_TENANT_MAX = 4 * UNREAD_BYTES_PER_INSTANCE_MAX
UNREAD_BYTES_MAX = 134_217_728
TINY_BYTES_MAX = 1_024
# Maximum number of bytes in one turn of the event loop: the kernel takes time for each page that is first written or
# freed.
RECEIVED_AT_ONCE_BYTES_MAX = 2_097_152
FREED_AT_ONCE_BYTES_MAX = 8_388_608


class RentedBuffer:
    """Memory for one frame; pages use memory when written. `counted_bytes` are charged to its owner."""

    __slots__ = ("_map", "counted_bytes", "size", "view")

    def __init__(self, size: int) -> None:
        # Freeing the pages of a shared mapping would take twice as long.
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.size = size
        self.counted_bytes = 0
        self.view = memoryview(self._map)

    def free_tail(self) -> int:
        """Frees as much of the end as one turn allows, and returns its bytes; the buffer is then unusable."""
        freed_bytes = min(FREED_AT_ONCE_BYTES_MAX, self.size)
        self.size -= freed_bytes
        begin = self.size - self.size % mmap.PAGESIZE
        self._map.madvise(mmap.MADV_DONTNEED, begin, self.size + freed_bytes - begin)
        return freed_bytes

    def free(self) -> None:
        # A traceback, for example, may still refer to a part of the view: its last reference then frees the memory.
        with contextlib.suppress(BufferError):
            self.view.release()
            self._map.close()


class LargeFrame:
    """A frame that is being received into its own buffer. `view` is complete when `receive` has returned True.
    `checked_bytes` is the value of `filled_bytes` at the last check under memory shortage, -1 before the first.
    """

    __slots__ = ("buffer", "checked_bytes", "filled_bytes", "size_bytes")

    def __init__(self, buffer: RentedBuffer, size_bytes: int, received: memoryview) -> None:
        self.buffer = buffer
        self.size_bytes = size_bytes
        self.filled_bytes = len(received)
        self.checked_bytes = -1
        buffer.view[: self.filled_bytes] = received

    @property
    def end(self) -> int:
        """Returns the position up to which the next `receive` may fill the buffer."""
        return min(self.size_bytes, self.filled_bytes + RECEIVED_AT_ONCE_BYTES_MAX)

    def receive(self, sock: socket) -> bool:
        """Receives available bytes. True if the frame is complete. Raises OSError, also if the peer has closed."""
        count = sock.recv_into(self.buffer.view[self.filled_bytes : self.end])
        if not count:
            raise ConnectionAbortedError(0, "closed by the peer")
        self.filled_bytes += count
        return self.filled_bytes == self.size_bytes


class MemoryWaiter(Protocol):
    """A connection that waits for memory."""

    def on_memory(self) -> None:
        """Called when memory is available, inside the request of another connection."""


class MemoryNeed(NamedTuple):
    """Memory that a waiting connection needs for its `buffer`, or for a new one (None)."""

    needed_bytes: int
    buffer: RentedBuffer | None


class Usage(NamedTuple):
    """Rented bytes of one owner, of all owners of its tenant, and of the broker."""

    owner_bytes: int
    tenant_bytes: int
    total_bytes: int


class UnreadBytes:
    """Number of bytes received but not processed, of one instance, one tenant or the broker. `parent` is the number of
    the instance's tenant, or for a tenant that of the broker.
    """

    __slots__ = ("_bytes_max", "_parent", "count")

    def __init__(self, parent: UnreadBytes | None = None, bytes_max: int = UNREAD_BYTES_MAX) -> None:
        self._parent = parent
        self._bytes_max = bytes_max
        self.count = 0

    def add(self, change_bytes: int) -> None:
        """Adds a number of bytes, which is negative for processed ones."""
        self.count += change_bytes
        if self._parent is not None:
            self._parent.add(change_bytes)

    def move_to(self, parent: UnreadBytes) -> None:
        """Moves the count of an instance to another tenant."""
        if self._parent is not None:
            self._parent.add(-self.count)
        self._parent = parent
        parent.add(self.count)

    @property
    def is_over_limit(self) -> bool:
        """True if connections should read only to the end of their current request."""
        return self.count > self._bytes_max or (self._parent is not None and self._parent.is_over_limit)


def _round_up(size: int) -> int:
    return max(RENTED_BYTES_MIN, 1 << (size - 1).bit_length()) if size <= POOLED_SIZE_MAX else size


class FrameBuffers:
    """Memory for the frames of all connections. `shared` is written by the connection that is reading its socket.
    `rent` returns None if too much memory is rented.

    Owners are instances. A frame is charged by its received bytes, so that announcing a size takes no memory. The
    memory of a tenant's owners may not exceed the memory that remains free, but `MINIMA_PER_TENANT` of them can use
    `RENTED_BYTES_PER_OWNER_MIN` in any case. `on_wait` is called when a connection begins to wait for memory.

    `call_soon` schedules a callback for the next iteration of the event loop. Without it large buffers are freed at
    once.
    """

    def __init__(
        self,
        rented_bytes_max: int = RENTED_BYTES_MAX,
        call_soon: Callable[[Callable[[], None]], object] | None = None,
        owner_bytes_min: int = RENTED_BYTES_PER_OWNER_MIN,
    ) -> None:
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self.rented_bytes = 0
        self.on_wait: Callable[[], object] = lambda: None
        self._rented_bytes_max = rented_bytes_max
        self._owner_bytes_min = owner_bytes_min
        self._call_soon = call_soon
        self._buffers_to_free: deque[tuple[RentedBuffer, object]] = deque()
        self._rented_bytes_by_owner: dict[object, int] = {}
        # Tenants of owners, and their memory. An owner without a tenant is counted alone.
        self._tenant_by_owner: dict[object, object] = {}
        self._rented_bytes_by_tenant: dict[object, int] = {}
        # The buffer of each owner that may exceed the owner's limit, and the one that may exceed the limit of all.
        self._oldest_buffer_by_owner: dict[object, RentedBuffer] = {}
        self._over_limit_buffer: RentedBuffer | None = None
        self._pool_by_size: dict[int, list[RentedBuffer]] = {}
        self._pooled_bytes = 0
        # Waiting connections of each owner in order, with the memory that they need.
        self._waiters_by_owner: dict[object, dict[MemoryWaiter, MemoryNeed]] = {}

    def assign(self, owner: object, tenant: object | None) -> None:
        """Counts the memory of an owner as a tenant's from now on; `tenant` is None when the owner is removed."""
        rented_bytes = self._rented_bytes_by_owner.get(owner, 0)
        previous_tenant = self._tenant_by_owner.pop(owner, None)
        if previous_tenant is not None:
            self._charge_tenant(previous_tenant, -rented_bytes)
        if tenant is not None:
            self._tenant_by_owner[owner] = tenant
            self._charge_tenant(tenant, rented_bytes)
        if self._waiters_by_owner:
            self.wake()

    def tenant_rented_bytes(self, owner: object) -> int:
        """Returns the rented bytes of the owner's tenant, or of the owner alone if it has no tenant."""
        tenant = self._tenant_by_owner.get(owner)
        return (
            self._rented_bytes_by_owner.get(owner, 0) if tenant is None else self._rented_bytes_by_tenant.get(tenant, 0)
        )

    def rent(self, size: int, owner: object) -> RentedBuffer | None:
        """Returns a buffer of at least `size` bytes, charged with the minimum at first; None if too much is rented."""
        pooled_size = _round_up(size)
        if not self._is_within_limits(RENTED_BYTES_MIN, None, owner, self._usage(owner)):
            return None
        self.charge(RENTED_BYTES_MIN, owner)
        pooled = self._pool_by_size.get(pooled_size)
        if pooled:
            self._pooled_bytes -= pooled_size
            buffer = pooled.pop()
        else:
            buffer = RentedBuffer(pooled_size)
        buffer.counted_bytes = RENTED_BYTES_MIN
        return buffer

    def has_room(self, buffer: RentedBuffer, end: int, owner: object) -> bool:
        """True if a buffer may be filled up to `end`."""
        more_bytes = end - buffer.counted_bytes
        if more_bytes <= 0:
            return True
        return self._may_grow(more_bytes, buffer, owner, self._usage(owner))

    def _usage(self, owner: object) -> Usage:
        return Usage(self._rented_bytes_by_owner.get(owner, 0), self.tenant_rented_bytes(owner), self.rented_bytes)

    def _may_grow(self, more_bytes: int, buffer: RentedBuffer, owner: object, usage: Usage) -> bool:
        oldest = self._oldest_buffer_by_owner.setdefault(owner, buffer)
        if self._is_within_limits(more_bytes, buffer, owner, usage):
            return True
        if self._over_limit_buffer is None and buffer is oldest:
            self._over_limit_buffer = buffer
            return True
        return False

    def charge_received(self, buffer: RentedBuffer, filled_bytes: int, owner: object) -> None:
        """Charges the owner for a buffer that is filled up to `filled_bytes`."""
        if filled_bytes > buffer.counted_bytes:
            self.charge(filled_bytes - buffer.counted_bytes, owner)
            buffer.counted_bytes = filled_bytes

    def _is_within_limits(self, more_bytes: int, buffer: RentedBuffer | None, owner: object, usage: Usage) -> bool:
        """True if an owner may have `more_bytes` more for this buffer."""
        owner_bytes, tenant_bytes, total_bytes = usage
        tenant_bytes_min = MINIMA_PER_TENANT * self._owner_bytes_min
        if owner_bytes + more_bytes <= self._owner_bytes_min and tenant_bytes + more_bytes <= tenant_bytes_min:
            return True
        if buffer is not None and buffer is self._over_limit_buffer:
            return True
        is_oldest = buffer is not None and buffer is self._oldest_buffer_by_owner.get(owner)
        is_within_tenant = tenant_bytes + more_bytes <= RENTED_BYTES_PER_TENANT_MAX
        if not (is_oldest or (is_within_tenant and owner_bytes + more_bytes <= RENTED_BYTES_PER_OWNER_MAX)):
            return False
        if tenant_bytes == total_bytes and (is_oldest or not total_bytes):
            return True
        return tenant_bytes + more_bytes <= self._rented_bytes_max - total_bytes - more_bytes

    def charge(self, change_bytes: int, owner: object) -> None:
        """Changes the bytes charged to an owner, for buffers and other memory; call `wake` after a reduction."""
        self.rented_bytes += change_bytes
        remaining = self._rented_bytes_by_owner.get(owner, 0) + change_bytes
        if remaining:
            self._rented_bytes_by_owner[owner] = remaining
        else:
            self._rented_bytes_by_owner.pop(owner, None)
        tenant = self._tenant_by_owner.get(owner)
        if tenant is not None:
            self._charge_tenant(tenant, change_bytes)

    def _charge_tenant(self, tenant: object, change_bytes: int) -> None:
        remaining = self._rented_bytes_by_tenant.get(tenant, 0) + change_bytes
        if remaining:
            self._rented_bytes_by_tenant[tenant] = remaining
        else:
            self._rented_bytes_by_tenant.pop(tenant, None)

    def owner_rented_bytes(self, owner: object) -> int:
        return self._rented_bytes_by_owner.get(owner, 0)

    def return_buffer(self, buffer: RentedBuffer, owner: object) -> None:
        if self._oldest_buffer_by_owner.get(owner) is buffer:
            del self._oldest_buffer_by_owner[owner]
        if self._over_limit_buffer is buffer:
            self._over_limit_buffer = None
        if buffer.counted_bytes > FREED_AT_ONCE_BYTES_MAX and self._call_soon is not None:
            self._buffers_to_free.append((buffer, owner))
            if len(self._buffers_to_free) == 1:
                self._call_soon(self._free_part)
            return
        self.charge(-buffer.counted_bytes, owner)
        if buffer.size <= POOLED_SIZE_MAX and self._pooled_bytes + buffer.size <= POOLED_BYTES_MAX:
            self._pool_by_size.setdefault(buffer.size, []).append(buffer)
            self._pooled_bytes += buffer.size
        else:
            buffer.free()
        if self._waiters_by_owner:
            self.wake()

    def _free_part(self) -> None:
        """Frees a part of a returned buffer. The rest stays charged until it is freed, too."""
        buffer, owner = self._buffers_to_free[0]
        buffer.free_tail()
        remaining = min(buffer.counted_bytes, buffer.size)
        self.charge(remaining - buffer.counted_bytes, owner)
        buffer.counted_bytes = remaining
        if not buffer.size:
            buffer.free()
            self._buffers_to_free.popleft()
        if self._buffers_to_free and self._call_soon is not None:
            self._call_soon(self._free_part)
        if self._waiters_by_owner:
            self.wake()

    def await_memory(
        self, owner: object, waiter: MemoryWaiter, buffer: RentedBuffer | None = None, end: int = 0
    ) -> None:
        """Calls `waiter.on_memory` once, when a buffer can be rented, or `buffer` can be filled up to `end`."""
        needed_bytes = RENTED_BYTES_MIN if buffer is None else end - buffer.counted_bytes
        self._waiters_by_owner.setdefault(owner, {})[waiter] = MemoryNeed(needed_bytes, buffer)
        self.on_wait()

    def cancel_wait(self, owner: object, waiter: MemoryWaiter) -> None:
        """Removes a connection from those that wait for memory."""
        waiting = self._waiters_by_owner.get(owner)
        if waiting is not None and waiting.pop(waiter, None) is not None and not waiting:
            del self._waiters_by_owner[owner]

    def is_contended(self, owner: object) -> bool:
        """True if a connection of this owner waits for memory."""
        return owner in self._waiters_by_owner

    @property
    def is_short(self) -> bool:
        """True if any connection waits for memory."""
        return bool(self._waiters_by_owner)

    @property
    def missing_bytes(self) -> int:
        """Returns the least number of bytes to free before a waiting connection can continue; 0 if every connection
        waits because of limits of its own owner or tenant.
        """
        missing = []
        for owner, waiting in self._waiters_by_owner.items():
            owner_bytes, tenant_bytes, total_bytes = self._usage(owner)
            more_bytes, buffer = next(iter(waiting.values()))
            is_oldest = buffer is not None and buffer is self._oldest_buffer_by_owner.get(owner)
            is_within_tenant = tenant_bytes + more_bytes <= RENTED_BYTES_PER_TENANT_MAX
            # Otherwise the owner or its tenant has to free memory first.
            if is_oldest or (is_within_tenant and owner_bytes + more_bytes <= RENTED_BYTES_PER_OWNER_MAX):
                missing.append(tenant_bytes + 2 * more_bytes + total_bytes - self._rented_bytes_max)
        return max(0, min(missing, default=0))

    def wake(self) -> None:
        """Notifies waiting connections in order while there is memory; one that takes none must call `wake`."""
        total_bytes = self.rented_bytes
        granted_bytes_by_tenant: dict[object, int] = {}  # to owners of the same tenant that have not taken it yet
        for owner in tuple(self._waiters_by_owner):
            tenant = self._tenant_by_owner.get(owner, owner)
            owner_bytes = self._rented_bytes_by_owner.get(owner, 0)
            tenant_bytes = self.tenant_rented_bytes(owner) + granted_bytes_by_tenant.get(tenant, 0)
            waiting = self._waiters_by_owner[owner]
            while waiting:
                waiter = next(iter(waiting))
                more_bytes, buffer = waiting[waiter]
                usage = Usage(owner_bytes, tenant_bytes, total_bytes)
                if buffer is None:
                    has_room = self._is_within_limits(more_bytes, None, owner, usage)
                else:
                    has_room = self._may_grow(more_bytes, buffer, owner, usage)
                if not has_room:
                    break
                total_bytes += more_bytes
                owner_bytes += more_bytes
                tenant_bytes += more_bytes
                granted_bytes_by_tenant[tenant] = granted_bytes_by_tenant.get(tenant, 0) + more_bytes
                del waiting[waiter]
                waiter.on_memory()
            if not waiting:
                del self._waiters_by_owner[owner]

    def trim(self) -> None:
        """Frees the pooled buffers; called when the broker has been idle for a while."""
        for buffers in self._pool_by_size.values():
            for buffer in buffers:
                buffer.free()
        self._pool_by_size.clear()
        self._pooled_bytes = 0


class RetainedFrame:
    """The buffer of a request that is processed in several turns. Threads that read it `pin` it."""

    __slots__ = ("_buffer", "_buffers", "_is_released", "_owner", "_pins")

    def __init__(self, buffers: FrameBuffers, buffer: RentedBuffer, owner: object) -> None:
        self._buffers = buffers
        self._buffer: RentedBuffer | None = buffer
        self._owner = owner
        self._pins = 0
        self._is_released = False

    def pin(self) -> None:
        """Keeps the buffer until `unpin`."""
        self._pins += 1

    def unpin(self) -> None:
        self._pins -= 1
        if self._is_released:
            self.release()

    def release(self) -> None:
        """Releases the buffer at the end of the request. May be repeated."""
        self._is_released = True
        buffer = self._buffer
        if buffer is not None and not self._pins:
            self._buffer = None
            self._buffers.return_buffer(buffer, self._owner)


class UnsentBytes:
    """Memory of responses that clients do not read (I.6), of one instance, or of a tenant with all its instances.
    `on_excess` is called inside a request when there are too many bytes. Slices of files are not counted: they are sent
    from the page cache.
    """

    __slots__ = ("_bytes_max", "_on_excess", "_parent", "count")

    def __init__(
        self,
        on_excess: Callable[[], object] | None = None,
        bytes_max: int = UNSENT_BYTES_PER_INSTANCE_MAX,
        parent: UnsentBytes | None = None,
    ) -> None:
        self._on_excess = on_excess
        self._bytes_max = bytes_max
        self._parent = parent
        self.count = 0

    @property
    def is_over_limit(self) -> bool:
        return self.count > self._bytes_max

    def add(self, count: int) -> None:
        self.count += count
        if self._parent is not None:
            self._parent.add(count)
        if self.count > self._bytes_max and self._on_excess is not None:
            self._on_excess()

    def remove(self, count: int) -> None:
        self.count -= count
        if self._parent is not None:
            self._parent.remove(count)

    def move_to(self, parent: UnsentBytes) -> None:
        """Moves the count of an instance to another tenant."""
        if self._parent is not None:
            self._parent.remove(self.count)
        self._parent = parent
        parent.add(self.count)
