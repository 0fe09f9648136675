"""Storage that this broker may still append for one instance (`StorageRoom`), and the free space of its disks.

A produce compares and subtracts one integer. Bytes count once for each replica that will store them. The controller
(`ledger`) grants further credit; while it does not answer, only the remaining credit can be used.

Below the minimum free space of a disk no instance can produce to the disk, whatever storage it bought (CKA-26). The
space is reserved for work that must go on with a full disk: followers, offsets, transactions, checkpoints and the log
cleaner. Producers get POLICY_VIOLATION. KAFKA_STORAGE_ERROR would mean a broken disk, and as a retriable error it would
hide the cause for minutes, until the client times out, although only the operator can help.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

OK: Final = 0
# Results of `StorageRoom.spend` for a refused append, which are error codes of the protocol (WIRE-25).
# A retry may succeed, because more has been requested from the controller.
RETRY_LATER: Final = 7  # REQUEST_TIMED_OUT
# A retry is refused as well, until records are deleted or more storage is bought.
FULL: Final = 44  # POLICY_VIOLATION

RETRY_MESSAGE: Final = "The broker is requesting more of the instance's storage from the controller. Try again."
_UNLIMITED_BYTES: Final = 1 << 60
# Default of the minimum: one hundredth of the volume, and at least half a gigabyte.
FREE_PERCENT: Final = 1
FREE_BYTES_MIN: Final = 512 * 1024 * 1024
# Produces are accepted again when the minimum plus this fraction of it is free (1/10).
RESUME_DIVISOR: Final = 10
DISK_SHORT_MESSAGE: Final = (
    "The broker's disk is nearly full, which is not the instance's doing: its operators are told. Records for this "
    "partition are taken again when there is room."
)


def no_request() -> None:
    """Does nothing; used where no controller allocates storage."""


class StorageRoom:
    """Storage that this broker may still append for one instance.

    Attributes:
        credit_bytes: bytes that may be appended on this broker.
        low_mark_bytes: when the credit falls below this, `request_more` is called.
        free_bytes: free storage of the whole instance in the controller's last answer.
        is_full: True if the controller reports that the instance's storage is used up.
        is_shortened: True while the oldest records are deleted to make room, so that a retry may succeed.
        refused_count: number of refusals that a retry cannot change, since the process began.
        appended_bytes: bytes appended since the last report.
        refused_append_bytes: largest append that did not fit since the last report.
    """

    __slots__ = (
        "appended_bytes",
        "bought_bytes",
        "credit_bytes",
        "free_bytes",
        "is_bounded",
        "is_full",
        "is_shortened",
        "low_mark_bytes",
        "refused_append_bytes",
        "refused_count",
        "request_more",
    )

    def __init__(self, is_bounded: bool = True, request_more: Callable[[], object] = no_request) -> None:
        self.is_bounded = is_bounded
        self.request_more = request_more
        self.bought_bytes = 0
        self.credit_bytes = 0 if is_bounded else _UNLIMITED_BYTES
        self.low_mark_bytes = 0 if is_bounded else -_UNLIMITED_BYTES
        self.free_bytes = _UNLIMITED_BYTES
        self.is_full = False
        self.is_shortened = False
        self.refused_count = 0
        self.appended_bytes = 0
        self.refused_append_bytes = 0

    def spend(self, cost_bytes: int) -> int:
        """Takes `cost_bytes` from the room and returns OK; returns the error code of the produce if they do not fit."""
        credit_bytes = self.credit_bytes - cost_bytes
        if credit_bytes >= self.low_mark_bytes:
            self.credit_bytes = credit_bytes
            self.appended_bytes += cost_bytes
            return OK
        return self._spend_below_low_mark(cost_bytes, credit_bytes)

    def _spend_below_low_mark(self, cost_bytes: int, credit_bytes: int) -> int:
        if credit_bytes >= 0:
            self.credit_bytes = credit_bytes
            self.appended_bytes += cost_bytes
            self.request_more()
            return OK
        self.refused_append_bytes = max(self.refused_append_bytes, cost_bytes)
        if (self.is_full or cost_bytes > self.free_bytes) and not self.is_shortened:
            self.refused_count += 1
            return FULL
        self.request_more()
        return RETRY_LATER

    def refusal_message(self, code: int) -> str:
        """Returns the error message of a produce that is refused with `code`."""
        if code == RETRY_LATER:
            return RETRY_MESSAGE
        return (
            f"The storage of the instance is used up: {self.bought_bytes:,} bytes were bought, replicas included. "
            "Delete records or topics, shorten retention or buy more storage; records are taken again when less than "
            "98 % is used."
        )


# Room of the cluster's own topics, which belong to no instance.
UNBOUNDED: Final = StorageRoom(is_bounded=False)


def unbounded(_topic: str) -> StorageRoom:
    """Returns the unlimited room; used where no controller allocates storage."""
    return UNBOUNDED


class DiskSpace:
    """Free space of one log directory.

    `refused_count` counts refused produces to its partitions since the process began.
    """

    __slots__ = ("is_short", "refused_count", "usable_bytes")

    def __init__(self) -> None:
        self.is_short = False
        self.refused_count = 0
        self.usable_bytes = 0

    def update(self, total_bytes: int, usable_bytes: int, free_bytes_min: int = 0) -> bool:
        """Applies a measurement of the volume; returns True if produces are now refused or accepted again.

        `free_bytes_min` is the operator's minimum, 0 for the default.
        """
        self.usable_bytes = usable_bytes
        minimum_bytes = free_bytes_min or default_free_bytes_min(total_bytes)
        was_short = self.is_short
        self.is_short = usable_bytes < minimum_bytes + (minimum_bytes // RESUME_DIVISOR if was_short else 0)
        return self.is_short != was_short


def default_free_bytes_min(total_bytes: int) -> int:
    """Returns the default minimum of free bytes for a volume of this size."""
    return max(total_bytes * FREE_PERCENT // 100, FREE_BYTES_MIN)


# Used where no disk is measured.
UNMEASURED_DISK: Final = DiskSpace()
