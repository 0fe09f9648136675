"""A broker with a mistake in it, to see whether the exactly-once workload and its judge find it.

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
    """The broker as it is."""


def commit_what_is_aborted(patch: pytest.MonkeyPatch) -> None:
    """A marker says that its transaction counts, whatever was decided."""
    from brokers.engine.partitions import transactions
    from brokers.engine.partitions.partition import Partition

    append = transactions.append_marker

    def careless(
        partition: Partition, producer_id: int, epoch: int, coordinator_epoch: int, committed: bool, now_ms: int
    ) -> Any:
        return append(partition, producer_id, epoch, coordinator_epoch, True, now_ms)

    patch.setattr(transactions, "append_marker", careless)


def count_offsets_at_once(patch: pytest.MonkeyPatch) -> None:
    """Offsets of a transaction are committed when they are sent, and stay when it is aborted."""
    from brokers.engine.coordinators.groups.committed import GroupOffsets

    def put(held: GroupOffsets, producer_id: int, topic: str, partition: int, entry: Any) -> None:
        held.put(topic, partition, entry)

    patch.setattr(GroupOffsets, "put_pending", put)


def show_open_transactions(patch: pytest.MonkeyPatch) -> None:
    """Readers of committed data get all that is replicated, as it comes."""
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
