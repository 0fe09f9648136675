"""How much a disk must keep free: below it no instance writes there, whatever it bought (CKA-26).

The floor is for what must go on on a full disk: followers, offsets, transactions, checkpoints, the cleaner. Producers
are answered POLICY_VIOLATION. KAFKA_STORAGE_ERROR would say that the disk is broken, and like every code that may be
tried again it would hide for minutes, behind a time-out of the client's, what only the operator can change.
"""

from __future__ import annotations

from typing import Final

# The floor where the operator says nothing: one hundredth of the volume, and half a gigabyte at least.
FREE_PERCENT: Final = 1
FREE_BYTES_MIN: Final = 512 * 1024 * 1024
# Records are taken again when this much more is free than the floor: 1 in so many bytes.
RESUME_PART: Final = 10

DISK_SHORT_MESSAGE: Final = (
    "The broker's disk is nearly full, which is not the instance's doing: its operators are told. Records for this "
    "partition are taken again when there is room."
)


class DiskSpace:
    """Of one log directory. `refused`: produces to partitions there, since this process began."""

    __slots__ = ("is_short", "refused", "usable_bytes")

    def __init__(self) -> None:
        self.is_short = False
        self.refused = 0
        self.usable_bytes = 0

    def measured(self, total_bytes: int, usable_bytes: int, floor_bytes: int = 0) -> bool:
        """Takes over what the volume says of itself; whether that changes anything for producers. `floor_bytes` is
        what the operator set, 0 = nothing.
        """
        self.usable_bytes = usable_bytes
        floor = floor_bytes or default_floor_bytes(total_bytes)
        was_short = self.is_short
        self.is_short = usable_bytes < floor + (floor // RESUME_PART if was_short else 0)
        return self.is_short != was_short


def default_floor_bytes(total_bytes: int) -> int:
    return max(total_bytes * FREE_PERCENT // 100, FREE_BYTES_MIN)


# Where nobody measures.
ENOUGH: Final = DiskSpace()
