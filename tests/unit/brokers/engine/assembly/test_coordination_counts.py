"""Counters of coordinators in `/metrics`: counted once, where a record is written, and not again after a load."""

from __future__ import annotations

from typing import Any

import pytest

from brokers.engine.assembly.coordination_counts import (
    OVERDUE_AFTER_MS,
    CountedGroups,
    CountedTransactions,
    Counts,
    samples,
)
from brokers.engine.coordinators.interfaces import StateLog
from brokers.engine.coordinators.settings import GroupSettings, TransactionSettings
from tests.unit.brokers.engine.coordinators.fakes import FakeLog
from tests.unit.brokers.engine.coordinators.groups.committing import put
from tests.unit.brokers.engine.coordinators.groups.members import Member, Shard, complete
from tests.unit.brokers.engine.coordinators.transactions.coordinator import A, B, Coordinator

TIMEOUT_MS = 60_000


class CountedShard(Shard):
    """A group shard as the assembly creates it."""

    def __init__(self, log: FakeLog | None = None) -> None:
        self.counts = Counts()
        super().__init__(log=log)

    def lead(self) -> None:
        self.runtime._new_machine = lambda _: CountedGroups(
            self.counts, lambda: GroupSettings(initial_rebalance_delay_ms=0)
        )
        super().lead()


class CountedCoordinator(Coordinator):
    """A transaction shard as the assembly creates it."""

    def __init__(self, **options: Any) -> None:
        self.counts = Counts()
        super().__init__(**options)

    def _make(self, log: StateLog) -> CountedTransactions:
        return CountedTransactions(
            self.counts, log.leader_epoch, self._settings, lambda: log.high_watermark, self.living.__contains__
        )


def sent(shard: CountedShard, coordinator: CountedCoordinator, now_ms: int = 0) -> dict[str, float]:
    """Returns the samples by name, those with labels also by the label's values."""
    return {
        "".join(
            (sample.name.removeprefix("penstock_broker_"), *(f" {value}" for _, value in sample.labels))
        ): sample.value
        for sample in samples(coordinator.counts, shard.runtime, coordinator.runtime, now_ms)
    }


def test_a_rebalance_is_counted_when_its_generation_begins_and_a_commit_by_partition() -> None:
    shard = CountedShard()
    complete(Member(shard))
    for partition in range(3):
        put(shard, partition, 5, group="ins-aaaaaaaa.simple")
    assert (shard.counts.rebalances, shard.counts.offsets_committed, shard.counts.loads) == (1, 3, 1)
    reported_now = sent(shard, CountedCoordinator())
    assert (reported_now["groups Stable"], reported_now["groups Empty"], reported_now["group_members"]) == (1, 1, 1)


def test_a_static_member_that_comes_back_and_a_group_that_empties_are_no_rebalances() -> None:
    shard = CountedShard()
    member = Member(shard, instance="i1")
    complete(member)
    assert shard.counts.rebalances == 1
    again = Member(shard, instance="i1")
    again.take(again.join())
    assert again.id != member.id
    again.leave()
    assert (shard.counts.rebalances, shard.counts.offsets_committed) == (1, 0)
    complete(Member(shard))
    assert shard.counts.rebalances == 2


def test_a_coordinator_that_takes_over_counts_its_own_and_nothing_from_before() -> None:
    shard = CountedShard()
    complete(Member(shard))
    put(shard, 0, 5, group="ins-aaaaaaaa.simple")
    put(shard, 1, 5, group="ins-aaaaaaaa.simple")
    shard.reload()
    assert (shard.counts.rebalances, shard.counts.offsets_committed, shard.counts.loads) == (1, 2, 2)
    put(shard, 0, 6, group="ins-aaaaaaaa.simple")
    assert shard.counts.offsets_committed == 3


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_is_counted_when_it_begins_and_when_it_has_ended_everywhere(committed: bool) -> None:
    coordinator = CountedCoordinator()
    producer = coordinator.begin()
    coordinator.add(producer, A)
    coordinator.add(producer, B)
    assert (coordinator.counts.begun, len(coordinator.machine.ends_ms)) == (1, 1)
    coordinator.end(producer, committed)
    assert (coordinator.counts.committed, coordinator.counts.aborted) == (0, 0)
    coordinator.write_markers()
    assert (coordinator.counts.committed, coordinator.counts.aborted) == (int(committed), int(not committed))
    assert coordinator.counts.timed_out == 0
    assert coordinator.machine.ends_ms == {}


def test_a_transaction_that_is_open_for_too_long_is_counted_as_timed_out_and_aborted() -> None:
    coordinator = CountedCoordinator()
    coordinator.add(coordinator.begin(timeout_ms=TIMEOUT_MS), A)
    coordinator.loop.advance(TIMEOUT_MS + TransactionSettings().timeout_check_interval_ms)
    coordinator.write_markers()
    counts = coordinator.counts
    assert (counts.begun, counts.timed_out, counts.aborted, counts.committed) == (1, 1, 1, 0)


def test_a_transaction_that_no_round_ends_is_overdue_also_after_a_takeover() -> None:
    coordinator = CountedCoordinator()
    coordinator.add(coordinator.begin(timeout_ms=TIMEOUT_MS), A)
    (end_ms,) = coordinator.machine.ends_ms.values()
    shard = CountedShard()
    assert sent(shard, coordinator, end_ms)["transactions_overdue"] == 0
    assert sent(shard, coordinator, end_ms + OVERDUE_AFTER_MS + 1)["transactions_overdue"] == 1
    later = CountedCoordinator(log=coordinator.log)
    assert (later.counts.begun, later.machine.ends_ms) == (0, coordinator.machine.ends_ms)
