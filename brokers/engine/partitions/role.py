"""Role of this broker for one partition, from the cluster metadata image."""

from __future__ import annotations

from typing import Final, NamedTuple

from brokers.contract.partitions import NO_LEADER


class PartitionRole(NamedTuple):
    """Replicas, ISR and leader of a partition; without replicas this broker is the only one.

    `is_known` is true if this broker may have had a replica before. If no log is found while a log directory is
    offline, the log is assumed to be there: the partition stays offline, and does not begin again, empty, in another
    directory. `since_ms` is the monotonic time at which the role began; a leader measures the lag of its followers from
    there.
    """

    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    leader: int = NO_LEADER
    is_known: bool = False
    since_ms: int = 0


ONLY_REPLICA: Final = PartitionRole()
