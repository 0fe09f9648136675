"""Decisions of the controller: `(state, event) -> (state, instructions)`. Pure and level-triggered.

The target state of a partition follows from the image alone, not from the history of events. So a new controller
continues the work of the previous one (CTL-3), and deciding twice does no harm. Two checks protect every write: the
controller epoch (ZK-4) and the version of the state that it replaces (REP-25). The partitions of the cluster's own
topics follow the live brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from brokers.contract.audit import AUDIT_TOPIC
from brokers.contract.own_topics import LED_BY_EACH_BROKER
from brokers.contract.partitions import PartitionKey
from brokers.contract.usage import USAGE_TOPIC
from brokers.engine.cluster.controller_epoch import StateWrite
from brokers.engine.cluster.image import BrokerInfo, ClusterImage, TopicImage
from brokers.engine.controller.events import (
    BalanceDue,
    ControllerState,
    CreateSystemTopic,
    Deposed,
    Elected,
    Event,
    FinishDeletion,
    FinishReassignments,
    GrowSystemTopic,
    ImageChanged,
    Instruction,
    PolicyChanged,
    ReconcileAgain,
    StatesWritten,
    TopicApplied,
    WriteStates,
)
from brokers.engine.controller.partition_states import ElectionContext, preferred_leader_writes, target_state

# Retention of two weeks: the billing pipeline may be down for that long without losing usage.
USAGE_CONFIG: Mapping[str, str] = {"retention.ms": "1209600000", "segment.bytes": "67108864"}
# The same for the reader of the audit log, up to 1 GiB (some two million events) per broker.
AUDIT_CONFIG: Mapping[str, str] = {
    "retention.ms": "1209600000",
    "retention.bytes": "1073741824",
    "segment.bytes": "67108864",
}
CONFIGS: Mapping[str, Mapping[str, str]] = {USAGE_TOPIC: USAGE_CONFIG, AUDIT_TOPIC: AUDIT_CONFIG}
assert tuple(CONFIGS) == LED_BY_EACH_BROKER
# Awaited version of a partition state while it is being written.
WRITING = -1
# Maximum number of reassignments of one topic that are finished in one transaction; others follow with the next image.
REASSIGNMENTS_PER_TRANSACTION_MAX = 100
Decision = tuple[ControllerState, list[Instruction]]


def plan_system_topic(image: ClusterImage, name: str) -> CreateSystemTopic | GrowSystemTopic | None:
    """Returns the creation or growth that a system topic needs so that every live broker leads a partition of it.

    Each broker writes its usage and audit events to its own partition, without the network. A partition has one
    replica: while its broker is down, no other broker has events for it. A stopping broker gets no partition.
    """
    topic = image.topics.get(name)
    eligible = sorted(id for id, broker in image.brokers.items() if not broker.stopping)
    if topic is None:
        if not eligible:
            return None
        return CreateSystemTopic(name, {index: (broker,) for index, broker in enumerate(eligible)}, CONFIGS[name])
    # A topic does not grow during a reassignment (REP-33), whose end changes the image.
    if topic.deleting or any(partition.is_reassigning for partition in topic.partitions):
        return None
    brokers_with_partition = {partition.replicas[0] for partition in topic.partitions}
    added = tuple((broker,) for broker in eligible if broker not in brokers_with_partition)
    return GrowSystemTopic(name, len(topic.partitions), added) if added else None


def decide(state: ControllerState, event: Event) -> Decision:
    """Returns the state after an event, and the instructions to execute."""
    match event:
        case Elected(held_epoch):
            state = replace(state, held_epoch=held_epoch, pending_versions={}, busy=frozenset())
            return _decide_topics(state, state.image.topics.values(), "elected")
        case Deposed():
            return replace(state, held_epoch=None, pending_versions={}, busy=frozenset()), []
        case ImageChanged(image):
            return _decide_on_image(state, image)
        case PolicyChanged(policy):
            state = replace(state, policy=policy)
            return (
                (state, [])
                if state.held_epoch is None
                else _decide_topics(state, state.image.topics.values(), "policy")
            )
        case StatesWritten(written, lost):
            return _decide_on_written_states(state, written, lost)
        case TopicApplied(topic, succeeded):
            # A success appears in the next image, which causes the next decision; a failure does not, so it is retried.
            state = replace(state, busy=state.busy - {topic})
            return state, [] if succeeded else [ReconcileAgain((topic,))]
        case BalanceDue():
            return _decide_balance(state)


def _decide_on_image(state: ControllerState, image: ClusterImage) -> Decision:
    before, state = state.image, replace(state, image=image)
    if state.held_epoch is None:
        return state, []
    # A recreated topic has new versions, so the awaited versions of the previous one may never appear.
    pending_versions = {
        key: version for key, version in state.pending_versions.items() if not _is_recreated(key[0], before, image)
    }
    state = replace(state, pending_versions=_drop_shown_versions(pending_versions, image))
    if image.brokers != before.brokers:
        return _decide_topics(state, image.topics.values(), _broker_changes(before.brokers, image.brokers))
    if image.topics is before.topics:
        return state, []
    changed = [image.topics[name] for name in image.changed_topics(before) if name in image.topics]
    return _decide_topics(state, changed, "topics changed")


def _decide_on_written_states(
    state: ControllerState, written: Mapping[PartitionKey, int], lost: Iterable[PartitionKey]
) -> Decision:
    if state.held_epoch is None:
        return state, []
    lost = tuple(lost)
    pending_versions = {key: version for key, version in state.pending_versions.items() if key not in lost}
    pending_versions.update({key: version for key, version in written.items() if key in pending_versions})
    state = replace(state, pending_versions=_drop_shown_versions(pending_versions, state.image))
    # The image may have changed during the write, when these partitions were skipped, so decide on them again.
    written_topics = dict.fromkeys(topic for topic, _ in written)
    topics_to_decide = [state.image.topics[name] for name in written_topics if name in state.image.topics]
    state, instructions = _decide_topics(state, topics_to_decide, "written")
    if lost:
        instructions.append(ReconcileAgain(tuple(dict.fromkeys(topic for topic, _ in lost))))
    return state, instructions


def _decide_topics(state: ControllerState, topics: Iterable[TopicImage], cause: str) -> Decision:
    assert state.held_epoch is not None
    context = ElectionContext(state.image.brokers, state.held_epoch.epoch)
    writes: list[StateWrite] = []
    reassignments: list[FinishReassignments] = []
    instructions: list[Instruction] = []
    busy = set(state.busy)
    for topic in topics:
        if topic.name in busy:
            continue
        if topic.deleting:
            busy.add(topic.name)
            instructions.append(FinishDeletion(topic))
            continue
        changed, finishing_writes = _topic_writes(state, topic, context)
        writes += changed
        if finishing_writes:
            reassignments.append(FinishReassignments(topic, tuple(finishing_writes)))
    for name in LED_BY_EACH_BROKER:
        instruction = plan_system_topic(state.image, name) if name not in busy else None
        if instruction is not None:
            busy.add(name)
            instructions.append(instruction)
    # States come first: partitions without a leader must not wait for deletions.
    instructions[:0] = [*([WriteStates(tuple(writes), cause)] if writes else []), *reassignments]
    all_writes = [*writes, *(write for reassignment in reassignments for write in reassignment.writes)]
    pending_versions = (
        {**state.pending_versions, **{write.key: WRITING for write in all_writes}}
        if all_writes
        else state.pending_versions
    )
    return replace(state, pending_versions=pending_versions, busy=frozenset(busy)), instructions


def _topic_writes(
    state: ControllerState, topic: TopicImage, context: ElectionContext
) -> tuple[list[StateWrite], list[StateWrite]]:
    """Returns the states to write on their own, and those that finish a reassignment."""
    writes: list[StateWrite] = []
    finishing_writes: list[StateWrite] = []
    unclean_allowed = state.policy.allows_unclean(topic.config)
    opens_topic = False
    for partition in topic.partitions:
        if (topic.name, partition.index) in state.pending_versions:
            continue
        target = target_state(partition, context, unclean_allowed=unclean_allowed)
        if target is None:
            continue
        write = StateWrite(topic.name, partition.index, target.document, partition.version, identity=topic.identity)
        if target.finishes_reassignment:
            if len(finishing_writes) < REASSIGNMENTS_PER_TRANSACTION_MAX:
                finishing_writes.append(write)
            continue
        if write.version is None and not opens_topic:
            opens_topic = True
            write = replace(write, opens_topic=not _has_parent_node(state, topic))
        writes.append(write)
    return writes, finishing_writes


def _has_parent_node(state: ControllerState, topic: TopicImage) -> bool:
    """True if the parent node of the topic's states exists or is being created."""
    return any(
        partition.version is not None or (topic.name, partition.index) in state.pending_versions
        for partition in topic.partitions
    )


def _decide_balance(state: ControllerState) -> Decision:
    if state.held_epoch is None or not state.policy.balance_enabled:
        return state, []
    context = ElectionContext(state.image.brokers, state.held_epoch.epoch)
    topics = (topic for name, topic in state.image.topics.items() if name not in state.busy)
    result = preferred_leader_writes(topics, context, imbalance_percent_max=state.policy.imbalance_percent_max)
    writes = tuple(write for write in result if write.key not in state.pending_versions)
    if not writes:
        return state, []
    pending_versions = {**state.pending_versions, **{write.key: WRITING for write in writes}}
    return replace(state, pending_versions=pending_versions), [WriteStates(writes, "leaders are out of balance")]


def _drop_shown_versions(pending_versions: Mapping[PartitionKey, int], image: ClusterImage) -> dict[PartitionKey, int]:
    """Returns the awaited versions that the image does not show yet, without those of deleted topics."""
    remaining: dict[PartitionKey, int] = {}
    for (name, index), version in pending_versions.items():
        topic = image.topics.get(name)
        if topic is None or index >= len(topic.partitions):
            continue
        shown_version = topic.partitions[index].version
        if version == WRITING or shown_version is None or shown_version < version:
            remaining[name, index] = version
    return remaining


def _is_recreated(name: str, before: ClusterImage, after: ClusterImage) -> bool:
    old, new = before.topics.get(name), after.topics.get(name)
    return old is not None and new is not None and old.topic_id != new.topic_id


def _broker_changes(before: Mapping[int, BrokerInfo], after: Mapping[int, BrokerInfo]) -> str:
    gone = sorted(before.keys() - after.keys())
    joined = sorted(after.keys() - before.keys())
    restarted = sorted(id for id in before.keys() & after.keys() if before[id].epoch != after[id].epoch)
    stopping = sorted(
        id for id, broker in after.items() if broker.stopping and not (id in before and before[id].stopping)
    )
    changes = (("gone", gone), ("came", joined), ("bounced", restarted), ("stopping", stopping))
    return "brokers " + ", ".join(f"{change} {ids}" for change, ids in changes if ids)
