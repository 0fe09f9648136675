"""Trees of our clusters in ZooKeeper: read as of one moment, emptied, and written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import AsyncResult, KazooTimeoutError
from kazoo.security import ACL, OPEN_ACL_UNSAFE

from brokers.contract import paths
from brokers.contract.zookeeper_access import CLUSTERS_ROOT, Credentials, TreeAccess, read_credentials
from brokers.contract.zookeeper_tls import ZooKeeperTls
from brokers.infra.zookeeper import kazoo_acl
from config.backup.errors import BackupRefused
from config.backup.limits import IN_FLIGHT_MAX, READINGS_MAX
from config.backup.tree_file import WITHOUT_CHILDREN, TreeNode, relative

CONNECT_TIMEOUT_S: Final = 10.0
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class TreeReading:
    """All persistent nodes of our clusters; `changed_at` has the transactions that created and last changed each."""

    nodes: dict[str, TreeNode] = field(default_factory=dict)
    changed_at: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def clusters(self) -> tuple[str, ...]:
        """Ids of the clusters, in order."""
        return tuple(sorted({path.removeprefix(f"{CLUSTERS_ROOT}/").split("/")[0] for path in self.nodes}))


@dataclass(frozen=True, slots=True)
class Identities:
    """The two identities of the tree; both are needed to write all of it."""

    control: Credentials
    broker: Credentials

    @classmethod
    def of_files(cls, control_file: str, broker_file: str) -> Identities | None:
        """Returns the identities in two files; None if no files are configured.

        Raises:
            BackupRefused: a file cannot be used.
        """
        if not control_file or not broker_file:
            return None
        try:
            return cls(read_credentials(Path(control_file)), read_credentials(Path(broker_file)))
        except (OSError, ValueError) as error:
            raise BackupRefused(
                f"ZooKeeper's credentials cannot be read: {error}.",
                "Correct PENSTOCK_ZOOKEEPER_CONTROL_FILE and PENSTOCK_ZOOKEEPER_BROKER_FILE.",
            ) from error


@contextmanager
def connected(address: str, identities: Identities | None, tls: ZooKeeperTls | None) -> Iterator[Tree]:
    """Opens a session with an ensemble.

    Raises:
        BackupRefused: ZooKeeper does not answer, refuses us, or goes away.
    """
    credentials = [identities.control.auth, identities.broker.auth] if identities else None
    hosts = address.removeprefix("zookeeper://").split("/")[0]
    client = KazooClient(
        hosts=hosts, timeout=CONNECT_TIMEOUT_S, auth_data=credentials, **(tls.kazoo_options() if tls else {})
    )
    try:
        client.start(timeout=CONNECT_TIMEOUT_S)
        yield Tree(client, identities)
    except (KazooTimeoutError, KazooException) as error:
        raise BackupRefused(
            f"ZooKeeper at {hosts} failed: {type(error).__name__} {error}.".replace(" .", "."),
            "See to ZooKeeper, or correct ZOOKEEPER_URL, and run the command again.",
        ) from error
    finally:
        client.stop()
        client.close()


class Tree:
    """The trees of all clusters, over one session."""

    def __init__(self, client: KazooClient, identities: Identities | None) -> None:
        self._client = client
        self._access = (
            TreeAccess(broker=identities.broker.digest, control=identities.control.digest) if identities else None
        )

    def read(self) -> tuple[TreeReading, bool]:
        """Reads the tree until two successive readings are equal: then it is the tree of a moment between them.

        Returns the last reading, and True if it was equal to the one before.
        """
        previous = self._read_once()
        for _ in range(READINGS_MAX - 1):
            latest = self._read_once()
            if latest.changed_at == previous.changed_at:
                return latest, True
            previous = latest
        return previous, False

    def _read_once(self) -> TreeReading:
        result = TreeReading()
        pending = deque(self._cluster_roots())
        while pending:
            batch = [pending.popleft() for _ in range(min(IN_FLIGHT_MAX, len(pending)))]
            requests = [(path, self._client.get_async(path), self._client.get_children_async(path)) for path in batch]
            for path, content, children in requests:
                try:
                    (data, stat), names = content.get(), children.get()
                except NoNodeError:
                    continue  # it was deleted meanwhile; the next reading is compared with this one
                if stat.ephemeralOwner:
                    continue
                result.nodes[path] = TreeNode(path, data or b"", stat.version)
                result.changed_at[path] = stat.czxid, stat.mzxid
                if relative(path) not in WITHOUT_CHILDREN:
                    pending.extend(f"{path}/{name}" for name in sorted(names))
        return result

    def _cluster_roots(self) -> list[str]:
        if self._client.exists(CLUSTERS_ROOT) is None:
            return []
        return [f"{CLUSTERS_ROOT}/{name}" for name in sorted(self._client.get_children(CLUSTERS_ROOT))]

    def live_brokers(self) -> list[str]:
        """Returns the registered brokers of all clusters, as `cluster/number`."""
        return [
            f"{cluster_root.rpartition('/')[2]}/{number}"
            for cluster_root in self._cluster_roots()
            for number in self._children(f"{cluster_root}{paths.BROKER_IDS}")
        ]

    def has_documents(self) -> bool:
        """True if any cluster has a node below its root."""
        return any(self._children(cluster_root) for cluster_root in self._cluster_roots())

    def newest_transaction(self) -> int:
        """Returns the id of the last transaction that the server's responses have named."""
        self._client.exists(CLUSTERS_ROOT)
        return int(self._client.last_zxid)

    def ensure_root(self) -> None:
        """Creates the parent of the clusters' roots if it does not exist."""
        if self._client.exists(CLUSTERS_ROOT) is None:
            self._client.create(CLUSTERS_ROOT, acl=self._acl(CLUSTERS_ROOT))

    def empty(self) -> None:
        """Removes all nodes below the roots of the clusters; the roots stay, because no identity may delete them."""
        paths_found: list[str] = []
        pending = deque(self._cluster_roots())
        roots = set(pending)
        while pending:
            path = pending.popleft()
            paths_found.append(path)
            pending.extend(f"{path}/{name}" for name in self._children(path))
        self._for_each([path for path in reversed(paths_found) if path not in roots], self._client.delete_async)

    def write(self, nodes: Iterable[TreeNode]) -> int:
        """Creates the nodes, parents first, with their access lists. Returns their number."""
        existing = set(self._cluster_roots())
        count = 0
        for batch in _batches(nodes):
            count += len(batch)
            results = [
                self._client.set_async(node.path, node.data)
                if node.path in existing
                else self._client.create_async(node.path, node.data, acl=self._acl(node.path))
                for node in batch
            ]
            for result in results:
                result.get()
        return count

    def _for_each(self, names: Iterable[str], call: Callable[[str], AsyncResult]) -> None:
        for batch in _batches(names):
            for result in [call(name) for name in batch]:
                result.get()

    def _children(self, path: str) -> list[str]:
        try:
            return list(self._client.get_children(path))
        except NoNodeError:
            return []

    def _acl(self, path: str) -> list[ACL]:
        return OPEN_ACL_UNSAFE if self._access is None else kazoo_acl(self._access.absolute_acl(path))


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, IN_FLIGHT_MAX)):
        yield batch
