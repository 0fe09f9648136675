"""Planning of partition reassignments and their cancellation (REP-32, REP-33). Pure.

While a partition is being reassigned, its replicas are the target ones followed by those to be removed. The controller
completes the reassignment in one transaction when every target replica is in sync; until then the target can be
replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from brokers.contract.documents import PartitionStateDocument, TopicDocument
from brokers.contract.partitions import NO_LEADER
from brokers.engine.cluster import errors
from brokers.engine.cluster.image import BrokerInfo, PartitionImage
from brokers.engine.cluster.incarnations import is_same_incarnation, isr_epochs


@dataclass(frozen=True, slots=True)
class Assignment:
    """Assignment of one partition in a topic document."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """Replicas before the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    def with_target(self, target: Sequence[int]) -> Assignment:
        """Returns the assignment on its way to `target`, regardless of the previous target."""
        original = self.original
        removing = tuple(replica for replica in original if replica not in target)
        return Assignment(
            replicas=(*target, *removing),
            adding=tuple(replica for replica in target if replica not in original),
            removing=removing,
        )


def assignment_of(document: TopicDocument, index: int) -> Assignment:
    return Assignment(document.assignment[index], document.adding.get(index, ()), document.removing.get(index, ()))


def with_assignments(document: TopicDocument, changed: Mapping[int, Assignment]) -> TopicDocument:
    """Returns the document with these assignments; its maps of reassignments have only partitions that are being
    reassigned.
    """
    assignment, adding, removing = dict(document.assignment), dict(document.adding), dict(document.removing)
    for index, planned in changed.items():
        assignment[index] = planned.replicas
        for by_index, replicas in ((adding, planned.adding), (removing, planned.removing)):
            by_index.pop(index, None)
            if replicas:
                by_index[index] = replicas
    return replace(document, assignment=assignment, adding=adding, removing=removing)


def plan_reassignment(
    present: Assignment,
    target: Sequence[int] | None,
    eligible: Mapping[int, str | None],
    *,
    replication_factor_max: int,
) -> Assignment:
    """Returns the new assignment; a `target` of None cancels, and `eligible` are the live brokers that may have the
    topic.

    Raises:
        errors.NoReassignmentInProgress: there is no reassignment to cancel.
        errors.InvalidReplicaAssignment: `target` is empty, has a duplicate or too many brokers, or adds a broker that
            is not eligible.
    """
    if target is None:
        if not present.is_reassigning:
            raise errors.NoReassignmentInProgress("No partition reassignment is in progress.")
        return present.with_target(present.original)
    if not target:
        raise errors.InvalidReplicaAssignment("Empty replica list specified in partition reassignment.")
    if len(set(target)) != len(target):
        raise errors.InvalidReplicaAssignment(f"Duplicate replica ids in partition reassignment: {list(target)}.")
    if len(target) > replication_factor_max:
        raise errors.InvalidReplicaAssignment(
            f"This cluster keeps at most {replication_factor_max} replica(s) of a partition."
        )
    planned = present.with_target(target)
    absent = [replica for replica in planned.adding if replica not in eligible]
    if absent:
        raise errors.InvalidReplicaAssignment(f"Replica assignment has brokers that are not alive here: {absent}.")
    return planned


def state_after(
    partition: PartitionImage, planned: Assignment, brokers: Mapping[int, BrokerInfo], controller_epoch: int
) -> PartitionStateDocument | None:
    """Returns the state to write together with `planned`; None if no current replica is removed at once.

    A removed replica leaves the ISR at once, and the leader epoch increases: a concurrent write of the leader with an
    ISR that still has this replica then fails.

    Raises:
        errors.InvalidReplicaAssignment: no remaining replica is in sync, so that acknowledged records would be lost.
    """
    removed = [replica for replica in partition.replicas if replica not in planned.replicas]
    if not removed or partition.version is None:
        return None
    isr = tuple(replica for replica in partition.isr if replica not in removed)
    if not isr:
        raise errors.InvalidReplicaAssignment("None of the replicas that would stay is in sync.")
    leader = partition.leader
    if leader in removed:
        leader = next(
            (id for id in planned.replicas if id in isr and is_same_incarnation(partition, brokers, id)), NO_LEADER
        )
    return PartitionStateDocument(
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        controller_epoch=max(partition.controller_epoch, controller_epoch),
        isr=isr,
        isr_broker_epochs=isr_epochs(isr, partition, brokers),
    )
