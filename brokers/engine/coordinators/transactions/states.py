"""The states of a transaction and the transitions between them (TXN-3, TXN-4)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class State(IntEnum):
    """State of a transaction, numbered as in the log.

    DEAD and PREPARE_EPOCH_FENCE exist only in Kafka's memory and are never written.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


# Names in DescribeTransactions and ListTransactions.
NAMES: Final[dict[State, str]] = {
    State.EMPTY: "Empty",
    State.ONGOING: "Ongoing",
    State.PREPARE_COMMIT: "PrepareCommit",
    State.PREPARE_ABORT: "PrepareAbort",
    State.COMPLETE_COMMIT: "CompleteCommit",
    State.COMPLETE_ABORT: "CompleteAbort",
    State.DEAD: "Dead",
    State.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
BY_NAME: Final[dict[str, State]] = {name: state for state, name in NAMES.items()}

# No transaction is open, and no partition is owed a marker.
AT_REST: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
# The outcome is decided, and markers are being written to the partitions (TXN-11).
DECIDED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
# States that a record may have (TXN-19).
STORED: Final = AT_REST | DECIDED | {State.ONGOING}

# A fence (TXN-5, TXN-17) goes from ONGOING to PREPARE_ABORT in one record: epoch and outcome change together.
PREVIOUS: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: AT_REST,
    State.ONGOING: AT_REST | {State.ONGOING},
    State.PREPARE_COMMIT: frozenset({State.ONGOING}),
    State.PREPARE_ABORT: frozenset({State.ONGOING, State.PREPARE_EPOCH_FENCE}),
    State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT}),
    State.COMPLETE_ABORT: frozenset({State.PREPARE_ABORT}),
    State.DEAD: AT_REST,
    State.PREPARE_EPOCH_FENCE: frozenset({State.ONGOING}),
}


def may_follow(before: State, after: State) -> bool:
    """True if a transaction may go from state `before` to state `after`."""
    return before in PREVIOUS[after]
