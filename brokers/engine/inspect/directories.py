"""Which logs a directory holds, and that no broker uses them meanwhile. Nothing is created or written."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from brokers.engine.storage.directories import LOCK_FILE, META_FILE, PARTITION_METADATA_FILE
from brokers.engine.storage.leader_epochs import FILE_NAME as EPOCHS_FILE

PARTITION_DIRECTORY: Final = re.compile(r"^(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<index>\d{1,10})$")


_SEGMENT_FILE: Final = re.compile(r"^\d{20}\.")
_STATE_FILES: Final = frozenset({PARTITION_METADATA_FILE, EPOCHS_FILE})


class NoLog(Exception):
    """The directory is not there or is neither a partition's nor a root of `log.dirs`."""


class InspectedDirectory(Exception):
    """A running broker holds the root."""


class PartitionDirectory(NamedTuple):
    path: Path
    topic: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"


class Logs(NamedTuple):
    """`root` is the root of `log.dirs`; `whole` tells whether it was asked for, or one partition in it."""

    root: Path
    partitions: list[PartitionDirectory]
    whole: bool


def find(directory: Path) -> Logs:
    """The partitions at `directory`. Raises NoLog."""
    directory = directory.absolute()
    if not directory.is_dir():
        hint = "; name the directory it lies in" if directory.is_file() else ""
        raise NoLog(f"{directory} is no directory{hint}")
    match = PARTITION_DIRECTORY.match(directory.name)
    is_root = (directory / META_FILE).exists()
    within = [partition for partition in _partitions(directory) if is_root or _may_be_log(partition.path)]
    if match and not within and not is_root and _may_be_log(directory):
        return Logs(directory.parent, [PartitionDirectory(directory, match["topic"], int(match["index"]))], False)
    if not within and not is_root:
        raise NoLog(f"{directory} is neither a partition's directory (<topic>-<number>) nor one that holds such")
    return Logs(directory, within, True)


def _partitions(root: Path) -> list[PartitionDirectory]:
    result = []
    for entry in sorted(root.iterdir()):
        match = PARTITION_DIRECTORY.match(entry.name)
        if match and entry.is_dir():
            result.append(PartitionDirectory(entry, match["topic"], int(match["index"])))
    return result


def _may_be_log(directory: Path) -> bool:
    """Many a directory is called like a partition, and `recover` writes: one that is not in a broker's root must hold
    a file of a log, or nothing.
    """
    names = [entry.name for entry in directory.iterdir()]
    return not names or any(name in _STATE_FILES or _SEGMENT_FILE.match(name) for name in names)


@contextlib.contextmanager
def hold(root: Path, *, write: bool) -> Iterator[None]:
    """Keeps brokers off `root` while inside: a shared lock to read, an exclusive one to write. Raises Held.

    A directory without a lock file was never a broker's root, or was copied from one.
    """
    file = root / LOCK_FILE
    if not file.exists():
        yield
        return
    descriptor = os.open(file, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC)
    kind = (fcntl.LOCK_EX if write else fcntl.LOCK_SH) | fcntl.LOCK_NB
    try:
        try:
            fcntl.flock(descriptor, kind)  # what our broker takes
            fcntl.lockf(descriptor, kind)  # what Apache Kafka's takes
        except (BlockingIOError, PermissionError):
            raise InspectedDirectory(
                f"{root} is in use by a running broker: stop it first, or look at a copy"
            ) from None
        yield
    finally:
        os.close(descriptor)
