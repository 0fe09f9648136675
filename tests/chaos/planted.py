"""Runs a broker with a planted mistake, to test whether the exactly-once workload detects it.

python -m tests.chaos.planted MISTAKE --settings FILE
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

Plant = Callable[[pytest.MonkeyPatch], object]


def nothing(patch: pytest.MonkeyPatch) -> None:
    """Plants no mistake."""


def commit_what_is_aborted(patch: pytest.MonkeyPatch) -> None:
    """Writes a commit marker for aborted transactions as well."""
    from brokers.engine.partitions import transactions
    from brokers.engine.partitions.partition import Partition

    append = transactions.append_marker

    def append_committed(
        partition: Partition, producer_id: int, epoch: int, coordinator_epoch: int, committed: bool, now_ms: int
    ) -> Any:
        return append(partition, producer_id, epoch, coordinator_epoch, True, now_ms)

    patch.setattr(transactions, "append_marker", append_committed)


def count_offsets_at_once(patch: pytest.MonkeyPatch) -> None:
    """Commits offsets of a transaction when they are sent, so that they stay after an abort."""
    from brokers.engine.coordinators.groups.committed import GroupOffsets

    def put_committed(offsets: GroupOffsets, producer_id: int, topic: str, partition: int, entry: Any) -> None:
        offsets.put(topic, partition, entry)

    patch.setattr(GroupOffsets, "put_pending", put_committed)


def show_open_transactions(patch: pytest.MonkeyPatch) -> None:
    """Returns records of open transactions to readers of committed records."""
    from brokers.engine.partitions.partition import Partition

    patch.setattr(Partition, "last_stable_offset", property(lambda partition: partition.high_watermark))


PLANTED: Final[Mapping[str, Plant]] = {
    plant.__name__: plant for plant in (nothing, commit_what_is_aborted, count_offsets_at_once, show_open_transactions)
}


def main() -> int:
    # Compiled modules cannot be patched.
    os.environ["PENSTOCK_NATIVE"] = "0"
    name = sys.argv.pop(1)
    PLANTED[name](pytest.MonkeyPatch())
    from brokers.engine.__main__ import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
