"""The control plane's session with ZooKeeper: one client per process and ensemble, made on first use.

Only `publisher` writes through it. A worker that forks makes its own: a session must not be shared across a fork.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import ACL, Id

from brokers.contract.zookeeper_access import DIGEST, Credentials, Grant, TreeAccess, read_credentials
from brokers.limits import ZOOKEEPER_CONNECT_TIMEOUT_S
from brokers.models import Cluster
from tenants.errors import Unavailable

logger = logging.getLogger(__name__)

SESSION_TIMEOUT_S = 10.0

# What any call may raise when ZooKeeper is away: retried later, never our caller's fault.
TROUBLE = (KazooException, KazooTimeoutError)

_clients: dict[tuple[int, str], KazooClient] = {}
_lock = threading.Lock()


class Identity(NamedTuple):
    """As whom the control plane speaks, and what the nodes that it makes allow to whom."""

    credentials: Credentials
    access: TreeAccess


def identity() -> Identity | None:
    """None where no credentials are named: ZooKeeper is then open to whoever reaches it.

    Raises `Unavailable` when a file that is named cannot be used.
    """
    files = (settings.ZOOKEEPER_CONTROL_FILE, settings.ZOOKEEPER_BROKER_FILE)
    if not all(files):
        return None
    try:
        return _identity(*files)
    except (OSError, ValueError) as error:
        raise Unavailable(f"ZooKeeper's credentials cannot be read: {error}.") from error


@cache
def _identity(control_file: str, broker_file: str) -> Identity:
    control, broker = read_credentials(Path(control_file)), read_credentials(Path(broker_file))
    return Identity(control, TreeAccess(broker=broker.digest, control=control.digest))


def kazoo_acl(grants: Iterable[Grant]) -> list[ACL]:
    """Access lists as kazoo wants them."""
    return [ACL(grant.permissions, Id(DIGEST, grant.digest)) for grant in grants]


def ensemble_of(cluster: Cluster) -> str:
    """`host:port[,host:port]` of the cluster's ensemble, without a chroot."""
    return str(cluster.zookeeper or settings.ZOOKEEPER_URL).removeprefix("zookeeper://").split("/")[0]


def session(cluster: Cluster) -> KazooClient:
    """A connected client; paths are absolute, so prefix them with `cluster.chroot`.

    Raises `Unavailable` when ZooKeeper does not answer within `ZOOKEEPER_CONNECT_TIMEOUT_S`.
    """
    key = (os.getpid(), ensemble_of(cluster))
    with _lock:
        client = _clients.get(key)
        if client is None:
            own, tls = identity(), settings.ZOOKEEPER_TLS
            client = KazooClient(
                hosts=key[1],
                timeout=SESSION_TIMEOUT_S,
                connection_retry={"max_tries": -1},
                auth_data=[own.credentials.auth] if own else None,
                **(tls.kazoo_options() if tls else {}),
            )
            _clients[key] = client
            atexit.register(close, *key)
    try:
        if not client.connected:
            client.start(timeout=ZOOKEEPER_CONNECT_TIMEOUT_S)
    except TROUBLE as error:
        with _lock:
            _clients.pop(key, None)
        client.stop()
        raise Unavailable("ZooKeeper does not answer.") from error
    return client


def close(pid: int, ensemble: str) -> None:
    """End a session; a process ends only its own."""
    if pid != os.getpid():
        return
    client = _clients.pop((pid, ensemble), None)
    if client is not None:
        client.stop()
        client.close()


def close_all() -> None:
    """End every session of this process (tests, and a worker going down)."""
    for pid, ensemble in list(_clients):
        close(pid, ensemble)
