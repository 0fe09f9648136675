"""Starts, changes and cancels partition reassignments from any broker (REP-32, REP-33, decision 64).

A topic's document and the states that change with it are written in one transaction; after a lost race they are read
and planned again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from brokers.contract import paths
from brokers.contract.documents import TopicDocument
from brokers.contract.partitions import PartitionKey
from brokers.engine.cluster import changes, errors
from brokers.engine.cluster.controller_epoch import StateWrite, identity_checks, operations_of
from brokers.engine.cluster.image import ClusterImage, PartitionImage
from brokers.engine.cluster.reassignment_plans import (
    Assignment,
    assignment_of,
    plan_reassignment,
    state_after,
    with_assignments,
)
from brokers.engine.cluster.state_writes import read_states
from brokers.engine.cluster.topic_plans import eligible_brokers
from brokers.engine.cluster.tree import Operation, Set, Tree, TreeError

TOPICS_IN_FLIGHT_MAX = 64

# Target replicas by partition index; None cancels the reassignment.
Targets = Mapping[int, Sequence[int] | None]


@dataclass(frozen=True, slots=True)
class ReassignmentStarted:
    """The written assignment; an image shows it once the topic's version reaches this one."""

    assignment: Assignment
    topic_version: int


Outcome = ReassignmentStarted | errors.ClusterError


async def reassign(
    tree: Tree, image: ClusterImage, targets_by_topic: Mapping[str, Targets], *, replication_factor_max: int
) -> dict[PartitionKey, Outcome]:
    """Starts the reassignments of topics in `image`, by internal name; returns one outcome for each partition."""
    permits = asyncio.Semaphore(TOPICS_IN_FLIGHT_MAX)

    async def reassign_topic(name: str, targets: Targets) -> dict[int, Outcome]:
        async with permits:
            return await _Reassignment(tree, image, name, replication_factor_max).execute(targets)

    results = await asyncio.gather(*(reassign_topic(name, targets) for name, targets in targets_by_topic.items()))
    return {
        (name, index): outcome
        for name, outcomes in zip(targets_by_topic, results, strict=True)
        for index, outcome in outcomes.items()
    }


class _Reassignment:
    """Reassignments of partitions of one topic, in one transaction."""

    def __init__(self, tree: Tree, image: ClusterImage, name: str, replication_factor_max: int) -> None:
        self._tree = tree
        self._image = image
        self._name = name
        self._replication_factor_max = replication_factor_max

    async def execute(self, targets: Targets) -> dict[int, Outcome]:
        """Writes the reassignments that can be started, and returns the outcome of each partition by its index."""
        path = paths.topic(self._name)
        for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
            node, deletion = await self._tree.get_many([path, paths.topic_deletion(self._name)])
            if node is None or deletion is not None:
                return {index: errors.UnknownTopic("The partition does not exist.") for index in targets}
            document = TopicDocument.from_json(node.data)
            refused, planned = self._plan(document, targets)
            # An unchanged assignment is not written, but reported as if it was.
            changed = {index: target for index, target in planned.items() if target != assignment_of(document, index)}
            states, unsafe = await self._states(document, changed)
            refused |= unsafe
            for index in unsafe:
                del planned[index], changed[index]
            version = node.version + 1 if changed else node.version
            outcomes = refused | {index: ReassignmentStarted(target, version) for index, target in planned.items()}
            if not changed:
                return outcomes
            operations: list[Operation] = [
                Set(path, with_assignments(document, changed).to_json(), node.version),
                *identity_checks(self._name, document),
                *operations_of(states),
                changes.states_announcement(states, [self._name]),
            ]
            try:
                await self._tree.commit(operations)
            except TreeError:
                continue
            return outcomes
        return {index: errors.Conflict("The partition keeps changing.") for index in targets}

    def _plan(self, document: TopicDocument, targets: Targets) -> tuple[dict[int, Outcome], dict[int, Assignment]]:
        eligible = eligible_brokers(self._image, self._image.topics[self._name].instance_id)
        refused: dict[int, Outcome] = {}
        planned: dict[int, Assignment] = {}
        for index, target in targets.items():
            if index not in document.assignment:
                refused[index] = errors.UnknownTopic("The partition does not exist.")
                continue
            try:
                planned[index] = plan_reassignment(
                    assignment_of(document, index),
                    target,
                    eligible,
                    replication_factor_max=self._replication_factor_max,
                )
            except errors.Refused as refusal:
                refused[index] = refusal
        return refused, planned

    async def _states(
        self, document: TopicDocument, changed: Mapping[int, Assignment]
    ) -> tuple[list[StateWrite], dict[int, Outcome]]:
        """Plans the state changes, from the states as they are stored."""
        stored = await read_states(
            self._tree, [(self._name, PartitionImage(index, document.assignment[index])) for index in changed]
        )
        writes: list[StateWrite] = []
        refused: dict[int, Outcome] = {}
        for partition in stored:
            try:
                state = state_after(
                    partition, changed[partition.index], self._image.brokers, self._image.controller_epoch
                )
            except errors.Refused as refusal:
                refused[partition.index] = refusal
            else:
                if state is not None:
                    writes.append(StateWrite(self._name, partition.index, state, partition.version))
        return writes, refused
