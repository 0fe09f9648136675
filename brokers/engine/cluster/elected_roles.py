"""Roles that one broker of the cluster has at a time: an ephemeral node names it, a second node has the epoch (CTL-1,
CKA-21).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from brokers.contract import documents, paths
from brokers.engine.cluster import changes
from brokers.engine.cluster.tree import BadVersion, Create, NodeExists, Set, Tree


@dataclass(frozen=True, slots=True)
class Role:
    """A role. `holder` and `epoch` are the paths of its nodes; `to_json` encodes the broker id and the wall time in ms
    for the holder node.
    """

    holder: str
    epoch: str
    to_json: Callable[[int, int], bytes]
    from_json: Callable[[bytes], int]


CONTROLLER: Final = Role(
    paths.CONTROLLER, paths.CONTROLLER_EPOCH, documents.controller_to_json, documents.controller_from_json
)
FLOW_MASTER: Final = Role(
    paths.FLOW_MASTER, paths.FLOW_MASTER_EPOCH, documents.flow_master_to_json, documents.flow_master_from_json
)


class ElectedEpoch(NamedTuple):
    """Result of a won election; `version` is that of the epoch node."""

    epoch: int
    version: int


async def elect(tree: Tree, role: Role, broker_id: int, now_ms: int) -> ElectedEpoch | None:
    """Returns the epoch if this broker won, or has the role in this session already; None if another broker has it."""
    for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
        # Read in this order, so that the epoch is not that of another broker that was elected in between.
        epoch_node = await tree.get(role.epoch)
        holder = await tree.get(role.holder)
        if holder is not None:
            if holder.owner != tree.session_id or epoch_node is None:
                return None
            return ElectedEpoch(int(epoch_node.data), epoch_node.version)
        if epoch_node is None:
            with contextlib.suppress(NodeExists):
                await tree.commit([Create(role.epoch, b"0")])
            continue
        epoch = int(epoch_node.data) + 1
        try:
            await tree.commit(
                [
                    Create(role.holder, role.to_json(broker_id, now_ms), ephemeral=True),
                    Set(role.epoch, str(epoch).encode(), epoch_node.version),
                ]
            )
        except (NodeExists, BadVersion):
            continue
        return ElectedEpoch(epoch, epoch_node.version + 1)
    return None
