"""Requests to the control plane to fetch an instance's OAuth key set again: one node each, which it then deletes."""

from __future__ import annotations

from brokers.contract import paths
from brokers.engine.cluster.tree import Create, NodeExists, NoNode, Operation, Tree


async def request(tree: Tree, instance_id: str) -> None:
    """Creates a request for an instance unless one is pending. Raises StoreUnavailable."""
    operations: list[Operation] = [Create(paths.key_request(instance_id))]
    if await tree.get(paths.KEY_REQUESTS) is None:
        operations.insert(0, Create(paths.KEY_REQUESTS))
    try:
        await tree.commit(operations)
    except (NodeExists, NoNode):
        return
