"""Going through a file that lies on the disk: a thread goes first, the loop follows (decision 55).

The kernel reads ahead by itself, within whichever call meets a mark that it left in the page cache: it finds memory for
some megabytes and hands them to the disk. That takes milliseconds when memory is full, and asking whether a page is
cached counts as reading it. So behind the place that a thread has come to, the loop does not even ask.
"""

from __future__ import annotations

import os
import resource
from typing import Final

from brokers.engine.page_cache import leave_alone, read_into_cache

# What a thread goes through at a time for a reader that goes on where it had come to.
PREFETCHED_BYTES: Final = 2_097_152
# How far from that place the kernel may have left marks: as far as it reads ahead.
MARKED_BYTES: Final = 8_388_608
# When the disk had no part in so much, the rest is taken to be in memory as well.
WARM_BYTES: Final = 33_554_432
# Readers at different places of one file that are told apart.
READERS_MAX: Final = 4

# How far a thread has come for one reader, and how many of the last bytes it found in memory.
Front = tuple[int, int]


class ReadAhead:
    """Of one file. Threads and the loop may use it at once: what one of them overwrites costs a question or a trip to a
    thread, never a wrong byte.

    Threads keep descriptors of their own while a reader goes on: with each the kernel remembers how far it reads ahead,
    and for a fresh one it begins with small pieces, which cost three times the work.
    """

    __slots__ = ("_fronts", "_spare")

    def __init__(self) -> None:
        self._fronts: tuple[Front, ...] = ()
        self._spare: list[int] = []  # open, and no thread reads from them

    def is_beyond(self, position: int, end: int) -> bool:
        """Whether some of the range is for a thread to go through first."""
        beyond = False
        for until, _ in self._fronts:
            if until - MARKED_BYTES <= position < until + MARKED_BYTES:
                if end <= until:
                    return False
                beyond = True
        return beyond

    def prefetch(self, fd: int, position: int, length: int) -> None:
        """Brings the range into the page cache, and more behind it for a reader who goes on; waits for the disk.

        `fd` is what the loop reads from. Raises OSError.
        """
        end = position + length
        found_bytes = 0
        others = []
        for front in self._fronts:
            until = front[0]
            if until - MARKED_BYTES <= position <= until + PREFETCHED_BYTES:
                position = min(position, until)  # marks in the gap are not for the loop either
                end = max(end, position + PREFETCHED_BYTES)
                found_bytes = front[1]
            else:
                others.append(front)
        own = self._take(fd)
        try:
            before = _blocks_read()
            end = read_into_cache(own, position, end - position)
            found_bytes = found_bytes + end - position if _blocks_read() == before else 0
            is_whole = end >= os.fstat(own).st_size
        finally:
            if own != fd:
                self._spare.append(own)
        if not is_whole and found_bytes < WARM_BYTES:
            others.append((end, found_bytes))
        self._fronts = tuple(others[-READERS_MAX:])
        if not others:
            self._close_spare()

    def clear(self) -> None:
        """The descriptor is closed: whoever opens the file again begins anew."""
        self._fronts = ()
        self._close_spare()

    def _take(self, fd: int) -> int:
        """The same file once more: a descriptor for which the kernel still reads ahead. `fd` itself if there is none
        left, which is slower.
        """
        try:
            return self._spare.pop()
        except IndexError:
            leave_alone(fd)
        try:
            return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return fd

    def _close_spare(self) -> None:
        while True:
            try:
                os.close(self._spare.pop())
            except IndexError:
                return


def _blocks_read() -> int:
    """By this thread, from a disk, since it began."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock
