"""The target state of a partition, from the image alone (REP-27…34, CTL-9, CTL-10, CTL-15). Pure.

Leader and ISR are chosen in steps that are written as one state: dead brokers leave the ISR, a missing leader is
elected, a completed reassignment is finished, and brokers that are stopping hand over their leadership. Preferred
leaders are elected automatically where leaderships are out of balance (REP-31).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from brokers.contract.documents import PartitionStateDocument
from brokers.contract.partitions import NO_LEADER
from brokers.engine.cluster import incarnations
from brokers.engine.cluster.controller_epoch import StateWrite
from brokers.engine.cluster.image import BrokerInfo, PartitionImage, TopicImage
from brokers.engine.controller import leader_choice
from brokers.engine.controller.leader_choice import Choice


@dataclass(frozen=True, slots=True)
class TargetState:
    """A state to write. With `finishes_reassignment` the same transaction makes the target replicas of a reassignment
    the partition's replicas.
    """

    document: PartitionStateDocument
    finishes_reassignment: bool = False


class ElectionContext:
    """Inputs shared by all partitions of one decision: live brokers, stopping brokers and the controller epoch."""

    __slots__ = ("brokers", "controller_epoch", "is_eligible", "stopping")

    def __init__(self, brokers: Mapping[int, BrokerInfo], controller_epoch: int) -> None:
        self.brokers = brokers
        self.controller_epoch = controller_epoch
        self.stopping = frozenset(id for id, broker in brokers.items() if broker.stopping)
        self.is_eligible: Callable[[int], bool] = (brokers.keys() - self.stopping).__contains__

    def document(
        self, partition: PartitionImage, choice: Choice, joined: Mapping[int, int] | None = None
    ) -> PartitionStateDocument:
        """Returns the state document of a choice; every state of the controller has the next leader epoch (REP-2)."""
        return PartitionStateDocument(
            leader=choice.leader,
            leader_epoch=partition.leader_epoch + 1,
            controller_epoch=self.controller_epoch,
            isr=choice.isr,
            isr_broker_epochs=incarnations.isr_epochs(choice.isr, partition, self.brokers, joined),
        )


def target_state(partition: PartitionImage, context: ElectionContext, *, unclean_allowed: bool) -> TargetState | None:
    """Returns the state to write for a partition; None if its current state is right or cannot be improved."""
    if partition.version is None:
        first = leader_choice.first_leader(partition.replicas, context.is_eligible)
        if first is None:
            return None
        epochs = {id: context.brokers[id].epoch for id in first.isr}
        return TargetState(context.document(partition, first, epochs))
    if _needs_no_change(partition, context):
        return None

    choice, joined = _choose_leader(partition, context, unclean_allowed)
    finishes_reassignment = _is_reassignment_complete(partition, choice)
    if finishes_reassignment:
        choice = _within(partition.target, choice, context)
    choice = _without_stopping(partition, choice, context)
    if not finishes_reassignment and not joined and (choice.leader, choice.isr) == (partition.leader, partition.isr):
        return None
    return TargetState(context.document(partition, choice, joined), finishes_reassignment)


def preferred_state(partition: PartitionImage, context: ElectionContext) -> PartitionStateDocument | None:
    """Returns the state with the preferred leader; None if it leads already or is not eligible (REP-29)."""
    preferred = partition.replicas[0]
    if partition.version is None or partition.leader in (preferred, NO_LEADER) or partition.is_reassigning:
        return None
    choice = leader_choice.preferred_leader(
        partition.replicas,
        partition.isr,
        lambda id: context.is_eligible(id) and incarnations.is_same_incarnation(partition, context.brokers, id),
    )
    return None if choice is None else context.document(partition, choice)


def _needs_no_change(partition: PartitionImage, context: ElectionContext) -> bool:
    """True for a partition that needs no change, the usual case: the ISR is alive and not stopping, one of it leads,
    and there is no reassignment.
    """
    if partition.leader == NO_LEADER or partition.adding or partition.removing:
        return False
    for id in partition.isr:
        if id in context.stopping or id not in partition.replicas:
            return False
        if not incarnations.is_same_incarnation(partition, context.brokers, id):
            return False
    return partition.leader in partition.isr


def _choose_leader(
    partition: PartitionImage, context: ElectionContext, unclean_allowed: bool
) -> tuple[Choice, dict[int, int]]:
    """Returns a live leader with its ISR, and the broker epochs of members that newly count as in sync.

    A broker that registered after the ISR was written is in it as an earlier incarnation (CTL-10). It may have lost
    records that were not on disk, so it leads only if no member with an unchanged incarnation can: either it was the
    last leader, and no replica has more records, or there was no leader and it is the ISR member that was waited for
    (REP-28). It then leads under a higher leader epoch, which distinguishes the incarnations, and is alone in the ISR.
    """

    def is_same_incarnation(id: int) -> bool:
        return incarnations.is_same_incarnation(partition, context.brokers, id)

    # An ISR member that is no longer a replica (a reassignment was cancelled) deletes its log, so it is left out.
    isr = tuple(id for id in partition.isr if id in partition.replicas) or partition.isr
    if partition.leader in isr and is_same_incarnation(partition.leader):
        return Choice(partition.leader, leader_choice.without_dead(partition.leader, isr, is_same_incarnation)), {}

    for is_fit in (lambda id: context.is_eligible(id) and is_same_incarnation(id), is_same_incarnation):
        choice = leader_choice.offline_leader(partition.replicas, isr, is_fit, unclean_allowed=False)
        if choice.leader != NO_LEADER:
            return Choice(choice.leader, leader_choice.without_dead(choice.leader, isr, is_same_incarnation)), {}

    is_alive = context.brokers.__contains__
    candidates = isr if partition.leader == NO_LEADER else tuple(id for id in isr if id == partition.leader)
    choice = leader_choice.offline_leader(partition.replicas, candidates, is_alive, unclean_allowed=False)
    if choice.leader == NO_LEADER and unclean_allowed:
        choice = leader_choice.offline_leader(partition.replicas, isr, is_alive, unclean_allowed=True)
    if choice.leader == NO_LEADER:
        # No leader (REP-30). Restarted brokers leave the ISR while other members are awaited, and must catch up with
        # them.
        return Choice(NO_LEADER, tuple(id for id in isr if not is_alive(id)) or isr), {}
    return Choice(choice.leader, (choice.leader,), choice.unclean), {
        choice.leader: context.brokers[choice.leader].epoch
    }


def _is_reassignment_complete(partition: PartitionImage, choice: Choice) -> bool:
    """True if a reassignment is complete: all target replicas are in sync with a leader (REP-32)."""
    return partition.is_reassigning and choice.leader != NO_LEADER and set(partition.target) <= set(choice.isr)


def _within(target: tuple[int, ...], choice: Choice, context: ElectionContext) -> Choice:
    """Restricts a choice to the target replicas, one of which becomes the leader."""
    isr = tuple(id for id in choice.isr if id in target)
    if choice.leader in target:
        return Choice(choice.leader, isr)
    eligible = leader_choice.reassigned_leader(target, isr, context.is_eligible)
    return eligible or Choice(target[0], isr)


def _without_stopping(partition: PartitionImage, choice: Choice, context: ElectionContext) -> Choice:
    """Moves leadership from a stopping broker to another ISR member, and removes stopping brokers from the ISR
    (REP-34).

    If no other member can lead, the choice stays as it is.
    """
    if choice.leader == NO_LEADER or context.stopping.isdisjoint(choice.isr):
        return choice
    if choice.leader in context.stopping:
        successor = leader_choice.shutdown_leader(
            partition.replicas, choice.isr, context.brokers.__contains__, context.stopping.__contains__
        )
        return successor or choice
    return Choice(choice.leader, tuple(id for id in choice.isr if id not in context.stopping))


def preferred_leader_writes(
    topics: Iterable[TopicImage], context: ElectionContext, *, imbalance_percent_max: int
) -> list[StateWrite]:
    """Returns the writes that elect preferred leaders, for brokers whose imbalance is above the maximum.

    Imbalance of a broker: the percentage of partitions led by another broker among those of which it is first replica.
    Partitions without a leader are not counted as led by another broker.
    """
    preferred: dict[int, int] = {}
    led_by_others: dict[int, list[tuple[TopicImage, PartitionImage]]] = {}
    for topic in topics:
        if topic.deleting:
            continue
        for partition in topic.partitions:
            first = partition.replicas[0]
            preferred[first] = preferred.get(first, 0) + 1
            if partition.leader not in (first, NO_LEADER):
                led_by_others.setdefault(first, []).append((topic, partition))
    writes: list[StateWrite] = []
    for broker, partitions in led_by_others.items():
        if not context.is_eligible(broker) or len(partitions) * 100 <= imbalance_percent_max * preferred[broker]:
            continue
        for topic, partition in partitions:
            document = preferred_state(partition, context)
            if document is not None:
                writes.append(
                    StateWrite(topic.name, partition.index, document, partition.version, identity=topic.identity)
                )
    return writes
