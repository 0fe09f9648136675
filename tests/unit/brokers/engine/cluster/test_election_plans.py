"""Unclean elections that an operator requested, while brokers stop (REP-28, REP-34)."""

from __future__ import annotations

import pytest

from brokers.contract.partitions import NO_LEADER
from brokers.engine.cluster.election_plans import ElectionType, plan_election
from brokers.engine.cluster.image import BrokerInfo, PartitionImage


@pytest.mark.parametrize(
    ("isr", "stopping", "leader", "next_isr"),
    [
        ((), {1}, 2, (2,)),
        ((), {1, 2}, 1, (1,)),
        ((1, 2), {1}, 2, (1, 2)),
        ((1,), {1}, 1, (1,)),
    ],
    ids=["another live replica", "all replicas stop", "another in sync", "the only one in sync"],
)
def test_a_stopping_replica_leads_only_if_no_other_is_as_good(
    isr: tuple[int, ...], stopping: set[int], leader: int, next_isr: tuple[int, ...]
) -> None:
    brokers = {id: BrokerInfo(id, "127.0.0.1", 1, 2, None, epoch=10 + id, stopping=id in stopping) for id in (1, 2)}
    partition = PartitionImage(
        index=0, replicas=(1, 2), leader=NO_LEADER, leader_epoch=3, isr=isr, version=1, written_at=20
    )
    state = plan_election(ElectionType.UNCLEAN, partition, brokers, controller_epoch=1)
    assert (state.leader, tuple(state.isr)) == (leader, next_isr)
