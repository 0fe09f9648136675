"""Writes requested elections from any broker (REP-31).

A state is read, decided on and replaced by compare-and-set. The controller reads the written state, finds a live
leader, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from brokers.contract.partitions import PartitionKey
from brokers.engine.cluster import changes, errors, state_writes
from brokers.engine.cluster.controller_epoch import StateWrite
from brokers.engine.cluster.election_plans import ElectionType, plan_election
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.cluster.state_writes import read_states
from brokers.engine.cluster.tree import Tree


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """The written leader; an image shows it once the partition's leader epoch reaches this one."""

    leader: int
    leader_epoch: int


Outcome = ElectionResult | errors.ClusterError


async def elect(
    tree: Tree, image: ClusterImage, partitions: Sequence[PartitionKey], kind: ElectionType
) -> dict[PartitionKey, Outcome]:
    """Elects leaders of `partitions`, which must be in `image`; returns one outcome for each."""
    outcomes: dict[PartitionKey, Outcome] = {}
    pending = list(dict.fromkeys(partitions))
    for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
        if not pending:
            break
        writes = []
        for key, write in zip(pending, await _plan(tree, image, pending, kind), strict=True):
            if isinstance(write, StateWrite):
                writes.append(write)
            else:
                outcomes[key] = write
        conflicting = {write.key for write in await state_writes.write(tree, writes)}
        for write in writes:
            if write.key not in conflicting:
                outcomes[write.key] = ElectionResult(write.document.leader, write.document.leader_epoch)
        pending = [write.key for write in writes if write.key in conflicting]
    for key in pending:
        outcomes[key] = errors.Conflict("The partition keeps changing.")
    return outcomes


async def _plan(
    tree: Tree, image: ClusterImage, keys: Sequence[PartitionKey], kind: ElectionType
) -> list[StateWrite | errors.ClusterError]:
    stored = await read_states(tree, [(name, image.topics[name].partitions[index]) for name, index in keys])
    planned: list[StateWrite | errors.ClusterError] = []
    for (name, index), partition in zip(keys, stored, strict=True):
        try:
            if partition.version is None:
                raise errors.EligibleLeadersNotAvailable("The partition never had a leader.")
            document = plan_election(kind, partition, image.brokers, image.controller_epoch)
        except errors.Refused as refusal:
            planned.append(refusal)
        else:
            planned.append(StateWrite(name, index, document, partition.version, identity=image.topics[name].identity))
    return planned
