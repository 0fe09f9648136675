"""Sequential reads of a file that is not in the page cache: a thread reads ahead of the event loop (decision 55).

The kernel reads ahead within any call that meets a mark it left in the page cache: it allocates some megabytes of
memory and starts the disk reads. That takes milliseconds when memory is full, and even a check for a cached page counts
as a read. So the loop does not check pages beyond the position that a thread has reached.
"""

from __future__ import annotations

import os
import resource
from typing import Final

from brokers.engine.page_cache import disable_readahead, read_into_cache

# Bytes that a thread reads at a time for a sequential reader.
PREFETCHED_BYTES: Final = 2_097_152
# Distance from the thread's position within which the kernel may have left marks: its read-ahead size.
MARKED_BYTES: Final = 8_388_608
# Number of bytes without a disk read after which the remaining file is assumed to be cached.
WARM_BYTES: Final = 33_554_432
# Maximum number of read positions in one file that are tracked separately.
READERS_MAX: Final = 4

# (position that a thread has reached for one reader, number of bytes since the last disk read)
Front = tuple[int, int]


class ReadAhead:
    """Read-ahead state of one file.

    Threads and the loop may use it concurrently: a lost update costs a check or a trip to a thread, never a wrong byte.
    Threads keep their own descriptors while a reader continues: the kernel keeps the read-ahead size per descriptor and
    starts with small reads for a new one, which take three times the work.
    """

    __slots__ = ("_fronts", "_spare_descriptors")

    def __init__(self) -> None:
        self._fronts: tuple[Front, ...] = ()
        self._spare_descriptors: list[int] = []  # open descriptors that no thread is using

    def must_prefetch(self, position: int, end: int) -> bool:
        """True if a thread must read part of the range first."""
        is_near_front = False
        for front_position, _ in self._fronts:
            if front_position - MARKED_BYTES <= position < front_position + MARKED_BYTES:
                if end <= front_position:
                    return False
                is_near_front = True
        return is_near_front

    def prefetch(self, fd: int, position: int, length: int) -> None:
        """Reads the range into the page cache, and more behind it for a sequential reader; waits for the disk.

        `fd` is the descriptor that the loop reads from. Raises OSError.
        """
        end = position + length
        warm_bytes = 0
        other_fronts = []
        for front in self._fronts:
            front_position = front[0]
            if front_position - MARKED_BYTES <= position <= front_position + PREFETCHED_BYTES:
                position = min(position, front_position)  # marks in the gap must not be met by the loop either
                end = max(end, position + PREFETCHED_BYTES)
                warm_bytes = front[1]
            else:
                other_fronts.append(front)
        own_fd = self._acquire_descriptor(fd)
        try:
            blocks_before = count_blocks_read()
            end = read_into_cache(own_fd, position, end - position)
            warm_bytes = warm_bytes + end - position if count_blocks_read() == blocks_before else 0
            reaches_file_end = end >= os.fstat(own_fd).st_size
        finally:
            if own_fd != fd:
                self._spare_descriptors.append(own_fd)
        if not reaches_file_end and warm_bytes < WARM_BYTES:
            other_fronts.append((end, warm_bytes))
        self._fronts = tuple(other_fronts[-READERS_MAX:])
        if not other_fronts:
            self._close_spare()

    def clear(self) -> None:
        """Resets the state when the descriptor is closed."""
        self._fronts = ()
        self._close_spare()

    def _acquire_descriptor(self, fd: int) -> int:
        """Returns a second descriptor of the file, for which the kernel reads ahead.

        Returns `fd` itself if no descriptor is left, which is slower.
        """
        try:
            return self._spare_descriptors.pop()
        except IndexError:
            disable_readahead(fd)
        try:
            return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return fd

    def _close_spare(self) -> None:
        while True:
            try:
                os.close(self._spare_descriptors.pop())
            except IndexError:
                return


def count_blocks_read() -> int:
    """Returns the number of disk blocks that this thread has read since it began."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock
