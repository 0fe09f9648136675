"""Reads of files that fail instead of waiting for the disk, and reads into the page cache.

The event loop may only read what is cached: waiting for a disk would delay every client. `is_cached` and `read_cached`
never wait for it, but may cause kernel readahead, which `storage.read_ahead` prevents; `read_into_cache` waits, and
belongs in a thread (decision 55).
"""

from __future__ import annotations

import os
from typing import Final

# Distance of the samples of `is_cached`: the kernel's default readahead.
SAMPLED_BYTES: Final = 131_072

_NOWAIT: Final = os.RWF_NOWAIT
_SAMPLE: Final = [bytearray(1)]
_DEV_NULL: Final = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def is_cached(fd: int, position: int, length: int) -> bool:
    """True if `length` > 0 bytes can be read without waiting, judged by one byte in each `SAMPLED_BYTES` and the last.

    Also True if the file system is in memory or does not support this check.
    """
    end = position + length
    try:
        if length > SAMPLED_BYTES:
            for sample_position in range(position, end, SAMPLED_BYTES):
                os.preadv(fd, _SAMPLE, sample_position, _NOWAIT)
        os.preadv(fd, _SAMPLE, end - 1, _NOWAIT)
    except BlockingIOError:
        return False
    except OSError:  # the read itself will report the error
        return True
    return True


def read_cached(fd: int, length: int, position: int) -> bytes | None:
    """Reads like `os.pread`, but returns None if that would wait for the disk. Raises OSError."""
    data = bytearray(length)
    try:
        count = os.preadv(fd, [data], position, _NOWAIT)
    except BlockingIOError:
        return None
    except OSError:
        return os.pread(fd, length, position)
    if count == length:
        return bytes(data)
    # Either the end of the file or the end of the cached part.
    return bytes(data[:count]) if position + count >= os.fstat(fd).st_size else None


def read_into_cache(fd: int, position: int, length: int) -> int:
    """Reads the range into the page cache only, waiting for the disk. Returns the end of the part that was read, which
    is before the end of the range only at the end of the file. Raises OSError.
    """
    end = position + length
    while position < end:
        count = os.sendfile(_DEV_NULL, fd, position, end - position)
        if count == 0:
            return position
        position += count
    return position


def disable_readahead(fd: int) -> None:
    """Switches off kernel readahead for this descriptor."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
