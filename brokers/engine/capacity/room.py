"""Storage room: the bytes that this broker may still append for one instance.

A produce compares and subtracts one integer. Bytes count once for each replica that will store them. The controller
(`ledger`) fills the room; while it does not answer, only the rest can be used.
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


def no_request() -> None:
    """Does nothing; used where no controller allocates storage."""


class StorageRoom:
    """Storage that this broker may still append for one instance.

    Attributes:
        left_bytes: bytes that may be appended on this broker.
        low_bytes: below this, `request_more` is called.
        free_bytes: free storage of the whole instance in the controller's last answer.
        is_full: True if the controller reports that the instance's storage is used up.
        is_shortened: True while the oldest records are deleted to make room, so that a retry may succeed.
        refused: number of refusals that a retry cannot change, since the process began.
        spent_bytes: bytes appended since the last report.
        wanted_bytes: largest append that did not fit since the last report.
    """

    __slots__ = (
        "bought_bytes",
        "free_bytes",
        "is_bounded",
        "is_full",
        "is_shortened",
        "left_bytes",
        "low_bytes",
        "refused",
        "request_more",
        "spent_bytes",
        "wanted_bytes",
    )

    def __init__(self, is_bounded: bool = True, request_more: Callable[[], object] = no_request) -> None:
        self.is_bounded = is_bounded
        self.request_more = request_more
        self.bought_bytes = 0
        self.left_bytes = 0 if is_bounded else _UNLIMITED_BYTES
        self.low_bytes = 0 if is_bounded else -_UNLIMITED_BYTES
        self.free_bytes = _UNLIMITED_BYTES
        self.is_full = False
        self.is_shortened = False
        self.refused = 0
        self.spent_bytes = 0
        self.wanted_bytes = 0

    def spend(self, cost_bytes: int) -> int:
        """Takes `cost_bytes` from the room and returns OK; returns the error code of the produce if they do not fit."""
        left_bytes = self.left_bytes - cost_bytes
        if left_bytes >= self.low_bytes:
            self.left_bytes = left_bytes
            self.spent_bytes += cost_bytes
            return OK
        return self._spend_below_low_mark(cost_bytes, left_bytes)

    def _spend_below_low_mark(self, cost_bytes: int, left_bytes: int) -> int:
        if left_bytes >= 0:
            self.left_bytes = left_bytes
            self.spent_bytes += cost_bytes
            self.request_more()
            return OK
        self.wanted_bytes = max(self.wanted_bytes, cost_bytes)
        if (self.is_full or cost_bytes > self.free_bytes) and not self.is_shortened:
            self.refused += 1
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
