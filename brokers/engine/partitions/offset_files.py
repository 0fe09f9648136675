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
    """One checkpoint file per root; `next_plan_number` is called in the table's thread, `write` in any thread."""

    def __init__(self, name: str, roots: Sequence[Path]) -> None:
        self._name = name
        self._lock = Lock()
        self._last_plan_number = 0
        self._written_number_by_root = dict.fromkeys(roots, 0)

    def next_plan_number(self) -> int:
        """Returns the number of a new plan."""
        self._last_plan_number += 1
        return self._last_plan_number

    def write(self, number: int, root: Path, offsets: Mapping[PartitionKey, int], *, durable: bool = True) -> None:
        """Writes the file unless a later plan was written. Raises StorageFailed.

        Without `durable` the write is much faster and survives a killed process, but not a power cut.
        """
        content = checkpoints.render_lines((topic, index, offset) for (topic, index), offset in offsets.items())
        with self._lock:
            if number > self._written_number_by_root[root]:
                write_atomically(root / self._name, content, root, durable=durable)
                self._written_number_by_root[root] = number


class HighWatermarks:
    """Writes `replication-offset-checkpoint` between two flushes.

    After a crash high watermarks restart from the file: consumers of a leader wait until its followers have confirmed
    the later records again.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self.file = OffsetFile(checkpoints.HIGH_WATERMARKS, roots)
        self._last_planned_offsets: dict[Path, Offsets] = {}
        # True if a flush wrote the files while a plan was being made.
        self._was_file_written = False

    def plan_in_steps(
        self, partitions: Iterable[tuple[PartitionKey, Partition]], roots: Iterable[Path]
    ) -> Generator[None, None, dict[Path, Offsets]]:
        """Returns the new content of the files in `roots` whose high watermarks changed since the last plan.

        Yields after each partition: high watermarks only rise, and slightly outdated ones do no harm.
        """
        result: dict[Path, Offsets] = {root: {} for root in roots}
        self._was_file_written = False
        for key, partition in partitions:
            offsets = result.get(partition.log.root)
            if offsets is not None and not partition.offline:
                offsets[key] = partition.high_watermark
            yield
        changed_offsets = {
            root: offsets for root, offsets in result.items() if self._last_planned_offsets.get(root) != offsets
        }
        self._last_planned_offsets = {} if self._was_file_written else result
        return changed_offsets

    def invalidate(self) -> None:
        """Records that the files were written by a flush and no longer match the last plan."""
        self._last_planned_offsets = {}
        self._was_file_written = True


class HighWatermarksBatch:
    """One write of high watermarks, used like a flush."""

    def __init__(
        self,
        owner: HighWatermarks,
        number: int,
        changed_offsets: Mapping[Path, Offsets],
        on_storage_failure: Callable[[StorageFailed], None],
    ) -> None:
        """Plans the write. `number` is from the beginning of the planning: plans that began later take precedence."""
        self._owner = owner
        self._file = owner.file
        self._number = number
        self._changed_offsets = changed_offsets
        self._on_storage_failure = on_storage_failure
        self._failures: list[StorageFailed] = []

    def run(self) -> None:
        for root, offsets in self._changed_offsets.items():
            try:
                self._file.write(self._number, root, offsets)
            except StorageFailed as failure:
                self._failures.append(failure)

    def finish(self) -> None:
        """Reports the roots that could not be written: they go offline, or are written in the next round."""
        for failure in self._failures:
            self._owner.invalidate()
            self._on_storage_failure(failure)
