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
from typing import Any, NamedTuple

from django.conf import settings
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import AsyncResult, KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import KeeperState
from kazoo.security import ACL, Id

from brokers.contract.zookeeper_access import DIGEST, Credentials, Grant, TreeAccess, read_credentials
from brokers.limits import ZOOKEEPER_CONNECT_TIMEOUT_S
from brokers.models import Cluster
from tenants.errors import Unavailable

logger = logging.getLogger(__name__)

SESSION_TIMEOUT_S = 10.0
# A call that was begun while ZooKeeper was there is given up after so long. kazoo would have it wait until it is back.
CALL_TIMEOUT_S = 15.0

# kazoo gives a client up whose credentials are refused.
ENDED_STATES = (KeeperState.AUTH_FAILED, KeeperState.CLOSED)

# What any call may raise when ZooKeeper is away: retried later, never our caller's fault.
TROUBLE = (KazooException, KazooTimeoutError)


class _Result(AsyncResult):
    """Whoever waits for it does so no longer than `CALL_TIMEOUT_S`."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        return super().get(block, CALL_TIMEOUT_S if timeout is None else timeout)


class _Handler(SequentialThreadingHandler):
    def async_result(self) -> _Result:
        return _Result(self)


class _Session(NamedTuple):
    """`is_live` is set while it is connected. kazoo connects by itself, again and again, from the first `start` on."""

    client: KazooClient
    is_live: threading.Event


_sessions: dict[tuple[int, str], _Session] = {}
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
        held = _sessions.get(key)
        if held is None:
            held = _sessions[key] = _begin(key[1])
            atexit.register(close, *key)
    if held.is_live.wait(ZOOKEEPER_CONNECT_TIMEOUT_S):
        return held.client
    if held.client.client_state in ENDED_STATES:
        close(*key)
    raise Unavailable("ZooKeeper does not answer.")


def _begin(ensemble: str) -> _Session:
    own, tls = identity(), settings.ZOOKEEPER_TLS
    client = KazooClient(
        hosts=ensemble,
        timeout=SESSION_TIMEOUT_S,
        handler=_Handler(),
        connection_retry={"max_tries": -1},
        auth_data=[own.credentials.auth] if own else None,
        **(tls.kazoo_options() if tls else {}),
    )
    # Only once: of a client that is connecting again kazoo's `start` waits for its end, which never comes.
    return _Session(client, client.start_async())


def close(pid: int, ensemble: str) -> None:
    """End a session; a process ends only its own."""
    if pid != os.getpid():
        return
    with _lock:
        held = _sessions.pop((pid, ensemble), None)
    if held is not None:
        held.client.stop()
        held.client.close()


def close_all() -> None:
    """End every session of this process (tests, and a worker going down)."""
    for pid, ensemble in list(_sessions):
        close(pid, ensemble)
