"""Deletes the tree of a retired cluster from ZooKeeper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError, NotEmptyError
from kazoo.security import ACL

from brokers.contract.zookeeper_access import ALL, Grant
from brokers.infra import zookeeper
from brokers.infra.zookeeper import kazoo_acl


class DeletionCount(NamedTuple):
    """Number of deleted nodes, and of nodes that stay: those that only their creator may delete, and their parents."""

    deleted: int
    kept: int


def delete_tree(client: KazooClient, root: str) -> DeletionCount:
    """Deletes all nodes below `root`. The empty `root` stays, because its parent does not permit its deletion.

    Nodes of brokers permit the control plane only to change their access list, so this is done first.
    """
    identity = zookeeper.identity()
    return _delete_below(client, root, kazoo_acl([Grant(ALL, identity.credentials.digest)]) if identity else None)


def _delete_below(client: KazooClient, path: str, acl: Sequence[ACL] | None) -> DeletionCount:
    try:
        if acl is not None:
            client.set_acls(path, acl)
        children = client.get_children(path)
    except (NoNodeError, NoAuthError):  # an ephemeral node whose session has ended, or a node of another owner
        return DeletionCount(0, 0)
    deleted = kept = 0
    for name in children:
        subtree = _delete_below(client, f"{path}/{name}", acl)
        deleted, kept = deleted + subtree.deleted, kept + subtree.kept
        try:
            client.delete(f"{path}/{name}")
            deleted += 1
        except NoNodeError:
            continue
        except (NoAuthError, NotEmptyError):
            kept += 1
    return DeletionCount(deleted, kept)
