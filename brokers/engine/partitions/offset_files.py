"""Checkpoint files with one line per partition, written by flushes, urgent writes and the high watermark round (LOG-6).

All of them plan in the table's thread and write in another, so an earlier plan may be written after a later one: the
later one stays, because the earlier one may name a deleted topic.
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
    """A checkpoint file of one name in each root; `number` is called in the table's thread, `write` in any."""

    def __init__(self, name: str, roots: Sequence[Path]) -> None:
        self._name = name
        self._lock = Lock()
        self._planned = 0
        self._written = dict.fromkeys(roots, 0)

    def number(self) -> int:
        """Returns the number of a new plan."""
        self._planned += 1
        return self._planned

    def write(self, number: int, root: Path, offsets: Mapping[PartitionKey, int], *, durable: bool = True) -> None:
        """Writes the file unless a later plan was written. Raises StorageFailed.

        Without `durable` the write is much faster and survives a killed process, but not a power cut.
        """
        lines = checkpoints.render_lines((topic, index, offset) for (topic, index), offset in offsets.items())
        with self._lock:
            if number > self._written[root]:
                write_atomically(root / self._name, lines, root, durable=durable)
                self._written[root] = number


class HighWatermarks:
    """Writes `replication-offset-checkpoint` between two flushes.

    After a crash high watermarks restart from the file: consumers of a leader wait until its followers have confirmed
    the rest again.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self.file = OffsetFile(checkpoints.HIGH_WATERMARKS, roots)
        self._last: dict[Path, Offsets] = {}
        # True if a flush wrote the files while a plan was being made.
        self._is_disturbed = False

    def plan_in_steps(
        self, partitions: Iterable[tuple[PartitionKey, Partition]], roots: Iterable[Path]
    ) -> Generator[None, None, dict[Path, Offsets]]:
        """Returns the new content of the files in `roots` whose high watermarks changed since the last plan.

        Yields after each partition: high watermarks only rise, and slightly outdated ones do no harm.
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

    def invalidate(self) -> None:
        """Records that the files were written by a flush and no longer match the last plan."""
        self._last = {}
        self._is_disturbed = True


class HighWatermarksBatch:
    """One write of high watermarks, used like a flush."""

    def __init__(
        self,
        owner: HighWatermarks,
        number: int,
        moved: Mapping[Path, Offsets],
        storage_failed: Callable[[StorageFailed], None],
    ) -> None:
        """Plans the write. `number` is from the beginning of the planning: plans that began later take precedence."""
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
        """Reports the roots that could not be written: they go offline, or are written in the next round."""
        for failure in self._failures:
            self._owner.invalidate()
            self._storage_failed(failure)
