"""Files that are not in the page cache, and reads that wait as long as a test likes."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import pytest

# A check of the cache starts a read of the page, which the disk may finish before the next check.
ATTEMPTS = 50
EVICTION_TIMEOUT_S = 5.0


@pytest.fixture(scope="session")
def disk() -> Iterator[Path]:
    """Fixture that is torn down after all replacements of `os` are undone."""
    with TemporaryDirectory(prefix="penstock-") as directory:
        yield Path(directory)


@pytest.fixture()
def disk_path(disk: Path) -> Path:
    """A directory on disk, while `tmp_path` may be in memory (docs/decisions/0085)."""
    return Path(mkdtemp(dir=disk))


def drop_from_page_cache(path: Path) -> None:
    """Asks the kernel to drop a file from the page cache; pages in use stay."""
    fd = os.open(path, os.O_RDWR)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def evict(path: Path) -> None:
    """Drops a file from the page cache. Skips the test where the kernel does not do or report that."""
    with path.open("rb") as file:
        try:
            os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
        except BlockingIOError:
            pass
        except OSError as error:
            pytest.skip(f"the file system of {path} ({_type_of(path)}) does not say what is in memory: {error}")
    deadline = time.monotonic() + EVICTION_TIMEOUT_S
    while time.monotonic() < deadline:
        drop_from_page_cache(path)
        if not cached_pages(path):
            return
    pytest.skip(f"the file system of {path} ({_type_of(path)}) keeps its files in memory")


def becomes_uncached(path: Path, is_uncached: Callable[[], bool]) -> bool:
    """True if `is_uncached` becomes true for a file that was evicted."""
    for _ in range(ATTEMPTS):
        evict(path)
        if is_uncached():
            return True
    return False


def cached_pages(path: Path) -> int:
    """Returns the number of cached pages of a file, without touching them."""
    size = path.stat().st_size
    if not size:
        return 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as mapped:
        result = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(mapped)
        failed = ctypes.CDLL(None, use_errno=True).mincore(ctypes.c_void_p(ctypes.addressof(start)), size, result)
        del start
        assert not failed, os.strerror(ctypes.get_errno())
        return sum(page & 1 for page in result)


def _type_of(path: Path) -> str:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    holding = [fields for fields in mounts if path.is_relative_to(fields[1])]
    return max(holding, key=lambda fields: len(fields[1]))[2]


class SlowDisk:
    """Makes `os` treat `paths` as uncached, page by page, until `page_cache.read_into_cache` has read them. `stalls`
    are reads of uncached pages in the thread of the loop, which would have blocked it.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, paths: Iterable[str]) -> None:
        self.cached: dict[str, set[int]] = {path: set() for path in paths}
        self.stalls: list[tuple[str, int, int]] = []
        self._loop_thread = threading.get_ident()
        self._real = {name: getattr(os, name) for name in ("preadv", "pread", "sendfile")}
        for name in self._real:
            monkeypatch.setattr(os, name, getattr(self, name))

    def _lacks(self, fd: int, position: int, length: int) -> str | None:
        """Returns the path of `fd` if a page of the range is not cached."""
        path = str(Path(f"/proc/self/fd/{fd}").readlink())
        end = min(position + length, os.fstat(fd).st_size)
        pages = range(position // mmap.PAGESIZE, -(-end // mmap.PAGESIZE))
        return path if path in self.cached and not self.cached[path].issuperset(pages) else None

    def preadv(self, fd: int, buffers: list[bytearray], offset: int, flags: int = 0) -> int:
        if flags & os.RWF_NOWAIT and self._lacks(fd, offset, sum(map(len, buffers))):
            raise BlockingIOError(errno.EAGAIN, "not in memory")
        return int(self._real["preadv"](fd, buffers, offset, 0))

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        self._record_stall(fd, offset, length)
        return bytes(self._real["pread"](fd, length, offset))

    def sendfile(self, out_fd: int, in_fd: int, offset: int, count: int) -> int:
        sent = int(self._real["sendfile"](out_fd, in_fd, offset, count))
        if not stat.S_ISCHR(os.fstat(out_fd).st_mode):
            self._record_stall(in_fd, offset, sent)
        elif (path := self._lacks(in_fd, offset, sent)) is not None:
            self.cached[path].update(range(offset // mmap.PAGESIZE, -(-(offset + sent) // mmap.PAGESIZE)))
        return sent

    def _record_stall(self, fd: int, offset: int, length: int) -> None:
        path = self._lacks(fd, offset, length)
        if path is not None and threading.get_ident() == self._loop_thread:
            self.stalls.append((path, offset, length))

    def forget(self) -> None:
        for pages in self.cached.values():
            pages.clear()


class ManualReaders(Executor):
    """An executor whose reads wait in `pending_reads` until `run_first` performs one, or `fail_first` makes
    it raise an error.
    """

    def __init__(self) -> None:
        self.pending_reads: list[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = []
        self.count = 0

    def submit(self, work: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        self.count += 1
        future: Future[Any] = Future()
        self.pending_reads.append((future, work, args))
        return future

    def run_first(self) -> None:
        future, work, args = self.pending_reads.pop(0)
        future.set_result(work(*args))

    def fail_first(self, error: OSError) -> None:
        future, _, _ = self.pending_reads.pop(0)
        future.set_exception(error)


class ForgetfulReaders(Executor):
    """An executor that reads at once, but whose pages are dropped again before they are used."""

    def __init__(self, disk: SlowDisk) -> None:
        self.disk = disk
        self.count = 0

    def submit(self, work: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        self.count += 1
        future: Future[Any] = Future()
        future.set_result(work(*args))
        self.disk.forget()
        return future
