"""Access lists of the nodes in ZooKeeper for two roles, brokers and the control plane, each with its own identity.

Both create nodes, so both must know a node's access list, which `TreeAccess.acl` returns. Pure except for
`read_credentials`.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from brokers.contract import paths

READ, WRITE, CREATE, DELETE, ADMIN = (1 << bit for bit in range(5))
CHANGE: Final = READ | WRITE | CREATE | DELETE
ALL: Final = CHANGE | ADMIN
DIGEST: Final = "digest"
CLUSTERS_ROOT: Final = "/penstock"
# Node with an instance's OAuth configuration, which only the control plane may write.
OAUTH: Final = "oauth"
CHROOT_PARTS: Final = 2  # as `paths.chroot` makes it
_CERTIFICATES: Final = paths.instance_certificates("").rpartition("/")[2]
_CONTROL_ROOT: Final = paths.INSTANCES.rpartition("/")[0]


class Credentials(NamedTuple):
    """An identity of ZooKeeper's scheme `digest`."""

    user: str
    password: str

    @property
    def auth(self) -> tuple[str, str]:
        """The credentials in the form of kazoo's `auth_data`."""
        return DIGEST, f"{self.user}:{self.password}"

    @property
    def digest(self) -> str:
        """The identity in access lists, which does not disclose the password."""
        raw = hashlib.sha1(f"{self.user}:{self.password}".encode(), usedforsecurity=False).digest()
        return f"{self.user}:{base64.b64encode(raw).decode()}"


def read_credentials(file: Path) -> Credentials:
    """Reads credentials from a file with `user:password`.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file has another content.
    """
    user, colon, password = file.read_text(encoding="utf-8").strip().partition(":")
    if not user or not colon or not password or ":" in password:
        raise ValueError(f"{file} does not have user:password")
    return Credentials(user, password)


class Grant(NamedTuple):
    """One entry of an access list."""

    permissions: int
    digest: str


@dataclass(frozen=True, slots=True)
class TreeAccess:
    """Access lists of a cluster's tree, for the digests of the two identities."""

    broker: str
    control: str

    def acl(self, path: str) -> tuple[Grant, Grant]:
        """Returns the access list of a node by its path below the cluster's chroot ("" is the chroot itself)."""
        brokers, control = _permissions(path)
        return Grant(brokers, self.broker), Grant(control, self.control)

    def absolute_acl(self, path: str) -> tuple[Grant, Grant]:
        """Returns the access list of a node at or below `CLUSTERS_ROOT` by its whole path."""
        parts = path.split("/")
        if len(parts) <= CHROOT_PARTS:
            return Grant(READ | CREATE, self.broker), Grant(READ | CREATE | ADMIN, self.control)
        return self.acl("".join(f"/{part}" for part in parts[CHROOT_PARTS + 1 :]))


def _permissions(path: str) -> tuple[int, int]:
    """Returns the permissions of brokers and of the control plane. Only the control plane may change access lists.

    The control plane writes the instance documents, their ports, certificates and OAuth configuration; brokers write
    the rest of the tree.
    """
    if path != _CONTROL_ROOT and not path.startswith(f"{_CONTROL_ROOT}/"):
        return CHANGE, ADMIN | READ | _control_elsewhere(path)
    return _brokers_in_control_tree(path), ALL


def _control_elsewhere(path: str) -> int:
    """Returns the control plane's permissions beyond reading outside of its own tree.

    It deletes the quotas of deleted instances, and creates the nodes that a first instance needs before any broker
    runs.
    """
    if path.startswith(("/config/users", "/config/clients", "/config/ips")):
        return DELETE
    return CREATE if path in ("", "/brokers") else 0


def _brokers_in_control_tree(path: str) -> int:
    if path.startswith((paths.INSTANCE_ACKS, paths.CREATIONS, paths.KEY_REQUESTS, paths.CHANGES, paths.FLOW_MASTER)):
        return CHANGE
    if path.startswith(f"{paths.INSTANCES}/"):
        parts = path.removeprefix(f"{paths.INSTANCES}/").split("/")
        if len(parts) > 1 and parts[1] in (_CERTIFICATES, OAUTH):
            return READ
        return READ | CREATE if len(parts) == 1 else CHANGE  # the document itself, or its topics
    if path.startswith(f"{paths.INSTANCE_PORTS}/"):
        return READ
    return READ | CREATE if path == _CONTROL_ROOT else READ
