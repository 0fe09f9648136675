"""Known mistakes in replication, planted one at a time; the simulator must find each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from brokers.engine.cluster import state_writes
from brokers.engine.handlers.produce import append
from brokers.engine.partitions import follower_session
from brokers.engine.partitions.leadership import Leadership
from brokers.engine.partitions.partition import NO_EPOCH, Partition
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.replication.fetch_plan import PartitionFetchState
from brokers.engine.replication.fetcher_context import PersistedLogStartOffsets

Plant = Callable[[pytest.MonkeyPatch], object]


def skip_truncation(patch: pytest.MonkeyPatch) -> None:
    """Makes a follower with a diverging log keep its records and continue after them."""
    patch.setattr(follower_session, "_diverging_epoch", lambda partition, request: None)


def acknowledge_early(patch: pytest.MonkeyPatch) -> None:
    """Acknowledges acks=all as soon as the leader has the records."""
    patch.setattr(append, "ACKS_ALL", None)


def high_watermark_from_leader(patch: pytest.MonkeyPatch) -> None:
    """Treats everything that the leader has as committed."""
    patch.setattr(Leadership, "committed_offset", lambda leadership, end_offset: end_offset)


def ignore_leader_epoch(patch: pytest.MonkeyPatch) -> None:
    """Serves requests of any leader epoch, and accepts responses to requests of any leader epoch."""
    refusal = Partition.refusal
    patch.setattr(Partition, "refusal", lambda partition, epoch: refusal(partition, NO_EPOCH))
    patch.setattr(
        PartitionFetchState, "was_requested_in_this_epoch", lambda followed: followed.last_request is not None
    )


def act_on_stale_isr(patch: pytest.MonkeyPatch) -> None:
    """Makes a leader use an ISR that it has proposed and not written yet."""

    def count(leadership: Any) -> None:
        proposed = leadership.proposed
        leadership.in_sync = leadership.isr if proposed is None else proposed

    patch.setattr(Leadership, "_update_in_sync", count)


def tell_starts_early(patch: pytest.MonkeyPatch) -> None:
    """Makes a follower report deleted records that a crash may still bring back."""
    patch.setattr(PersistedLogStartOffsets, "persist_if_advanced", lambda starts, followed: None)
    next_request = PartitionFetchState.next_request

    def sent(followed: PartitionFetchState, bytes_max: int, round_number: int) -> Any:
        followed.partition.log.on_start_offset_durable(followed.partition.log.log_start_offset)
        return next_request(followed, bytes_max, round_number)

    patch.setattr(PartitionFetchState, "next_request", sent)


def keep_log_of_the_name(patch: pytest.MonkeyPatch) -> None:
    """Makes a broker use a log with the name of a topic, whatever topic id it has."""
    get_or_create = PartitionTable._get_or_create

    def held(table: PartitionTable, topic: str, index: int, topic_id: bytes, *rest: Any, **more: Any) -> Partition:
        result = table.get(topic, index)
        if result is not None:
            result.topic_id = topic_id
        return get_or_create(table, topic, index, topic_id, *rest, **more)

    patch.setattr(PartitionTable, "_get_or_create", held)


def write_by_versions_alone(patch: pytest.MonkeyPatch) -> None:
    """Makes a leader write its ISR over the state of another topic that has the same name and version."""
    patch.setattr(
        state_writes,
        "operations_of",
        lambda writes: [operation for write in writes for operation in write.operations()],
    )


PLANTED: Final[Mapping[str, Plant]] = {
    plant.__name__: plant
    for plant in (
        skip_truncation,
        acknowledge_early,
        high_watermark_from_leader,
        ignore_leader_epoch,
        act_on_stale_isr,
        tell_starts_early,
        keep_log_of_the_name,
        write_by_versions_alone,
    )
}
