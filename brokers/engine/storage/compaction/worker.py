"""Cleaner process (`python -m brokers.engine.storage.compaction.worker`): cleans one log after another.

Jobs are lines on standard input, events are lines on standard output. A separate process keeps the work away from the
broker's event loop, and its end frees all memory. It ends when its standard input is closed, which happens at the
latest when the broker ends. A job holds a lock on the partition's directory, so that two processes never clean the same
log, even if a worker outlives its broker for a moment.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
import time
from collections.abc import Iterator

from brokers.native.finder import install as install_compiled_modules

NICENESS = 10
AUTOGROUP = "/proc/self/autogroup"
# Errors that do not prove a broken disk: a run needs space that appends may not need, and the files that it reads may
# be deleted meanwhile. If appends fail too, they take the directory offline themselves.
TRANSIENT_ERRORS = frozenset(
    (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.ENOMEM,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOENT,
        errno.EAGAIN,  # another process is still cleaning the log
    )
)


def main() -> int:
    install_compiled_modules()
    from brokers.engine.storage.compaction.job import parse_job

    lower_priority()
    for line in sys.stdin:
        run_job(parse_job(line))
    return 0


def lower_priority() -> None:
    """Lowers the priority, so that the process uses only idle CPU time.

    Niceness applies only within one session where the scheduler weighs sessions against each other (autogroup, the
    default of most kernels). So the process starts its own session, and the niceness is set for that session.
    """
    os.nice(NICENESS)
    with contextlib.suppress(OSError):  # the file does not exist on every kernel
        os.setsid()
        group = os.open(AUTOGROUP, os.O_WRONLY)
        try:
            os.write(group, str(NICENESS).encode())
        finally:
            os.close(group)


def run_job(job: object) -> None:
    """Runs one job and reports its events."""
    from brokers.engine.storage.compaction.job import CleaningFailed, Event, Failed, Fault, Job, event_to_json
    from brokers.engine.storage.compaction.pacing import Pacer
    from brokers.engine.storage.compaction.run import Run
    from brokers.engine.storage.files import StorageFailed

    assert isinstance(job, Job)
    parent = os.getppid()

    def report(event: Event) -> None:
        if os.getppid() != parent:
            sys.exit(1)  # the broker has ended, and its successor has its own cleaner
        print(event_to_json(event), flush=True)  # noqa: T201

    try:
        with locked(job.directory):
            Run(job, report, Pacer(job.io_bytes_per_s, time.monotonic, time.sleep)).run()
    except CleaningFailed as error:
        report(Failed(str(error), Fault.LOG))
    except (OSError, StorageFailed) as error:
        cause = error.cause if isinstance(error, StorageFailed) else error
        is_transient = cause.errno in TRANSIENT_ERRORS
        report(Failed(str(error), Fault.TRANSIENT if is_transient else Fault.DISK, cause.errno or errno.EIO))


@contextlib.contextmanager
def locked(directory: str) -> Iterator[None]:
    """Locks the log in `directory`. Raises BlockingIOError if another process cleans it."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)


if __name__ == "__main__":
    sys.exit(main())
