"""Reads partition states as currently stored, for writers that replace them by compare-and-set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from brokers.contract import paths
from brokers.contract.documents import PartitionStateDocument
from brokers.contract.partitions import NO_LEADER
from brokers.engine.cluster.image import PartitionImage
from brokers.engine.cluster.tree import Node, Tree


async def read_states(tree: Tree, partitions: Sequence[tuple[str, PartitionImage]]) -> list[PartitionImage]:
    """Returns the given partitions, each with its internal topic name, with their stored states. A partition without a
    stored state has the version None.
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
