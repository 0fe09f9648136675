"""`recovery-point-offset-checkpoint` (LOG-6, LOG-36): up to where a start need not look at a log.

From there on a start takes missing offsets for something that a power cut took, and ends the log before them. A log
that follows a cleaned one has such holes of right: the file does not name it before they are on disk, below its
recovery point. A crash until then has all of it checked, and nothing cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from brokers.contract.partitions import PartitionKey
from brokers.engine.partitions.offset_files import OffsetFile, Offsets
from brokers.engine.partitions.partition import Partition
from brokers.engine.storage import checkpoints


class RecoveryPoints:
    """Of all roots. Belongs to the table's thread, but for the writing of what was planned."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.file = OffsetFile(checkpoints.RECOVERY_POINTS, roots)
        # Behind the last hole, of logs that the file does not name, nor any plan for it.
        self._holes: dict[PartitionKey, int] = {}

    def has_holes(self, key: PartitionKey, end_offset: int) -> bool:
        """Somewhere below `end_offset`. Whether the file may name the log, and is to be written at once."""
        is_named = key not in self._holes
        self._holes[key] = end_offset
        return is_named

    def is_held_back(self, key: PartitionKey) -> bool:
        """Whether the file does not name it for its holes."""
        return key in self._holes

    def may_name(self, key: PartitionKey, point: int) -> bool:
        """Whether the log is to be named with this recovery point by what is planned now."""
        end_offset = self._holes.get(key)
        if end_offset is None:
            return True
        if point < end_offset:
            return False
        del self._holes[key]
        return True

    def not_named(self, key: PartitionKey, end_offset: int) -> None:
        """What `may_name` allowed was not written, and the holes below `end_offset` may not be on disk."""
        self._holes[key] = max(self._holes.get(key, end_offset), end_offset)

    def forget(self, key: PartitionKey) -> None:
        """The log is deleted."""
        self._holes.pop(key, None)

    def write(self, root: Path, partitions: Mapping[PartitionKey, Partition]) -> None:
        """Of what is on disk by now, so that a kill leaves it: a power cut may take what was not flushed anyway. Raises
        StorageFailed.
        """
        offsets: Offsets = {}
        for key, partition in partitions.items():
            log = partition.log
            if log.root == root and not partition.offline and self.may_name(key, log.recovery_point):
                offsets[key] = log.recovery_point
        self.file.write(self.file.number(), root, offsets, durable=False)
