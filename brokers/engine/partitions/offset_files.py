"""Checkpoint files with a line for every partition, written by several: the flushes, whoever needs one at once, and the
high watermarks' own round (LOG-6).

All plan in the table's thread and write in another, so a plan may come to be written after one that was made later: the
later one stays. It may have been made because what the earlier says is of a topic that is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock

from brokers.contract.partitions import PartitionKey
from brokers.engine.partitions.partition import Partition
from brokers.engine.storage import checkpoints
from brokers.engine.storage.files import StorageFailed, write_atomically

Offsets = dict[PartitionKey, int]


class OffsetFile:
    """One name in each root. `number` belongs to the table's thread, `write` to any."""

    def __init__(self, name: str, roots: Sequence[Path]) -> None:
        self._name = name
        self._lock = Lock()
        self._planned = 0
        self._written = dict.fromkeys(roots, 0)

    def number(self) -> int:
        """Of a plan that is made now."""
        self._planned += 1
        return self._planned

    def write(self, number: int, root: Path, offsets: Mapping[PartitionKey, int], *, durable: bool = True) -> None:
        """Durably, or (much faster) so that a kill leaves it, unless a later plan came first. Raises StorageFailed."""
        lines = checkpoints.render_lines((topic, index, offset) for (topic, index), offset in offsets.items())
        with self._lock:
            if number > self._written[root]:
                write_atomically(root / self._name, lines, root, durable=durable)
                self._written[root] = number


class HighWatermarks:
    """`replication-offset-checkpoint` between two flushes. What a crash costs is how far these are behind: whoever
    comes back as the leader has consumers wait until its followers have told it as much again.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self.file = OffsetFile(checkpoints.HIGH_WATERMARKS, roots)
        self._last: dict[Path, Offsets] = {}
        self._is_disturbed = False

    def planning(
        self, partitions: Iterable[tuple[PartitionKey, Partition]], roots: Iterable[Path]
    ) -> Generator[None, None, dict[Path, Offsets]]:
        """What the files of those `roots` have to say in which something moved since the last plan. A piece for each
        partition: high watermarks only rise, and one that is some moments old does no harm.
        """
        result: dict[Path, Offsets] = {root: {} for root in roots}
        self._is_disturbed = False
        for key, partition in partitions:
            offsets = result.get(partition.log.root)
            if offsets is not None and not partition.offline:
                offsets[key] = partition.high_watermark
            yield
        moved = {root: offsets for root, offsets in result.items() if self._last.get(root) != offsets}
        self._last = {} if self._is_disturbed else result
        return moved

    def written_by_another(self) -> None:
        """The files do not say any more what was planned here last."""
        self._last = {}
        self._is_disturbed = True


class HighWatermarksBatch:
    """One writing of them. Used like a flush."""

    def __init__(
        self,
        owner: HighWatermarks,
        number: int,
        moved: Mapping[Path, Offsets],
        storage_failed: Callable[[StorageFailed], None],
    ) -> None:
        """`number` is of when the plan was begun: whatever was written since is newer."""
        self._owner = owner
        self._file = owner.file
        self._number = number
        self._moved = moved
        self._storage_failed = storage_failed
        self._failures: list[StorageFailed] = []

    def run(self) -> None:
        for root, offsets in self._moved.items():
            try:
                self._file.write(self._number, root, offsets)
            except StorageFailed as failure:
                self._failures.append(failure)

    def finish(self) -> None:
        """Roots that could not be written are given up, or written the next time."""
        for failure in self._failures:
            self._owner.written_by_another()
            self._storage_failed(failure)
