"""Known mistakes in coordinators, planted one at a time; the simulator must find each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from brokers.engine.assembly.state_log import PartitionLog
from brokers.engine.coordinators import runtime
from brokers.engine.coordinators.groups import offsets
from brokers.engine.coordinators.groups.checking import check_member
from brokers.engine.coordinators.groups.machine import GroupMachine
from brokers.engine.coordinators.result import REPLY_PENDING, CoordinatorResult
from brokers.engine.coordinators.runtime import load_shard
from brokers.engine.coordinators.shard import Shard
from brokers.engine.coordinators.transactions.machine import TransactionMachine
from brokers.engine.partitions.partition import Partition
from brokers.engine.storage.producer_state import ProducerState

Plant = Callable[[pytest.MonkeyPatch], object]


def reply_before_commit(patch: pytest.MonkeyPatch) -> None:
    """Releases decisions when they are appended, before they are committed."""

    def leave(shard: Shard[Any], outcome: CoordinatorResult, ticket: Any, last_offset: int) -> None:
        shard.release_replies_and_effects(outcome)
        if ticket is not None and outcome.reply is not REPLY_PENDING:
            ticket.deliver(outcome.reply)

    patch.setattr(Shard, "_await_commit", leave)


def forget_pending_offsets(patch: pytest.MonkeyPatch) -> None:
    """Drops the pending offsets of open transactions at load."""

    async def forgetful(shard: Shard[Any]) -> int:
        records = await load_shard(shard)
        if isinstance(shard.machine, GroupMachine):
            for held in shard.machine.offsets.offsets_by_group.values():
                held.pending.clear()
        return records

    patch.setattr(runtime, "load_shard", forgetful)


def take_markers_of_zombies(patch: pytest.MonkeyPatch) -> None:
    """Accepts markers of deposed coordinators."""
    patch.setattr(ProducerState, "check_marker", lambda producers, producer_id, epoch, coordinator_epoch: 0)


def ignore_generation(patch: pytest.MonkeyPatch) -> None:
    """Accepts commits of members in any generation."""

    def careless(group: Any, generation: int, member_id: str, instance_id: str | None, *, transactional: bool) -> int:
        return check_member(group, member_id, instance_id) if generation >= 0 else 0

    patch.setattr(offsets, "check_commit", careless)


def send_markers_once(patch: pytest.MonkeyPatch) -> None:
    """Does not repeat the markers of decided transactions after a change of the coordinator."""
    loaded = TransactionMachine.on_loaded

    def begin(machine: TransactionMachine, now: Any) -> CoordinatorResult:
        outcome = loaded(machine, now)
        outcome.effects = []
        return outcome

    patch.setattr(TransactionMachine, "on_loaded", begin)


def show_open_transactions(patch: pytest.MonkeyPatch) -> None:
    """Returns records of open transactions to `read_committed` readers."""
    patch.setattr(Partition, "last_stable_offset", property(lambda partition: partition.high_watermark))


def tell_unconfirmed_positions(patch: pytest.MonkeyPatch) -> None:
    """Answers reads without checking that the broker is still the coordinator."""
    patch.setattr(PartitionLog, "is_sole_in_sync_replica", True)


PLANTED: Final[Mapping[str, Plant]] = {
    plant.__name__: plant
    for plant in (
        reply_before_commit,
        forget_pending_offsets,
        take_markers_of_zombies,
        ignore_generation,
        send_markers_once,
        show_open_transactions,
        tell_unconfirmed_positions,
    )
}
