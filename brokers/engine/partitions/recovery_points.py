"""Recovery points of logs, in `recovery-point-offset-checkpoint` (LOG-6, LOG-36): a start verifies a log only above
them.

Above the recovery point, a start takes missing offsets for the result of a power cut and truncates the log before them.
The replica of a compacted log may have such holes without damage: the file names it only when the holes are on disk,
below its recovery point. After a crash before that, the whole log is verified and nothing is truncated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from brokers.contract.partitions import PartitionKey
from brokers.engine.partitions.offset_files import OffsetFile, Offsets
from brokers.engine.partitions.partition import Partition
from brokers.engine.storage import checkpoints


class RecoveryPoints:
    """Recovery points of all roots; used in the table's thread, except for writing planned content."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.file = OffsetFile(checkpoints.RECOVERY_POINTS, roots)
        # End offset of the last hole, for logs that neither the file nor a plan for it may name.
        self._hole_end_by_key: dict[PartitionKey, int] = {}

    def record_holes(self, key: PartitionKey, end_offset: int) -> bool:
        """Records holes below `end_offset`; returns True if the file may name the log and must be written at once."""
        is_named = key not in self._hole_end_by_key
        self._hole_end_by_key[key] = end_offset
        return is_named

    def is_omitted(self, key: PartitionKey) -> bool:
        """True if the file does not name the log because of its holes."""
        return key in self._hole_end_by_key

    def allow_name(self, key: PartitionKey, recovery_point: int) -> bool:
        """Returns True if a plan may name the log with this recovery point, and then forgets the recorded holes."""
        end_offset = self._hole_end_by_key.get(key)
        if end_offset is None:
            return True
        if recovery_point < end_offset:
            return False
        del self._hole_end_by_key[key]
        return True

    def restore_holes(self, key: PartitionKey, end_offset: int) -> None:
        """Records holes below `end_offset` again, because the file that `allow_name` allowed to name the log was not
        written.
        """
        self._hole_end_by_key[key] = max(self._hole_end_by_key.get(key, end_offset), end_offset)

    def forget(self, key: PartitionKey) -> None:
        """Forgets a deleted log."""
        self._hole_end_by_key.pop(key, None)

    def write(self, root: Path, partitions: Mapping[PartitionKey, Partition]) -> None:
        """Writes the current recovery points so that they survive a killed process. Raises StorageFailed.

        No fsync is needed: a power cut may destroy unflushed records anyway.
        """
        offsets: Offsets = {}
        for key, partition in partitions.items():
            log = partition.log
            if log.root == root and not partition.offline and self.allow_name(key, log.recovery_point):
                offsets[key] = log.recovery_point
        self.file.write(self.file.next_plan_number(), root, offsets, durable=False)
