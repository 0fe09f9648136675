"""`python -m brokers.engine.storage.compaction.worker`: cleans one log after another, as told on its standard input.

A job a line in, events a line out. It is a process of its own so that the broker's loop never waits for it, and its
memory goes when it ends: at the end of its input, which comes at the latest when the broker is gone. While it works it
holds the lock of the partition's directory, so that no log is ever cleaned twice at once, not even by a worker that
outlived its broker for a moment.
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
# A run needs room that appends may not need, and what it was to read may be deleted under it: neither speaks against
# the disk. Where appends find no room either, they give the directory up themselves.
PASSING = frozenset(
    (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.ENOMEM,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOENT,
        errno.EAGAIN,  # another process still cleans the log
    )
)


def main() -> int:
    install_compiled_modules()
    from brokers.engine.storage.compaction.job import job_from_json

    give_way()
    for line in sys.stdin:
        work(job_from_json(line))
    return 0


def give_way() -> None:
    """Cleans with what the others leave of the cores.

    Niceness counts among the processes of one session only where the scheduler weighs sessions against each other
    (autogroup, the default of most kernels), so the process gets a session of its own and that one its niceness.
    """
    os.nice(NICENESS)
    with contextlib.suppress(OSError):  # a kernel may know no such file
        os.setsid()
        group = os.open(AUTOGROUP, os.O_WRONLY)
        try:
            os.write(group, str(NICENESS).encode())
        finally:
            os.close(group)


def work(job: object) -> None:
    """One job, to its last event."""
    from brokers.engine.storage.compaction.job import CleaningFailed, Event, Failed, Fault, Job, event_to_json
    from brokers.engine.storage.compaction.pacing import Pacer
    from brokers.engine.storage.compaction.run import Run
    from brokers.engine.storage.files import StorageFailed

    assert isinstance(job, Job)
    parent = os.getppid()

    def report(event: Event) -> None:
        if os.getppid() != parent:
            sys.exit(1)  # the broker is gone, and whoever owns the log next has its own cleaner
        print(event_to_json(event), flush=True)  # noqa: T201

    try:
        with locked(job.directory):
            Run(job, report, Pacer(job.io_bytes_per_s, time.monotonic, time.sleep)).run()
    except CleaningFailed as error:
        report(Failed(str(error), Fault.LOG))
    except (OSError, StorageFailed) as error:
        cause = error.cause if isinstance(error, StorageFailed) else error
        passes = cause.errno in PASSING
        report(Failed(str(error), Fault.PASSING if passes else Fault.DISK, cause.errno or errno.EIO))


@contextlib.contextmanager
def locked(directory: str) -> Iterator[None]:
    """Raises BlockingIOError if another process cleans the log in `directory`."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)


if __name__ == "__main__":
    sys.exit(main())
