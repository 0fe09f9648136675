"""ZooKeeper's documents as a file: one node a line, parents before their children. Pure, apart from the stream.

Nodes of sessions (registrations, acknowledgements) are not kept, and neither are logs of changes: every broker reads
the whole tree when it starts.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO, Final

from brokers.contract import paths
from brokers.contract.zookeeper_access import CHROOT_PARTS, CLUSTERS_ROOT

# Logs and notices, relative to a cluster's root: the node itself is kept, its children are not.
WITHOUT_CHILDREN: Final = frozenset({
    paths.CHANGES, paths.CONFIG_CHANGES, "/isr_change_notification", "/log_dir_event_notification",
})  # fmt: skip
# More elections than a partition sees between a backup and its restore.
LEADER_EPOCHS_AHEAD: Final = 1_000_000
# More producer ids than are given out between a backup and its restore.
PRODUCER_IDS_AHEAD: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One persistent node; `version` counts its writes, and is kept for a reader of the file."""

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
    """Yields the nodes of a file. Raises `ValueError` for a line that is none, or a path outside of our clusters."""
    for line in stream:
        body = json.loads(line)
        path = str(body["path"])
        if not path.startswith(f"{CLUSTERS_ROOT}/"):
            raise ValueError(f"{path} is no node of a cluster")
        yield TreeNode(path, base64.b64decode(body["data"], validate=True), int(body["version"]))


def moved_ahead(node: TreeNode) -> TreeNode:
    """Returns a node as it is restored: numbers that logs and clients have seen grow since the backup go ahead of them.

    Leader epochs lie in logs and in clients' metadata; one that is given a second time would make two histories of a
    log look like one. A producer id that is given a second time would make a broker take new records for repeated ones.
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
