"""Sessions of the control plane with ZooKeeper: one client per process and ensemble, created on first use.

Only `brokers.provisioning` writes through it. A forked worker creates its own: a session must not be shared across a
fork.
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
from django.utils.translation import gettext_noop
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import AsyncResult, KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import KeeperState
from kazoo.security import ACL, Id

from brokers.contract.zookeeper_access import DIGEST, Credentials, Grant, TreeAccess, read_credentials
from brokers.limits import ZOOKEEPER_CONNECT_TIMEOUT_S
from brokers.models import Cluster
from tenants.errors import Message, Unavailable

logger = logging.getLogger(__name__)

SESSION_TIMEOUT_S = 10.0
# Timeout of a call that was begun while ZooKeeper was connected. kazoo would wait until it is connected again.
CALL_TIMEOUT_S = 15.0

# States in which kazoo has given up, because the credentials were refused or the client was closed.
ENDED_STATES = (KeeperState.AUTH_FAILED, KeeperState.CLOSED)

# Errors that any call may raise when ZooKeeper is unavailable: retried later, never the caller's fault.
ERRORS = (KazooException, KazooTimeoutError)


class _Result(AsyncResult):
    """A result whose `get` waits no longer than `CALL_TIMEOUT_S`."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        return super().get(block, CALL_TIMEOUT_S if timeout is None else timeout)


class _Handler(SequentialThreadingHandler):
    def async_result(self) -> _Result:
        return _Result(self)


class _Session(NamedTuple):
    """A client; `is_live` is set while it is connected. kazoo reconnects by itself from the first `start` on."""

    client: KazooClient
    is_live: threading.Event


_sessions: dict[tuple[int, str], _Session] = {}
_lock = threading.Lock()


class Identity(NamedTuple):
    """The credentials of the control plane, and the access lists of the nodes that it creates."""

    credentials: Credentials
    access: TreeAccess


def identity() -> Identity | None:
    """Returns the identity, or None if no credentials are configured: ZooKeeper is then open to all that reach it.

    Raises `Unavailable` if a configured file cannot be used.
    """
    files = (settings.ZOOKEEPER_CONTROL_FILE, settings.ZOOKEEPER_BROKER_FILE)
    if not all(files):
        return None
    try:
        return _read_identity(*files)
    except (OSError, ValueError) as error:
        raise Unavailable(
            Message(gettext_noop("ZooKeeper's credentials cannot be read: %(why)s."), why=str(error))
        ) from error


@cache
def _read_identity(control_file: str, broker_file: str) -> Identity:
    control, broker = read_credentials(Path(control_file)), read_credentials(Path(broker_file))
    return Identity(control, TreeAccess(broker=broker.digest, control=control.digest))


def kazoo_acl(grants: Iterable[Grant]) -> list[ACL]:
    """Returns the access lists in kazoo's form."""
    return [ACL(grant.permissions, Id(DIGEST, grant.digest)) for grant in grants]


def ensemble_of(cluster: Cluster) -> str:
    """Returns `host:port[,host:port]` of the cluster's ensemble, without a chroot."""
    return str(cluster.zookeeper or settings.ZOOKEEPER_URL).removeprefix("zookeeper://").split("/")[0]


def session(cluster: Cluster) -> KazooClient:
    """Returns a connected client; paths are absolute and need the prefix `cluster.chroot`.

    Raises `Unavailable` if ZooKeeper does not answer within `ZOOKEEPER_CONNECT_TIMEOUT_S`.
    """
    key = (os.getpid(), ensemble_of(cluster))
    with _lock:
        current = _sessions.get(key)
        if current is None:
            current = _sessions[key] = _start_session(key[1])
            atexit.register(close, *key)
    if current.is_live.wait(ZOOKEEPER_CONNECT_TIMEOUT_S):
        return current.client
    if current.client.client_state in ENDED_STATES:
        close(*key)
    raise Unavailable("ZooKeeper does not answer.")


def _start_session(ensemble: str) -> _Session:
    own_identity, tls = identity(), settings.ZOOKEEPER_TLS
    client = KazooClient(
        hosts=ensemble,
        timeout=SESSION_TIMEOUT_S,
        handler=_Handler(),
        connection_retry={"max_tries": -1},
        auth_data=[own_identity.credentials.auth] if own_identity else None,
        **(tls.kazoo_options() if tls else {}),
    )
    # `start` is called only once: on a reconnecting client, kazoo's `start` waits for an event that never occurs.
    return _Session(client, client.start_async())


def close(pid: int, ensemble: str) -> None:
    """Ends a session; a process ends only its own."""
    if pid != os.getpid():
        return
    with _lock:
        current = _sessions.pop((pid, ensemble), None)
    if current is not None:
        current.client.stop()
        current.client.close()


def close_all() -> None:
    """Ends all sessions of this process (in tests, and when a worker shuts down)."""
    for pid, ensemble in list(_sessions):
        close(pid, ensemble)
