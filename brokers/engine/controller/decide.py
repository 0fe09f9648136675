"""The controller's mind: `(state, event) -> (state, instructions)`. Pure and level-triggered.

What a partition's state should be follows from the picture alone, never from the history of events; so a controller
elected in the middle of another one's work simply goes on (CTL-3), and deciding twice does no harm. Two guards stand
behind it: every write is held to the term (ZK-4) and to the version of the state it replaces (REP-25).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from brokers.contract.documents import PartitionStateDocument
from brokers.contract.usage import USAGE_TOPIC
from brokers.engine.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from brokers.engine.cluster.terms import StateWrite
from brokers.engine.controller import leader_choice
from brokers.engine.controller.events import (
    CreateSystemTopic,
    Deposed,
    Elected,
    Event,
    FinishDeletion,
    GrowSystemTopic,
    Instruction,
    LookAgain,
    PictureChanged,
    StatesWritten,
    TopicSettled,
    WriteStates,
)
from brokers.engine.controller.leader_choice import NO_LEADER
from brokers.engine.controller.state import ControllerState

WRITING = -1
UNCLEAN_KEY = "unclean.leader.election.enable"
# Two weeks: the billing pipeline may be away that long without losing usage.
USAGE_CONFIG: Mapping[str, str] = {"retention.ms": "1209600000", "segment.bytes": "67108864"}

Decision = tuple[ControllerState, list[Instruction]]


def decide(state: ControllerState, event: Event) -> Decision:
    match event:
        case Elected(term):
            state = replace(state, term=term, awaited={}, busy=frozenset())
            return _decide_topics(state, state.image.topics.values(), "elected")
        case Deposed():
            return replace(state, term=None, awaited={}, busy=frozenset()), []
        case PictureChanged(image):
            return _picture_changed(state, image)
        case StatesWritten(written, lost):
            return _states_written(state, written, lost)
        case TopicSettled(topic, succeeded):
            # What was done shows in the next picture, which is decided on then; a failure leaves no trace there.
            state = replace(state, busy=state.busy - {topic})
            return state, [] if succeeded else [LookAgain((topic,))]


def _picture_changed(state: ControllerState, image: ClusterImage) -> Decision:
    before, state = state.image, replace(state, image=image)
    if state.term is None:
        return state, []
    state = replace(state, awaited=_still_awaited(state.awaited, image))
    if image.brokers != before.brokers:
        return _decide_topics(state, image.topics.values(), _broker_changes(before.brokers, image.brokers))
    if image.topics is before.topics:
        return state, []
    changed = [topic for name, topic in image.topics.items() if before.topics.get(name) is not topic]
    return _decide_topics(state, changed, "topics changed")


def _states_written(
    state: ControllerState, written: Mapping[tuple[str, int], int], lost: Iterable[tuple[str, int]]
) -> Decision:
    if state.term is None:
        return state, []
    lost = tuple(lost)
    awaited = {key: version for key, version in state.awaited.items() if key not in lost}
    awaited.update({key: version for key, version in written.items() if key in awaited})
    state = replace(state, awaited=_still_awaited(awaited, state.image))
    # The picture may have moved on while the write was under way, and nobody would look at these topics again.
    touched = dict.fromkeys(topic for topic, _ in written)
    present = [state.image.topics[name] for name in touched if name in state.image.topics]
    state, instructions = _decide_topics(state, present, "written")
    if lost:
        instructions.append(LookAgain(tuple(dict.fromkeys(topic for topic, _ in lost))))
    return state, instructions


def _decide_topics(state: ControllerState, topics: Iterable[TopicImage], cause: str) -> Decision:
    assert state.term is not None
    writes: list[StateWrite] = []
    instructions: list[Instruction] = []
    busy = set(state.busy)
    for topic in topics:
        if topic.name in busy:
            continue
        if topic.deleting:
            busy.add(topic.name)
            instructions.append(FinishDeletion(topic))
        else:
            writes += _topic_writes(state, topic, state.term.epoch)
    usage = _usage_topic(state.image) if USAGE_TOPIC not in busy else None
    if usage is not None:
        busy.add(USAGE_TOPIC)
        instructions.append(usage)
    if writes:
        instructions.insert(0, WriteStates(tuple(writes), cause))
    awaited = {**state.awaited, **{write.key: WRITING for write in writes}}
    return replace(state, awaited=awaited, busy=frozenset(busy)), instructions


def _topic_writes(state: ControllerState, topic: TopicImage, epoch: int) -> list[StateWrite]:
    writes: list[StateWrite] = []
    opened = any(partition.version is not None for partition in topic.partitions) or any(
        (topic.name, partition.index) in state.awaited for partition in topic.partitions
    )
    for partition in topic.partitions:
        if (topic.name, partition.index) in state.awaited:
            continue
        document = wanted_state(partition, topic.config, state.image.brokers, epoch)
        if document is not None:
            writes.append(StateWrite(topic.name, partition.index, document, partition.version, opens_topic=not opened))
            opened = True
    return writes


def wanted_state(
    partition: PartitionImage, config: Mapping[str, str], brokers: Mapping[int, BrokerInfo], controller_epoch: int
) -> PartitionStateDocument | None:
    """What should be written over the partition's present state; None when it is right as it is, or nothing can be
    done.

    A broker that registered after the state was written is in it from an earlier life (CTL-10): it counts as dead while
    there is anybody else in sync, and if it leads again then under a higher leader epoch, so that nobody mistakes one
    life for the other.
    """
    is_alive = brokers.__contains__

    def is_same_life(id: int) -> bool:
        broker = brokers.get(id)
        return broker is not None and broker.epoch <= partition.written_at

    if partition.version is None:
        first = leader_choice.first_leader(partition.replicas, is_alive)
        if first is None:
            return None
        return PartitionStateDocument(
            leader=first.leader, leader_epoch=0, controller_epoch=controller_epoch, isr=first.isr
        )
    if is_same_life(partition.leader):
        isr = leader_choice.without_dead(partition.leader, partition.isr, is_same_life)
        if isr == partition.isr:
            return None
        choice = leader_choice.Choice(partition.leader, isr)
    else:
        choice = leader_choice.offline_leader(partition.replicas, partition.isr, is_same_life, unclean_allowed=False)
        if choice.leader == NO_LEADER:
            unclean = config.get(UNCLEAN_KEY, "false").lower() == "true"
            choice = leader_choice.offline_leader(partition.replicas, partition.isr, is_alive, unclean_allowed=unclean)
        if choice.leader == NO_LEADER and partition.leader == NO_LEADER:
            return None
    return PartitionStateDocument(
        leader=choice.leader,
        leader_epoch=partition.leader_epoch + 1,
        controller_epoch=controller_epoch,
        isr=choice.isr,
    )


def _usage_topic(image: ClusterImage) -> Instruction | None:
    """Every live broker leads a partition of `__usage`, so that metering never crosses the network to be written."""
    topic = image.topics.get(USAGE_TOPIC)
    live = sorted(image.brokers)
    if topic is None:
        if not live:
            return None
        return CreateSystemTopic(USAGE_TOPIC, {index: (broker,) for index, broker in enumerate(live)}, USAGE_CONFIG)
    if topic.deleting:
        return None
    served = {partition.replicas[0] for partition in topic.partitions}
    added = tuple((broker,) for broker in live if broker not in served)
    return GrowSystemTopic(USAGE_TOPIC, len(topic.partitions), added) if added else None


def _still_awaited(awaited: Mapping[tuple[str, int], int], image: ClusterImage) -> dict[tuple[str, int], int]:
    """Without those that the picture shows by now, or that are gone with their topic."""
    remaining: dict[tuple[str, int], int] = {}
    for (name, index), version in awaited.items():
        topic = image.topics.get(name)
        if topic is None or index >= len(topic.partitions):
            continue
        shown = topic.partitions[index].version
        if version == WRITING or shown is None or shown < version:
            remaining[name, index] = version
    return remaining


def _broker_changes(before: Mapping[int, BrokerInfo], after: Mapping[int, BrokerInfo]) -> str:
    gone = sorted(before.keys() - after.keys())
    came = sorted(after.keys() - before.keys())
    bounced = sorted(id for id in before.keys() & after.keys() if before[id].epoch != after[id].epoch)
    named = (("gone", gone), ("came", came), ("bounced", bounced))
    return "brokers " + ", ".join(f"{what} {ids}" for what, ids in named if ids)
