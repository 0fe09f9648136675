"""What of a file lies in memory already, and how the rest gets there.

The loop may read what is cached and nothing else: a disk that takes its time would hold up every client. `is_cached`
and `read_cached` never wait for it, but may make the kernel read ahead, which `storage.read_ahead` prevents;
`read_into_cache` waits, and belongs in a thread (decision 55).
"""

from __future__ import annotations

import os
from typing import Final

# How far apart the samples of `is_cached` lie: what the kernel reads ahead at once, unless told otherwise.
SAMPLED_BYTES: Final = 131_072

_NOWAIT: Final = os.RWF_NOWAIT
_SAMPLE: Final = [bytearray(1)]
_NOWHERE: Final = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def is_cached(fd: int, position: int, length: int) -> bool:
    """Whether `length` > 0 bytes can be read without waiting, as far as samples tell; up to `SAMPLED_BYTES` the last
    byte stands for all.

    True as well where nobody can tell: a file system in memory, or one without this question.
    """
    end = position + length
    try:
        if length > SAMPLED_BYTES:
            for at in range(position, end, SAMPLED_BYTES):
                os.preadv(fd, _SAMPLE, at, _NOWAIT)
        os.preadv(fd, _SAMPLE, end - 1, _NOWAIT)
    except BlockingIOError:
        return False
    except OSError:  # what is wrong, the reading itself will say
        return True
    return True


def read_cached(fd: int, length: int, position: int) -> bytes | None:
    """As `os.pread`, but None when that would wait for the disk. Raises OSError."""
    data = bytearray(length)
    try:
        count = os.preadv(fd, [data], position, _NOWAIT)
    except BlockingIOError:
        return None
    except OSError:
        return os.pread(fd, length, position)
    if count == length:
        return bytes(data)
    # Either the end of the file or the end of what is cached.
    return bytes(data[:count]) if position + count >= os.fstat(fd).st_size else None


def read_into_cache(fd: int, position: int, length: int) -> int:
    """Reads the range into the page cache and nowhere else, waiting for the disk; where it ended, which is before its
    end only at the end of the file. Raises OSError.
    """
    end = position + length
    while position < end:
        count = os.sendfile(_NOWHERE, fd, position, end - position)
        if count == 0:
            return position
        position += count
    return position


def leave_alone(fd: int) -> None:
    """Whoever reads from this descriptor makes the kernel read what is asked for, and nothing ahead of it."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
