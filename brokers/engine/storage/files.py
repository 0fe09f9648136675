"""File system access of the log, the only place that handles disk errors.

Every `OSError` becomes `StorageFailed(directory)`: the partitions of that directory go offline and the process
continues. The number of open descriptors is bounded (`OpenFiles`): a segment has a descriptor only while it is used. A
shortage of descriptors is no disk error and is temporary (`StorageFailed.is_transient`).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from brokers.engine.page_cache import is_cached, read_cached, read_into_cache
from brokers.engine.storage.read_ahead import ReadAhead

OPEN_FILES_MAX = 512
# Minimum size of a prefetch: after a miss in the page cache the following bytes are usually needed next.
PREFETCHED_BYTES_MIN = 262_144
SHORT_WRITE_RETRIES_MAX = 16
# Errors that mean a temporary shortage of the process or the machine and say nothing about the disk.
SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
# Number of descriptors that are closed at once when none is left; each is reopened when it is needed.
DESCRIPTORS_CLOSED_AT_ONCE = 32
# Maximum number of descriptors that an operation has open at once, plus those other threads open meanwhile.
DESCRIPTORS_NEEDED = 16


class StorageFailed(Exception):
    """An I/O error under `directory`, a root of `log.dirs`; everything in that root is unusable (LOG-3).

    If it `is_transient`, nothing was changed and the operation may be tried again.
    """

    def __init__(self, directory: Path, cause: OSError, *, halfway: bool = False) -> None:
        super().__init__(f"{directory}: {cause}")
        self.directory = directory
        self.cause = cause
        self.is_transient = not halfway and cause.errno in SHORTAGES


@contextlib.contextmanager
def storage_errors(directory: Path, *, halfway: bool = False) -> Iterator[None]:
    """Converts any `OSError` inside to `StorageFailed(directory)`; `halfway` means that a failure leaves changes half
    done.
    """
    try:
        yield
    except OSError as error:
        raise StorageFailed(directory, error, halfway=halfway) from error


_OPEN_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class SegmentFile:
    """One `.log` file and its descriptor, opened at first use; read at explicit positions and written at the end
    only.
    """

    __slots__ = ("_is_retired", "_pins", "fd", "path", "read_ahead", "root", "table", "was_recently_used")

    def __init__(self, path: str, root: Path, table: OpenFiles) -> None:
        self.path = path
        self.root = root
        self.table = table
        self.fd = -1
        self.read_ahead = ReadAhead()
        self.was_recently_used = False
        self._pins = 0
        self._is_retired = False

    def open(self) -> int:
        """Returns the descriptor, opened if necessary. Callers must not keep it across other calls without `pin`."""
        self.was_recently_used = True
        if self.fd < 0:
            try:
                self.fd = os.open(self.path, _OPEN_FLAGS, 0o600)
            except OSError as error:
                failure = StorageFailed(self.root, error)
                if not failure.is_transient or not self.table.close_some():
                    raise failure from error
                with storage_errors(self.root):
                    self.fd = os.open(self.path, _OPEN_FLAGS, 0o600)
            self.table.on_opened(self)
        return self.fd

    @property
    def is_pinned(self) -> bool:
        """True while a slice or a flush needs the descriptor."""
        return self._pins > 0

    def pin(self) -> None:
        """Keeps the descriptor open until the matching `unpin`."""
        self._pins += 1

    def unpin(self) -> None:
        """Ends one `pin`; the last one closes the descriptor of a retired file."""
        self._pins -= 1
        if self._is_retired and self._pins == 0:
            self._close()

    def close(self) -> None:
        """Closes the descriptor unless a reader still has a slice; a later `open` opens another one."""
        if self._pins == 0:
            self._close()

    def retire(self) -> None:
        """Marks the file as deleted: the descriptor is closed now, or when the last reader releases its slice."""
        self._is_retired = True
        self.close()

    def _close(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            self.read_ahead.clear()
            self.table.on_closed(self)
            with storage_errors(self.root):
                os.close(fd)


def _ignore_failure(failure: StorageFailed) -> None:
    """Default failure handler of files without a partition table: their reader gets the error itself."""


class OpenFiles:
    """Keeps at most `limit` descriptors open and closes those unused since the last sweep (second chance).

    `on_failure` is called for a disk error in a reader that cannot raise it to the partition.
    """

    def __init__(
        self, limit: int = OPEN_FILES_MAX, on_failure: Callable[[StorageFailed], object] | None = None
    ) -> None:
        self.limit = limit
        self.on_failure: Callable[[StorageFailed], object] = on_failure or _ignore_failure
        self._open_files: dict[SegmentFile, None] = {}
        # Number of temporary shortages since the last report, and the text of the last one.
        self.shortages = 0
        self.shortage = ""

    def __len__(self) -> int:
        return len(self._open_files)

    def on_opened(self, file: SegmentFile) -> None:
        """Registers a file that was opened, and closes others if too many are open."""
        self._open_files[file] = None
        if len(self._open_files) > self.limit:
            self._sweep(kept_file=file)

    def on_closed(self, file: SegmentFile) -> None:
        """Removes a file that was closed."""
        self._open_files.pop(file, None)

    def _sweep(self, kept_file: SegmentFile) -> None:
        for _ in range(2):
            for file in list(self._open_files):
                if len(self._open_files) <= self.limit:
                    return
                if file is kept_file or file.is_pinned:
                    continue
                if file.was_recently_used:
                    file.was_recently_used = False
                else:
                    file.close()

    def close_some(self) -> int:
        """Closes some descriptors when none is left, the unused ones first; returns how many were closed."""
        closable = [file for file in self._open_files if not file.is_pinned]
        closable.sort(key=lambda file: file.was_recently_used)
        for file in closable[:DESCRIPTORS_CLOSED_AT_ONCE]:
            file.close()
        return len(closable[:DESCRIPTORS_CLOSED_AT_ONCE])

    def record_shortage(self, failure: StorageFailed) -> None:
        """Records a shortage that a client must retry, and closes descriptors so that the retry succeeds."""
        self.close_some()
        self.shortages += 1
        self.shortage = str(failure)

    def require_free_descriptors(self, root: Path) -> None:
        """Ensures free descriptors before an operation that must not stop halfway for lack of one.

        Raises a transient StorageFailed.
        """
        spare_descriptors: list[int] = []
        try:
            while len(spare_descriptors) < DESCRIPTORS_NEEDED:
                try:
                    spare_descriptors.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
                except OSError as error:
                    if not self.close_some():
                        raise StorageFailed(root, error) from error
        finally:
            for descriptor in spare_descriptors:
                os.close(descriptor)

    def close_idle(self) -> int:
        """Closes files that were not used since the previous call and returns their number; maintenance calls it
        regularly.
        """
        count_before = len(self._open_files)
        for file in list(self._open_files):
            if file.was_recently_used:
                file.was_recently_used = False
            elif not file.is_pinned:
                file.close()
        return count_before - len(self._open_files)


class FileSlice:
    """Slice of an open segment: `length` bytes at `position`, whole batches, ready for sendfile.

    The segment stays open (even if it is deleted meanwhile) until `release()`, which may be called more than once. The
    sender may advance `position` and `length` while it sends.
    """

    __slots__ = ("_file", "_read_ahead", "fd", "length", "position")

    def __init__(self, file: SegmentFile, position: int, length: int) -> None:
        self.fd = file.open()
        file.pin()
        self._file: SegmentFile | None = file
        self._read_ahead = file.read_ahead
        self.position = position
        self.length = length

    @property
    def file(self) -> SegmentFile | None:
        """The segment file that the bytes belong to; None once the slice is released."""
        return self._file

    def read(self) -> bytes:
        """Returns the bytes, for callers that cannot send from the file (TLS, tests)."""
        assert self._file is not None, "slice already released"
        return read_at(self._file, self.position, self.length)

    def is_cached(self, length: int) -> bool:
        """True if the first `length` bytes can be sent without waiting for the disk or triggering a read."""
        position = self.position
        return not self._read_ahead.must_prefetch(position, position + length) and is_cached(self.fd, position, length)

    def prefetch(self, length: int | None = None) -> None:
        """Waits until the first `length` bytes, or all, are in the page cache; runs in a thread. Raises OSError."""
        self._read_ahead.prefetch(self.fd, self.position, self.length if length is None else length)

    def release(self) -> None:
        if self._file is not None:
            self._file.unpin()
            self._file = None

    def report_failure(self, error: OSError) -> None:
        """Reports a disk error that a caller met while reading from `fd` itself."""
        if self._file is not None:
            self._file.table.on_failure(StorageFailed(self._file.root, error))


class UncachedFile:
    """A whole small file that is not in the page cache; `NotCached` carries it in place of a `FileSlice`."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def prefetch(self) -> None:
        """Waits until the file is in the page cache; a file that was deleted meanwhile is skipped. Raises OSError."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            read_into_cache(fd, 0, os.fstat(fd).st_size)
        finally:
            os.close(fd)

    def release(self) -> None:
        """Does nothing: the object has no open descriptor."""


class NotCached(Exception):
    """The data must be read from the disk.

    Call `uncached.prefetch()` in a thread that may wait, then `uncached.release()`, and retry.
    """

    def __init__(self, uncached: FileSlice | UncachedFile) -> None:
        super().__init__("not in the page cache")
        self.uncached = uncached


def read_at(file: SegmentFile, position: int, length: int, may_wait: bool = True) -> bytes:
    """Reads up to `length` bytes at `position`; fewer only at the end of the file.

    Without `may_wait` it raises NotCached instead of waiting for the disk.
    """
    fd = file.open()
    try:
        if may_wait:
            data: bytes | None = os.pread(fd, length, position)
        elif file.read_ahead.must_prefetch(position, position + length):
            data = None
        else:
            data = read_cached(fd, length, position)
    except OSError as error:
        raise StorageFailed(file.root, error) from error
    if data is None:
        raise NotCached(FileSlice(file, position, max(length, PREFETCHED_BYTES_MIN)))
    return data


def append_all(file: SegmentFile, data: memoryview | bytes, size_before: int) -> None:
    """Writes `data` at the end of `file`, which is `size_before` bytes long; on failure the old length is restored."""
    fd = file.open()
    try:
        written_bytes = os.write(fd, data)
        if written_bytes != len(data):
            _write_rest(fd, data, written_bytes)
    except OSError as error:
        is_truncated = False
        with contextlib.suppress(
            OSError
        ):  # the write error is reported; if the truncation fails too, recovery truncates the tail
            os.ftruncate(fd, size_before)
            is_truncated = True
        raise StorageFailed(file.root, error, halfway=not is_truncated) from error


def _write_rest(fd: int, data: memoryview | bytes, written_bytes: int) -> None:
    view = memoryview(data)
    for _ in range(SHORT_WRITE_RETRIES_MAX):
        if written_bytes == len(view):
            return
        written_bytes += os.write(fd, view[written_bytes:])
    if written_bytes != len(view):
        raise OSError(5, "short writes")


def write_atomically(path: Path, content: bytes, root: Path, *, durable: bool = True) -> None:
    """Replaces `path` by `content`: temporary file, fsync if `durable`, rename, fsync of the directory (LOG-6)."""
    temporary = path.with_name(path.name + ".tmp")
    with storage_errors(root):
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            written_bytes = os.write(fd, content)
            if written_bytes != len(content):
                _write_rest(fd, content, written_bytes)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)  # noqa: PTH105 (the hot start path: no Path object per call)
    if durable:
        sync_directory(path.parent, root)


def sync_directory(directory: Path, root: Path) -> None:
    """Makes renames and new files in `directory` durable."""
    with storage_errors(root):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def run_guarded(root: Path, action: Callable[[], object]) -> None:
    """Runs `action`, a file operation on `root`. Raises StorageFailed."""
    with storage_errors(root):
        action()
