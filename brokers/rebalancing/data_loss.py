"""Plans for the removal of a permanently lost broker. Pure.

The plan is like that for emptying the broker, but nothing can be copied from it. A partition with another complete
replica is copied from that one. A partition without a live complete replica continues with an incomplete replica, or
empty; `DataLoss` has these cases.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from brokers.choices import DataLoss
from brokers.rebalancing.model import Fleet, Obstacle, PartitionReplicas, PlacementChange, Reassignment, RebalancePlan
from brokers.rebalancing.planner import drain_plan


def loss_of(replicas: Iterable[int], isr: Iterable[int], given_up: frozenset[int], *, is_led: bool) -> DataLoss:
    """Returns the loss of a partition if the brokers `given_up` never come back.

    It is `NOTHING` while the partition has a leader, or an in-sync replica on another broker, for which the plan waits.
    """
    if is_led or not set(isr) <= given_up:
        return DataLoss.NOTHING
    return DataLoss.SOME if set(replicas) - given_up else DataLoss.ALL


def data_loss_plan(fleet: Fleet, broker: int, given_up: frozenset[int]) -> RebalancePlan:
    """Returns a plan that moves all partitions, even pinned ones, away from `broker`, which is one of the `given_up`.

    A partition of `broker` is moved away from the other given-up brokers as well: a move that still needs one of them
    would never end.
    """
    broker_partitions = {partition.key: partition for partition in fleet.partitions if broker in partition.replicas}
    current = [
        replace(partition, pinned=False) if partition.key in broker_partitions else partition
        for partition in fleet.partitions
    ]
    placements = dict(fleet.placements)
    placement_changes: dict[str, PlacementChange] = {}
    obstacles: list[Obstacle] = []
    for lost_broker in (broker, *sorted(given_up - {broker})):
        concerned_partitions = [
            partition for partition in current if lost_broker == broker or partition.key in broker_partitions
        ]
        step = drain_plan(
            replace(
                fleet,
                partitions=concerned_partitions,
                placements=_changeable_placements(placements, concerned_partitions, lost_broker, broker),
            ),
            lost_broker,
        )
        obstacles += step.obstacles
        targets = {reassignment.key: reassignment.target for reassignment in step.moves}
        current = [replace(partition, replicas=targets.get(partition.key, partition.replicas)) for partition in current]
        for change in step.placement_changes:
            placement_changes[change.owner] = _merge_changes(placement_changes.get(change.owner), change)
            placements[change.owner] = (placements[change.owner] | set(change.arriving)) - set(change.leaving)
    if obstacles:
        return RebalancePlan(obstacles=tuple(dict.fromkeys(obstacles)))
    moves = [
        _new_reassignment(broker_partitions[partition.key], partition.replicas, given_up)
        for partition in current
        if partition.key in broker_partitions
    ]
    return RebalancePlan(
        moves=tuple(sorted(moves, key=lambda reassignment: reassignment.key)),
        placement_changes=tuple(placement_changes[owner] for owner in sorted(placement_changes)),
    )


def _changeable_placements(
    placements: dict[str, frozenset[int]], partitions: Iterable[PartitionReplicas], lost_broker: int, broker: int
) -> dict[str, frozenset[int]]:
    """Returns the placements that the step for `lost_broker` may change, by instance id.

    They are all placements if `lost_broker` is the `broker` of the plan, otherwise those of instances with one of the
    `partitions` on it.
    """
    if lost_broker == broker:
        return placements
    owners = {partition.owner for partition in partitions if lost_broker in partition.replicas}
    return {owner: brokers for owner, brokers in placements.items() if owner in owners}


def _merge_changes(earlier: PlacementChange | None, later: PlacementChange) -> PlacementChange:
    if earlier is None:
        return later
    arriving = dict.fromkeys((*earlier.arriving, *later.arriving))
    return replace(earlier, arriving=tuple(arriving), leaving=(*earlier.leaving, *later.leaving))


def _new_reassignment(partition: PartitionReplicas, target: tuple[int, ...], given_up: frozenset[int]) -> Reassignment:
    return Reassignment(
        topic=partition.topic,
        index=partition.index,
        before=partition.replicas,
        target=target,
        size_bytes=partition.size_bytes,
        topic_id=partition.topic_id,
        loses=loss_of(partition.replicas, partition.isr, given_up, is_led=partition.is_led).value,
    )
