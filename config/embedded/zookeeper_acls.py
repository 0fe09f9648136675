"""ACLs for a ZooKeeper tree without any, or with those of other identities.

This happens with a state directory of an earlier version, or after secrets were recreated. No node is renamed, and no
data is changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import ACL, Id

from brokers.contract.zookeeper_access import (
    ALL,
    CLUSTERS_ROOT,
    DIGEST,
    READ,
    Credentials,
    Grant,
    TreeAccess,
)
from brokers.contract.zookeeper_tls import ZooKeeperTls
from config.embedded.process import StartFailed

CONNECT_TIMEOUT_S: Final = 5.0
IN_FLIGHT_MAX: Final = 500
# ZooKeeper's own nodes; it resets the ACL of the last one at each start.
OWN_NODES: Final = ("/zookeeper", "/zookeeper/quota", "/zookeeper/config")


@dataclass(frozen=True, slots=True)
class OwnEnsembleAcls:
    """ACLs of an ensemble that belongs to us, including its root."""

    superuser: Credentials
    access: TreeAccess

    def apply(self, address: str) -> bool:
        """Sets the ACL of every node unless it was done before. False if ZooKeeper does not answer yet."""
        client = KazooClient(hosts=address, timeout=CONNECT_TIMEOUT_S, auth_data=[self.superuser.auth])
        try:
            client.start(timeout=CONNECT_TIMEOUT_S)
            self._apply(client)
        except (KazooTimeoutError, KazooException):
            return False
        finally:
            client.stop()
            client.close()
        return True

    def _apply(self, client: KazooClient) -> None:
        # The root is set last, so its ACL shows if all nodes are done.
        root = _acl([Grant(READ, self.access.broker), Grant(READ, self.access.control)])
        if not _is_same(client.get_acls("/")[0], root):
            if client.exists(CLUSTERS_ROOT) is None:
                client.create(CLUSTERS_ROOT, acl=_acl(self.access.absolute_acl(CLUSTERS_ROOT)))
            for name in client.get_children("/"):
                if f"/{name}" not in OWN_NODES:
                    _set_below(client, f"/{name}", self)
            client.set_acls("/", root)
        closed = _acl([Grant(ALL, self.superuser.digest)])
        for path in OWN_NODES:
            if client.exists(path) is not None:
                client.set_acls(path, closed)

    def acl_of(self, path: str) -> list[ACL]:
        """Returns the ACL of a path; foreign nodes belong to the superuser."""
        if path == CLUSTERS_ROOT or path.startswith(f"{CLUSTERS_ROOT}/"):
            return _acl(self.access.absolute_acl(path))
        return _acl([Grant(ALL, self.superuser.digest)])


@dataclass(frozen=True, slots=True)
class ForeignEnsembleAcls:
    """ACLs of our clusters' trees in a foreign ensemble."""

    credentials: Sequence[Credentials]
    access: TreeAccess
    tls: ZooKeeperTls | None = None

    def apply(self, address: str) -> None:
        """Sets the ACL of every node of ours unless it was done before.

        Raises:
            StartFailed: ZooKeeper does not answer, or the nodes belong to other identities.
        """
        client = KazooClient(
            hosts=address,
            timeout=CONNECT_TIMEOUT_S,
            auth_data=[credential.auth for credential in self.credentials],
            **(self.tls.kazoo_options() if self.tls else {}),
        )
        try:
            client.start(timeout=CONNECT_TIMEOUT_S)
            expected = self.acl_of(CLUSTERS_ROOT)
            if client.exists(CLUSTERS_ROOT) is None:
                client.create(CLUSTERS_ROOT, acl=expected)
            elif not _is_same(client.get_acls(CLUSTERS_ROOT)[0], expected):
                for name in client.get_children(CLUSTERS_ROOT):
                    _set_below(client, f"{CLUSTERS_ROOT}/{name}", self)
                client.set_acls(CLUSTERS_ROOT, expected)
        except NoAuthError as error:
            raise StartFailed(
                f"ZooKeeper at {address} refuses the credentials: {CLUSTERS_ROOT} belongs to other identities.",
                "Correct PENSTOCK_ZOOKEEPER_CONTROL_FILE and PENSTOCK_ZOOKEEPER_BROKER_FILE.",
            ) from error
        except (KazooTimeoutError, KazooException) as error:
            raise StartFailed(
                f"ZooKeeper at {address} does not answer: {type(error).__name__}.", "Correct ZOOKEEPER_URL."
            ) from error
        finally:
            client.stop()
            client.close()

    def acl_of(self, path: str) -> list[ACL]:
        return _acl(self.access.absolute_acl(path))


def _set_below(client: KazooClient, top: str, acls: OwnEnsembleAcls | ForeignEnsembleAcls) -> None:
    """Sets the ACLs of a node and its descendants. Nodes that vanish meanwhile (of expiring sessions) are skipped."""
    pending = deque([top])
    while pending:
        paths = [pending.popleft() for _ in range(min(IN_FLIGHT_MAX, len(pending)))]
        requests = [
            (path, client.set_acls_async(path, acls.acl_of(path)), client.get_children_async(path)) for path in paths
        ]
        for path, changed, children in requests:
            try:
                changed.get()
                pending.extend(f"{path}/{name}" for name in children.get())
            except NoNodeError:
                continue


def _acl(grants: Iterable[Grant]) -> list[ACL]:
    return [ACL(grant.permissions, Id(DIGEST, grant.digest)) for grant in grants]


def _is_same(current: Iterable[ACL], expected: Iterable[ACL]) -> bool:
    return {(acl.perms, acl.id) for acl in current} == {(acl.perms, acl.id) for acl in expected}
