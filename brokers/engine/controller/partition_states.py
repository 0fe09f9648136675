"""What a partition's state should be, from the image alone (REP-27…34, CTL-9, CTL-10, CTL-15). Pure.

The steps are taken one behind the other on a choice of leader and ISR, and written as one: who died leaves, a leader is
found where there is none, a move that has arrived ends, who is about to stop gives away what somebody else can take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from brokers.contract.documents import PartitionStateDocument
from brokers.contract.partitions import NO_LEADER
from brokers.engine.cluster import incarnations
from brokers.engine.cluster.image import BrokerInfo, PartitionImage
from brokers.engine.controller import leader_choice
from brokers.engine.controller.leader_choice import Choice


@dataclass(frozen=True, slots=True)
class Wanted:
    """The state to write. `arrived`: the move is over, and the topic's replicas become its target in the same
    transaction.
    """

    document: PartitionStateDocument
    arrived: bool = False


class ElectionContext:
    """Who lives, who stays, and in whose name is written: the same for all partitions of one decision."""

    __slots__ = ("brokers", "controller_epoch", "is_staying", "stopping")

    def __init__(self, brokers: Mapping[int, BrokerInfo], controller_epoch: int) -> None:
        self.brokers = brokers
        self.controller_epoch = controller_epoch
        self.stopping = frozenset(id for id, broker in brokers.items() if broker.stopping)
        self.is_staying: Callable[[int], bool] = (brokers.keys() - self.stopping).__contains__

    def document(
        self, partition: PartitionImage, choice: Choice, joined: Mapping[int, int] | None = None
    ) -> PartitionStateDocument:
        """Every state the controller writes has the next leader epoch (REP-2)."""
        return PartitionStateDocument(
            leader=choice.leader,
            leader_epoch=partition.leader_epoch + 1,
            controller_epoch=self.controller_epoch,
            isr=choice.isr,
            isr_broker_epochs=incarnations.isr_epochs(choice.isr, partition, self.brokers, joined),
        )


def wanted_state(partition: PartitionImage, context: ElectionContext, *, unclean_allowed: bool) -> Wanted | None:
    """What should be written over the partition's present state; None when it is right as it is, or nothing can be
    done.
    """
    if partition.version is None:
        first = leader_choice.first_leader(partition.replicas, context.is_staying)
        if first is None:
            return None
        epochs = {id: context.brokers[id].epoch for id in first.isr}
        return Wanted(context.document(partition, first, epochs))
    if _is_at_rest(partition, context):
        return None

    choice, joined = _with_living_leader(partition, context, unclean_allowed)
    arrived = _has_arrived(partition, choice)
    if arrived:
        choice = _within(partition.target, choice, context)
    choice = _without_stopping(partition, choice, context)
    if not arrived and not joined and (choice.leader, choice.isr) == (partition.leader, partition.isr):
        return None
    return Wanted(context.document(partition, choice, joined), arrived)


def preferred_state(partition: PartitionImage, context: ElectionContext) -> PartitionStateDocument | None:
    """REP-29: its preferred leader instead of the present one; None while it leads, or is not fit to."""
    preferred = partition.replicas[0]
    if partition.version is None or partition.leader in (preferred, NO_LEADER) or partition.is_reassigning:
        return None
    choice = leader_choice.preferred_leader(
        partition.replicas,
        partition.isr,
        lambda id: context.is_staying(id) and incarnations.is_same_incarnation(partition, context.brokers, id),
    )
    return None if choice is None else context.document(partition, choice)


def _is_at_rest(partition: PartitionImage, context: ElectionContext) -> bool:
    """Nearly every partition on nearly every look: all in sync live and stay, one of them leads, nothing moves."""
    if partition.leader == NO_LEADER or partition.adding or partition.removing:
        return False
    for id in partition.isr:
        if id in context.stopping or id not in partition.replicas:
            return False
        if not incarnations.is_same_incarnation(partition, context.brokers, id):
            return False
    return partition.leader in partition.isr


def _with_living_leader(
    partition: PartitionImage, context: ElectionContext, unclean_allowed: bool
) -> tuple[Choice, dict[int, int]]:
    """Who leads and who is in sync with whom, of those who live; and the epochs of members that count from here on.

    A broker that registered after it was written in sync is in the ISR from an earlier incarnation (CTL-10). It may
    have lost what was not on disk, so it leads only when nobody of the same life can: if it led last, then nobody had
    more than it; if there was no leader any more, it is the ISR member that was waited for (REP-28). It does so under a
    higher leader epoch, so that nobody mistakes one life for the other, and alone in the ISR.
    """

    def is_same_incarnation(id: int) -> bool:
        return incarnations.is_same_incarnation(partition, context.brokers, id)

    # An ISR member that is a replica no more (a move was taken back) is about to delete its log, or has.
    isr = tuple(id for id in partition.isr if id in partition.replicas) or partition.isr
    if partition.leader in isr and is_same_incarnation(partition.leader):
        return Choice(partition.leader, leader_choice.without_dead(partition.leader, isr, is_same_incarnation)), {}

    for is_fit in (lambda id: context.is_staying(id) and is_same_incarnation(id), is_same_incarnation):
        choice = leader_choice.offline_leader(partition.replicas, isr, is_fit, unclean_allowed=False)
        if choice.leader != NO_LEADER:
            return Choice(choice.leader, leader_choice.without_dead(choice.leader, isr, is_same_incarnation)), {}

    is_alive = context.brokers.__contains__
    awaited = isr if partition.leader == NO_LEADER else tuple(id for id in isr if id == partition.leader)
    choice = leader_choice.offline_leader(partition.replicas, awaited, is_alive, unclean_allowed=False)
    if choice.leader == NO_LEADER and unclean_allowed:
        choice = leader_choice.offline_leader(partition.replicas, isr, is_alive, unclean_allowed=True)
    if choice.leader == NO_LEADER:
        # REP-30; only who was reborn while others are awaited has to catch up with them.
        return Choice(NO_LEADER, tuple(id for id in isr if not is_alive(id)) or isr), {}
    return Choice(choice.leader, (choice.leader,), choice.unclean), {
        choice.leader: context.brokers[choice.leader].epoch
    }


def _has_arrived(partition: PartitionImage, choice: Choice) -> bool:
    """REP-32: a move ends when all of its target are in sync with a leader."""
    return partition.is_reassigning and choice.leader != NO_LEADER and set(partition.target) <= set(choice.isr)


def _within(target: tuple[int, ...], choice: Choice, context: ElectionContext) -> Choice:
    """The leader is one of the target, and the others leave the ISR."""
    isr = tuple(id for id in choice.isr if id in target)
    if choice.leader in target:
        return Choice(choice.leader, isr)
    staying = leader_choice.reassigned_leader(target, isr, context.is_staying)
    return staying or Choice(target[0], isr)


def _without_stopping(partition: PartitionImage, choice: Choice, context: ElectionContext) -> Choice:
    """REP-34: leadership goes to somebody in sync who stays, and who stops leaves the ISR; the last one stays in."""
    if choice.leader == NO_LEADER or context.stopping.isdisjoint(choice.isr):
        return choice
    if choice.leader in context.stopping:
        taken = leader_choice.shutdown_leader(
            partition.replicas, choice.isr, context.brokers.__contains__, context.stopping.__contains__
        )
        return taken or choice
    return Choice(choice.leader, tuple(id for id in choice.isr if id not in context.stopping))
