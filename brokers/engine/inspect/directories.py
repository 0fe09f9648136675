"""Search for the logs in a directory, and a lock that keeps brokers from using them. Nothing is created or written."""

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


class NotALogDirectory(Exception):
    """The directory does not exist, or is neither a partition's directory nor a root of `log.dirs`."""


class DirectoryInUse(Exception):
    """A running broker uses the root."""


class PartitionDirectory(NamedTuple):
    """A partition's directory, with the topic and the partition number that its name has."""

    path: Path
    topic: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"


class Logs(NamedTuple):
    """Logs to inspect. `root` is the root of `log.dirs`; `whole` is False if a single partition was requested."""

    root: Path
    partitions: list[PartitionDirectory]
    whole: bool


def find(directory: Path) -> Logs:
    """Finds the partitions in `directory`, which may be a partition's own. Raises NotALogDirectory."""
    directory = directory.absolute()
    if not directory.is_dir():
        hint = "; name the directory that contains it" if directory.is_file() else ""
        raise NotALogDirectory(f"{directory} is not a directory{hint}")
    match = PARTITION_DIRECTORY.match(directory.name)
    is_root = (directory / META_FILE).exists()
    contained = [partition for partition in _partitions(directory) if is_root or _may_be_log(partition.path)]
    if match and not contained and not is_root and _may_be_log(directory):
        return Logs(directory.parent, [PartitionDirectory(directory, match["topic"], int(match["index"]))], False)
    if not contained and not is_root:
        raise NotALogDirectory(
            f"{directory} is neither a partition's directory (<topic>-<number>) nor does it contain any"
        )
    return Logs(directory, contained, True)


def _partitions(root: Path) -> list[PartitionDirectory]:
    result = []
    for entry in sorted(root.iterdir()):
        match = PARTITION_DIRECTORY.match(entry.name)
        if match and entry.is_dir():
            result.append(PartitionDirectory(entry, match["topic"], int(match["index"])))
    return result


def _may_be_log(directory: Path) -> bool:
    """True if a directory with the name of a partition may be a log: it has a file of a log, or none at all.

    Many directories have such names, and `recover` writes to them, so the name alone does not suffice outside of a
    broker's root.
    """
    names = [entry.name for entry in directory.iterdir()]
    return not names or any(name in _STATE_FILES or _SEGMENT_FILE.match(name) for name in names)


@contextlib.contextmanager
def lock_root(root: Path, *, write: bool) -> Iterator[None]:
    """Locks `root` against brokers: a shared lock to read, an exclusive one to write.

    A directory without a lock file is not locked: it was never a broker's root, or was copied from one. Raises
    DirectoryInUse if a broker holds the lock.
    """
    file = root / LOCK_FILE
    if not file.exists():
        yield
        return
    descriptor = os.open(file, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC)
    kind = (fcntl.LOCK_EX if write else fcntl.LOCK_SH) | fcntl.LOCK_NB
    try:
        try:
            fcntl.flock(descriptor, kind)  # the lock of Penstock's broker
            fcntl.lockf(descriptor, kind)  # the lock of Apache Kafka's broker
        except (BlockingIOError, PermissionError):
            raise DirectoryInUse(f"{root} is in use by a running broker: stop it first, or inspect a copy") from None
        yield
    finally:
        os.close(descriptor)
