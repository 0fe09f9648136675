"""Deletes the tree of a retired cluster from ZooKeeper."""

from __future__ import annotations

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from brokers.contract.zookeeper_access import ALL, Grant
from brokers.infra import zookeeper
from brokers.infra.zookeeper import kazoo_acl


def delete_tree(client: KazooClient, root: str) -> int:
    """Deletes all below `root`, which stays, empty: its parent lets nobody delete. Returns the number of nodes.

    Nodes of brokers let the control plane change their access list alone, so that is done first.
    """
    own = zookeeper.identity()
    acl = kazoo_acl([Grant(ALL, own.credentials.digest)]) if own else None
    return _delete_below(client, root, acl)


def _delete_below(client: KazooClient, path: str, acl: object) -> int:
    try:
        if acl is not None:
            client.set_acls(path, acl)
        children = client.get_children(path)
    except NoNodeError:
        return 0
    count = 0
    for name in children:
        child = f"{path}/{name}"
        count += _delete_below(client, child, acl)
        try:
            client.delete(child)
            count += 1
        except NoNodeError:  # an ephemeral node whose session has ended
            continue
    return count
