"""Plans for partitions of brokers that are lost for good."""

from __future__ import annotations

import pytest

from brokers.choices import DataLoss
from brokers.rebalancing.data_loss import data_loss_plan, loss_of
from brokers.rebalancing.model import BrokerCapacity, Fleet, PartitionReplicas, RebalancePlan

OWNER = "ins-00000000"


def fleet(
    *partitions: PartitionReplicas, live: tuple[int, ...] = (1, 2, 4, 6), placements: tuple[int, ...] = (1, 2, 3, 5)
) -> Fleet:
    """Brokers 1 to 6, of which 3 and 5 are lost."""
    brokers = {number: BrokerCapacity(id=number, accepts_replicas=number in live) for number in range(1, 7)}
    return Fleet(brokers=brokers, partitions=partitions, placements={OWNER: frozenset(placements)}, placements_min=3)


def held(index: int, replicas: tuple[int, ...], isr: tuple[int, ...], *, is_led: bool) -> PartitionReplicas:
    return PartitionReplicas(topic=f"{OWNER}.t", index=index, replicas=replicas, isr=isr, owner=OWNER, is_led=is_led)


def targets(plan: RebalancePlan) -> dict[int, tuple[tuple[int, ...], str]]:
    return {reassignment.index: (reassignment.target, reassignment.loses) for reassignment in plan.moves}


@pytest.mark.parametrize(
    ("replicas", "isr", "is_led", "found"),
    [
        ((3,), (3,), False, DataLoss.ALL),
        ((3, 1), (3,), False, DataLoss.SOME),
        ((3, 1), (1,), True, DataLoss.NOTHING),
        ((3, 2), (3, 2), False, DataLoss.NOTHING),
        ((3, 5), (3, 5), False, DataLoss.ALL),
        ((3, 5, 1), (5,), False, DataLoss.SOME),
        ((3,), (), False, DataLoss.ALL),
    ],
    ids=str,
)
def test_only_what_nobody_in_sync_can_bring_back_is_lost(
    replicas: tuple[int, ...], isr: tuple[int, ...], is_led: bool, found: DataLoss
) -> None:
    assert loss_of(replicas, isr, frozenset({3, 5}), is_led=is_led) is found


def test_a_partition_shared_by_two_that_are_gone_leaves_both() -> None:
    plan = data_loss_plan(fleet(held(0, (3, 5), (3, 5), is_led=False)), 3, frozenset({3, 5}))
    ((target, loses),) = targets(plan).values()
    assert loses == "all" and len(target) == 2 and not {3, 5} & {*target}
    (placement_change,) = plan.placement_changes
    assert {3, 5} <= {*placement_change.leaving} and {*target} <= {1, 2, *placement_change.arriving}


def test_partitions_of_another_lost_broker_are_not_in_the_plan() -> None:
    plan = data_loss_plan(
        fleet(held(0, (3, 1), (1,), is_led=True), held(1, (5, 1), (1,), is_led=True)), 3, frozenset({3, 5})
    )
    assert list(targets(plan)) == [0]
    assert [change.leaving for change in plan.placement_changes] == [(3,)]


def test_a_partition_without_another_place_is_an_obstacle() -> None:
    plan = data_loss_plan(fleet(held(0, (3, 1, 2), (1, 2), is_led=True), live=(1, 2)), 3, frozenset({3}))
    assert not plan.moves and [obstacle.topic for obstacle in plan.obstacles] == [f"{OWNER}.t"]
