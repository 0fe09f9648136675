"""ZooKeeper's documents as a file: one node a line, parents before their children. Pure, apart from the stream.

It has neither the nodes of sessions (registrations, acknowledgements) nor the logs of changes: every broker reads the
whole tree when it starts.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO, Final

from brokers.contract import paths
from brokers.contract.zookeeper_access import CHROOT_PARTS, CLUSTERS_ROOT

# Nodes that are backed up without their children (logs of changes, notifications), relative to a cluster's root.
WITHOUT_CHILDREN: Final = frozenset({
    paths.CHANGES, paths.CONFIG_CHANGES, "/isr_change_notification", "/log_dir_event_notification",
})  # fmt: skip
# Added to leader epochs: more than the elections of a partition between a backup and its restore.
LEADER_EPOCHS_AHEAD: Final = 1_000_000
# Added to the next producer id: more than the ids that are assigned between a backup and its restore.
PRODUCER_IDS_AHEAD: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One persistent node; `version` counts its writes, and is informative only."""

    path: str
    data: bytes
    version: int


def relative(path: str) -> str:
    """Returns a path below its cluster's root; "" for that root and for paths above it."""
    return "".join(f"/{part}" for part in path.split("/")[CHROOT_PARTS + 1 :])


def write_nodes(stream: BinaryIO, nodes: Iterable[TreeNode]) -> None:
    for node in nodes:
        body = {"path": node.path, "version": node.version, "data": base64.b64encode(node.data).decode()}
        stream.write(json.dumps(body, separators=(",", ":")).encode() + b"\n")


def read_nodes(stream: BinaryIO) -> Iterator[TreeNode]:
    """Yields the nodes of a file. Raises `ValueError` for a malformed line, or a path outside of our clusters."""
    for line in stream:
        body = json.loads(line)
        path = str(body["path"])
        if not path.startswith(f"{CLUSTERS_ROOT}/"):
            raise ValueError(f"{path} is no node of a cluster")
        yield TreeNode(path, base64.b64decode(body["data"], validate=True), int(body["version"]))


def moved_ahead(node: TreeNode) -> TreeNode:
    """Returns the node to restore, in which numbers that may have grown since the backup are increased beyond that.

    Logs and clients' metadata contain leader epochs: an epoch that is assigned twice would make two histories of a log
    look like one. With a producer id that is assigned twice, a broker would take new records for duplicates.
    """
    path = relative(node.path)
    if path == paths.PRODUCER_ID_BLOCK:
        return replace(node, data=_producer_ids_ahead(node.data))
    if path.startswith(f"{paths.TOPICS}/") and path.endswith("/state"):
        return replace(node, data=_leader_epoch_ahead(node.data))
    return node


def _leader_epoch_ahead(data: bytes) -> bytes:
    try:
        body = json.loads(data)
        body["leader_epoch"] = int(body["leader_epoch"]) + LEADER_EPOCHS_AHEAD
    except (ValueError, KeyError, TypeError):
        return data  # brokers handle unreadable documents
    return json.dumps(body, separators=(",", ":")).encode()


def _producer_ids_ahead(data: bytes) -> bytes:
    try:
        body = json.loads(data)
        first = int(body["block_end"]) + PRODUCER_IDS_AHEAD
        size = int(body["block_end"]) - int(body["block_start"])
    except (ValueError, KeyError, TypeError):
        return data
    return json.dumps(body | {"block_start": str(first), "block_end": str(first + size)}).encode()
