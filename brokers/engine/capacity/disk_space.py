"""Minimum free space of a disk: below it no instance can produce to the disk, whatever storage it bought (CKA-26).

The space is reserved for work that must go on with a full disk: followers, offsets, transactions, checkpoints and the
log cleaner. Producers get POLICY_VIOLATION. KAFKA_STORAGE_ERROR would mean a broken disk, and as a retriable error it
would hide the cause for minutes, until the client times out, although only the operator can help.
"""

from __future__ import annotations

from typing import Final

# Default of the minimum: one hundredth of the volume, and at least half a gigabyte.
FREE_PERCENT: Final = 1
FREE_BYTES_MIN: Final = 512 * 1024 * 1024
# Produces are accepted again when the minimum plus this fraction of it is free (1/10).
RESUME_PART: Final = 10

DISK_SHORT_MESSAGE: Final = (
    "The broker's disk is nearly full, which is not the instance's doing: its operators are told. Records for this "
    "partition are taken again when there is room."
)


class DiskSpace:
    """Free space of one log directory. `refused` counts refused produces to its partitions since the process began."""

    __slots__ = ("is_short", "refused", "usable_bytes")

    def __init__(self) -> None:
        self.is_short = False
        self.refused = 0
        self.usable_bytes = 0

    def update(self, total_bytes: int, usable_bytes: int, free_bytes_min: int = 0) -> bool:
        """Applies a measurement of the volume; returns True if produces are now refused or accepted again.

        `free_bytes_min` is the operator's minimum, 0 for the default.
        """
        self.usable_bytes = usable_bytes
        minimum_bytes = free_bytes_min or default_free_bytes_min(total_bytes)
        was_short = self.is_short
        self.is_short = usable_bytes < minimum_bytes + (minimum_bytes // RESUME_PART if was_short else 0)
        return self.is_short != was_short


def default_free_bytes_min(total_bytes: int) -> int:
    """Returns the default minimum of free bytes for a volume of this size."""
    return max(total_bytes * FREE_PERCENT // 100, FREE_BYTES_MIN)


# Used where no disk is measured.
UNMEASURED_DISK: Final = DiskSpace()
