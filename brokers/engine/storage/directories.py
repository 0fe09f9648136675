"""Roots of `log.dirs`: owner, partition directories, and the marker of a clean shutdown (LOG-1 to LOG-4, LOG-34)."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Final, NamedTuple

from brokers.engine.storage.files import storage_errors, sync_directory, write_atomically
from brokers.engine.storage.leader_epochs import FILE_NAME as EPOCHS_FILE

CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
LOCK_FILE: Final = ".lock"
META_FILE: Final = "meta.properties"
PARTITION_METADATA_FILE: Final = "partition.metadata"
FILE_NAME_CHARS_MAX: Final = 255
NO_TOPIC_ID: Final = bytes(16)

_PARTITION_DIRECTORY = re.compile(r"^(?P<topic>[a-zA-Z0-9._-]+)-(?P<index>\d+)$")
# Names of the files in a partition directory, including those that a crash leaves.
_PARTITION_FILE = re.compile(
    r"^(\d{20}\.(log|index|timeindex|txnindex|snapshot)(\.(deleted|cleaned|swap|tmp))?"
    rf"|({re.escape(PARTITION_METADATA_FILE)}|{re.escape(EPOCHS_FILE)})(\.tmp)?)$"
)
_DELETED_DIRECTORY = re.compile(r"\.[0-9a-f]{32}-delete$")


class DirectoryRefused(Exception):
    """The root belongs to another broker or cluster, or another process has locked it; the broker must not start on
    it.
    """


class FoundPartition(NamedTuple):
    """A partition directory that a scan found; `topic_id` is all zeros if its file is missing."""

    directory: str
    topic: str
    partition: int
    topic_id: bytes


class LogRoot:
    """One root of `log.dirs`.

    `clean` is true if the last stop was clean; `partitions` counts the partition directories (LOG-3).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clean = False
        # True if a Penstock broker used the root before; those always write the topic id of each log.
        self.was_used_by_penstock = False
        self.partitions = 0
        # Directories that are named like a partition but contain no file of one.
        self.foreign: list[str] = []
        self._lock_fd = -1

    def lock_and_claim(self, broker_id: int, cluster_id: str) -> None:
        """Locks and claims the root. Raises DirectoryRefused or StorageFailed."""
        with storage_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock_fd = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the lock that Apache Kafka's brokers take
        except (BlockingIOError, PermissionError):
            self.unlock()
            raise DirectoryRefused(f"{self.path} is in use by another broker process") from None
        try:
            self._claim(broker_id, cluster_id)
        except DirectoryRefused:
            self.unlock()
            raise
        marker = self.path / CLEAN_SHUTDOWN_FILE
        with storage_errors(self.path):
            self.clean = marker.exists()
            # Removed before anything is loaded, so that a crash during loading counts as unclean, and synced, so that a
            # power cut cannot restore the marker over a log that was written to since.
            if self.clean:
                marker.unlink()
                self.sync()

    def _claim(self, broker_id: int, cluster_id: str) -> None:
        meta_file = self.path / META_FILE
        with storage_errors(self.path):
            text = meta_file.read_text(errors="replace") if meta_file.exists() else ""
        if not text:
            content = f"version=0\nbroker.id={broker_id}\ncluster.id={cluster_id}\n"
            write_atomically(meta_file, content.encode(), self.path)
            return
        self.was_used_by_penstock = not text.startswith("#")  # the file that Apache Kafka writes begins with a comment
        properties = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
        if properties.get("broker.id") != str(broker_id) or properties.get("cluster.id") != cluster_id:
            raise DirectoryRefused(
                f"{self.path} belongs to broker {properties.get('broker.id')} of cluster {properties.get('cluster.id')}"
            )

    def unlock(self) -> None:
        """Releases the lock of the root."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def scan(self) -> list[FoundPartition]:
        """Returns the partitions in this root and removes directories that an earlier run marked as deleted."""
        result = []
        self.foreign = []
        with storage_errors(self.path):
            for entry in sorted(os.scandir(self.path), key=lambda entry: entry.name):
                if not entry.is_dir():
                    continue
                if _DELETED_DIRECTORY.search(entry.name):
                    if entry.is_symlink():
                        os.unlink(entry.path)  # noqa: PTH108
                    else:
                        shutil.rmtree(entry.path, ignore_errors=True)
                elif match := _PARTITION_DIRECTORY.match(entry.name):
                    topic_id = read_topic_id(Path(entry.path), self.path)
                    if topic_id == NO_TOPIC_ID and _is_foreign(entry.path):
                        self.foreign.append(entry.path)
                        continue
                    result.append(FoundPartition(entry.path, match["topic"], int(match["index"]), topic_id))
        self.partitions = len(result)
        return result

    def create_partition(self, topic: str, index: int, topic_id: bytes) -> str:
        """Creates the directory of a partition and returns its path; a foreign directory of that name is renamed as a
        stray.
        """
        directory = f"{self.path}/{topic}-{index}"
        with storage_errors(self.path):
            try:
                os.mkdir(directory)  # noqa: PTH102 (creating a partition must be cheap)
            except FileExistsError:
                if not _is_foreign(directory):
                    raise
                self._rename(directory, "stray")
                os.mkdir(directory)  # noqa: PTH102
        write_topic_id(Path(directory), topic_id, self.path)
        self.partitions += 1
        return directory

    def mark_deleted(self, directory: str) -> str:
        """Renames a partition directory for deletion (LOG-47) and returns the name to remove later."""
        self.partitions -= 1
        return self._rename(directory, "delete")

    def mark_stray(self, directory: str) -> str:
        """Renames a partition directory as Kafka renames strays and returns the new name; it is neither served nor
        removed.
        """
        self.partitions -= 1
        return self._rename(directory, "stray")

    def _rename(self, directory: str, kind: str) -> str:
        suffix = f".{uuid.uuid4().hex}-{kind}"
        name = Path(directory).name[: FILE_NAME_CHARS_MAX - len(suffix)] + suffix
        target = str(self.path / name)
        with storage_errors(self.path):
            os.rename(directory, target)  # noqa: PTH104
        return target

    def mark_clean(self, broker_epoch: int) -> None:
        """Writes the clean shutdown marker, the last write of a clean stop."""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode()
        write_atomically(self.path / CLEAN_SHUTDOWN_FILE, content, self.path)

    def sync(self) -> None:
        """Makes created, renamed and removed files and directories of the root durable."""
        sync_directory(self.path, self.path)


def _is_foreign(directory: str) -> bool:
    """True if the directory has files and none belongs to a partition. A crash may leave a new partition's directory
    empty.
    """
    names = [entry.name for entry in os.scandir(directory)]
    return bool(names) and not any(_PARTITION_FILE.match(name) for name in names)


def remove(path: str, root: Path) -> None:
    """Removes a file or directory that was marked as deleted; a missing one is no error."""
    with storage_errors(root), contextlib.suppress(FileNotFoundError):
        # If an operator moved the partition elsewhere and left a symbolic link, only the link is removed.
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
            shutil.rmtree(path)
        else:
            os.unlink(path)  # noqa: PTH108


def write_topic_id(directory: Path, topic_id: bytes, root: Path) -> None:
    """Writes the topic id, 16 bytes, to `partition.metadata`; the first flush of the log makes it durable."""
    encoded = base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()
    content = f"version: 0\ntopic_id: {encoded}\n".encode()
    write_atomically(directory / PARTITION_METADATA_FILE, content, root, durable=False)


def read_topic_id(directory: Path, root: Path) -> bytes:
    """Returns the topic id of a partition directory, all zeros if the file is missing or unreadable."""
    file = directory / PARTITION_METADATA_FILE
    with storage_errors(root):
        text = file.read_text(errors="replace") if file.exists() else ""
    match = re.search(r"^topic_id: ([A-Za-z0-9_-]{22})$", text, re.MULTILINE)
    return base64.urlsafe_b64decode(match[1] + "==") if match else NO_TOPIC_ID
