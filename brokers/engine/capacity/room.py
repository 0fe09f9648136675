"""What this broker may still append for one instance.

A produce compares and subtracts one integer. Bytes count once for each replica, as they will be stored. The room is
filled by the controller (`ledger`); what is left when it does not answer is all there is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

OK: Final = 0
# Codes of the protocol (WIRE-25). A producer that waits a moment may succeed: the controller is being asked.
ASKED: Final = 7  # REQUEST_TIMED_OUT
# A producer that tries again is refused again: somebody has to delete something or buy more.
FULL: Final = 44  # POLICY_VIOLATION

ASKED_MESSAGE: Final = "How much of the instance's storage is left is being asked for. Try again."
_ENDLESS_BYTES: Final = 1 << 60


def nobody_asks() -> None:
    """Where no controller hands out storage."""


class StorageRoom:
    """`left_bytes` may be appended here. Below `low_bytes` more is asked for. `free_bytes`: what the whole instance had
    left when the controller answered last. `is_full`: the controller says that nothing is left. `is_shortened`: the
    oldest records go to make room, so that a producer that waits a moment may succeed.
    """

    __slots__ = (
        "ask",
        "bought_bytes",
        "free_bytes",
        "is_bounded",
        "is_full",
        "is_shortened",
        "left_bytes",
        "low_bytes",
        "refused",
        "spent_bytes",
        "wanted_bytes",
    )

    def __init__(self, is_bounded: bool = True, ask: Callable[[], object] = nobody_asks) -> None:
        self.is_bounded = is_bounded
        self.ask = ask
        self.bought_bytes = 0
        self.left_bytes = 0 if is_bounded else _ENDLESS_BYTES
        self.low_bytes = 0 if is_bounded else -_ENDLESS_BYTES
        self.free_bytes = _ENDLESS_BYTES
        self.is_full = False
        self.is_shortened = False
        # Since this process began: produces to partitions that were refused for good.
        self.refused = 0
        # Since the last report: what was spent below `low_bytes` or refused says that it is in use.
        self.spent_bytes = 0
        self.wanted_bytes = 0

    def spend(self, cost_bytes: int) -> int:
        """Takes `cost_bytes` from what is left; otherwise the error code of a produce that does not fit."""
        left_bytes = self.left_bytes - cost_bytes
        if left_bytes >= self.low_bytes:
            self.left_bytes = left_bytes
            self.spent_bytes += cost_bytes
            return OK
        return self._spend_last(cost_bytes, left_bytes)

    def _spend_last(self, cost_bytes: int, left_bytes: int) -> int:
        if left_bytes >= 0:
            self.left_bytes = left_bytes
            self.spent_bytes += cost_bytes
            self.ask()
            return OK
        self.wanted_bytes = max(self.wanted_bytes, cost_bytes)
        if (self.is_full or cost_bytes > self.free_bytes) and not self.is_shortened:
            self.refused += 1
            return FULL
        self.ask()
        return ASKED

    def refusal(self, code: int) -> str:
        """What a producer is told with `code`."""
        if code == ASKED:
            return ASKED_MESSAGE
        return (
            f"The storage of the instance is used up: {self.bought_bytes:,} bytes were bought, replicas included. "
            "Delete records or topics, shorten retention or buy more storage; records are taken again when less than "
            "98 % is used."
        )


# Of the cluster's own topics: what they hold is nobody's purchase.
UNBOUNDED: Final = StorageRoom(is_bounded=False)


def unbounded(_topic: str) -> StorageRoom:
    """Where nobody hands out storage."""
    return UNBOUNDED
