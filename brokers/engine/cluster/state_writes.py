"""Writes of partition states by brokers that are not the controller: ISRs by leaders, and requested elections; and
reads of the stored states that they replace.

Each write is a compare-and-set on the version of the state node from which the decision was made (REP-24). A lost race
means that the decision is outdated: the state must be read again before the next one (REP-25).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from brokers.contract import paths
from brokers.contract.documents import PartitionStateDocument
from brokers.contract.partitions import NO_LEADER
from brokers.engine.cluster import changes
from brokers.engine.cluster.controller_epoch import StateWrite, operations_of
from brokers.engine.cluster.image import PartitionImage
from brokers.engine.cluster.tree import Node, Operation, Tree, TreeError

# Same as for the controller: far below ZooKeeper's 1 MB frame.
WRITES_PER_TRANSACTION_MAX = 250


async def write(tree: Tree, writes: Sequence[StateWrite]) -> list[StateWrite]:
    """Writes several states, with one entry in the change log for each transaction, and returns those that lost a race.

    Raises:
        StoreUnavailable: each write may have succeeded or not.
    """
    chunks = [
        writes[start : start + WRITES_PER_TRANSACTION_MAX]
        for start in range(0, len(writes), WRITES_PER_TRANSACTION_MAX)
    ]
    single_writes: list[StateWrite] = []
    conflicting: list[StateWrite] = []
    for chunk, succeeded in zip(
        chunks, await asyncio.gather(*(_try_commit(tree, chunk) for chunk in chunks)), strict=True
    ):
        if not succeeded:
            # One lost race makes the whole transaction fail.
            (single_writes if len(chunk) > 1 else conflicting).extend(chunk)
    for write, succeeded in zip(
        single_writes, await asyncio.gather(*(_try_commit(tree, [write]) for write in single_writes)), strict=True
    ):
        if not succeeded:
            conflicting.append(write)
    return conflicting


async def _try_commit(tree: Tree, writes: Sequence[StateWrite]) -> bool:
    """Commits the writes in one transaction. Returns False if it failed."""
    operations: list[Operation] = operations_of(writes)
    operations.append(changes.states_announcement(writes))
    try:
        await tree.commit(operations)
    except TreeError:
        return False
    return True


async def read_states(tree: Tree, partitions: Sequence[tuple[str, PartitionImage]]) -> list[PartitionImage]:
    """Returns the partitions with their stored states; one without a stored state has the version None.

    `partitions` are pairs of internal topic name and partition.
    """
    nodes = await tree.get_many([paths.partition_state(name, partition.index) for name, partition in partitions])
    return [as_stored(partition, node) for (_, partition), node in zip(partitions, nodes, strict=True)]


def as_stored(partition: PartitionImage, node: Node | None) -> PartitionImage:
    """Returns the partition with the state in `node`; assignment and reassignment stay those of the image."""
    if node is None:
        return replace(partition, leader=NO_LEADER, version=None)
    state = PartitionStateDocument.from_json(node.data)
    return replace(
        partition,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        controller_epoch=state.controller_epoch,
        version=node.version,
        written_at=node.mzxid,
        isr_epochs=state.isr_broker_epochs if len(state.isr_broker_epochs) == len(state.isr) else (),
    )
