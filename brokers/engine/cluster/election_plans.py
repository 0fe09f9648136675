"""Decisions on leader elections that an operator requested (REP-28, REP-29). Pure.

The controller performs clean elections on its own. Operators can request the preferred leader, or an unclean election
that gives up records to have a leader at all.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from brokers.contract.documents import PartitionStateDocument
from brokers.contract.partitions import NO_LEADER
from brokers.engine.cluster import errors
from brokers.engine.cluster.image import BrokerInfo, PartitionImage
from brokers.engine.cluster.incarnations import is_same_incarnation, isr_epochs


class ElectionType(enum.IntEnum):
    """Election types with the numbers of the protocol."""

    PREFERRED = 0
    UNCLEAN = 1


def plan_election(
    kind: ElectionType, partition: PartitionImage, brokers: Mapping[int, BrokerInfo], controller_epoch: int
) -> PartitionStateDocument:
    """Returns the partition state to write for an election.

    Raises:
        errors.ElectionNotNeeded: the preferred replica leads, or for an unclean election any replica does.
        errors.PreferredLeaderNotAvailable: the preferred replica, the first, is down, stopping or not in sync.
        errors.EligibleLeadersNotAvailable: no replica is alive.
    """
    if kind is ElectionType.PREFERRED:
        leader, isr = _preferred_leader(partition, brokers), partition.isr
    else:
        leader, isr = _unclean(partition, brokers)
    joined = {leader: brokers[leader].epoch}
    return PartitionStateDocument(
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        controller_epoch=max(partition.controller_epoch, controller_epoch),
        isr=isr,
        isr_broker_epochs=isr_epochs(isr, partition, brokers, joined),
    )


def _preferred_leader(partition: PartitionImage, brokers: Mapping[int, BrokerInfo]) -> int:
    leader = partition.replicas[0]
    if partition.leader == leader:
        raise errors.ElectionNotNeeded("Leader election not needed for topic partition.")
    if leader not in partition.isr or not is_same_incarnation(partition, brokers, leader) or brokers[leader].stopping:
        raise errors.PreferredLeaderNotAvailable(
            f"The preferred leader, broker {leader}, is down, stopping or not in sync."
        )
    return leader


def _unclean(partition: PartitionImage, brokers: Mapping[int, BrokerInfo]) -> tuple[int, tuple[int, ...]]:
    """Returns `(leader, ISR)` of an unclean election.

    The leader is a live replica, chosen by these criteria in this order: it is in sync; it is not stopping, since it
    would soon hand over; it is listed in the ISR under an earlier registration; it comes first in the assignment.
    """
    if partition.leader != NO_LEADER and partition.leader in brokers:
        raise errors.ElectionNotNeeded("Leader election not needed for topic partition.")
    in_sync = tuple(replica for replica in partition.isr if is_same_incarnation(partition, brokers, replica))
    live = [replica for replica in partition.replicas if replica in brokers]
    if not live:
        raise errors.EligibleLeadersNotAvailable("No replica of the partition is alive.")
    leader = min(live, key=lambda id: (id not in in_sync, brokers[id].stopping, id not in partition.isr))
    return leader, in_sync if leader in in_sync else (leader,)
