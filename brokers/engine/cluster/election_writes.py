"""Writes requested elections from any broker (REP-31).

A state is read, decided on and replaced by compare-and-set. The controller, which follows the documents, finds a
partition with a live leader and agrees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from brokers.contract.partitions import PartitionKey
from brokers.engine.cluster import changes, errors
from brokers.engine.cluster.controller_epoch import StateWrite, operations_of
from brokers.engine.cluster.election_plans import ElectionType, plan_election
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.cluster.stored_states import read_states
from brokers.engine.cluster.tree import Operation, Tree, TreeError

# Same as for the controller: far below ZooKeeper's 1 MB frame.
WRITES_PER_TRANSACTION_MAX = 250


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """The written leader; an image shows it once the partition's leader epoch reaches this one."""

    leader: int
    leader_epoch: int


Outcome = ElectionResult | errors.ClusterError


async def elect(
    tree: Tree, image: ClusterImage, wanted: Sequence[PartitionKey], kind: ElectionType
) -> dict[PartitionKey, Outcome]:
    """Elects leaders of `wanted`, which are partitions of `image` by internal name; returns one outcome for each."""
    outcomes: dict[PartitionKey, Outcome] = {}
    pending = list(dict.fromkeys(wanted))
    for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
        if not pending:
            break
        writes = []
        for key, write in zip(pending, await _plan(tree, image, pending, kind), strict=True):
            if isinstance(write, StateWrite):
                writes.append(write)
            else:
                outcomes[key] = write
        lost = await _commit(tree, writes)
        for write in writes:
            if write.key not in lost:
                outcomes[write.key] = ElectionResult(write.document.leader, write.document.leader_epoch)
        pending = list(lost)
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


async def _commit(tree: Tree, writes: Sequence[StateWrite]) -> set[PartitionKey]:
    """Writes the states and returns the keys that lost a race; one that does must not affect the others in its
    transaction.
    """
    chunks = [
        writes[start : start + WRITES_PER_TRANSACTION_MAX]
        for start in range(0, len(writes), WRITES_PER_TRANSACTION_MAX)
    ]
    lost: set[PartitionKey] = set()
    single_writes: list[StateWrite] = []
    for chunk, won in zip(chunks, await asyncio.gather(*(_try(tree, chunk) for chunk in chunks)), strict=True):
        if not won:
            single_writes += chunk
    for write, won in zip(
        single_writes, await asyncio.gather(*(_try(tree, [write]) for write in single_writes)), strict=True
    ):
        if not won:
            lost.add(write.key)
    return lost


async def _try(tree: Tree, writes: Sequence[StateWrite]) -> bool:
    operations: list[Operation] = operations_of(writes)
    operations.append(changes.states_changed(writes))
    try:
        await tree.commit(operations)
    except TreeError:
        return False
    return True
