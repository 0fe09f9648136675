"""Who may do what in ZooKeeper's tree: two roles, brokers and the control plane, each with an identity of its own.

Both make nodes, so both must know what a node's access list is. Pure; `TreeAccess.acl` is the whole table.
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
# Whom an instance's brokers believe is the control plane's to say.
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
        """As kazoo's `auth_data` wants it."""
        return DIGEST, f"{self.user}:{self.password}"

    @property
    def digest(self) -> str:
        """How access lists name it; tells nobody the password."""
        raw = hashlib.sha1(f"{self.user}:{self.password}".encode(), usedforsecurity=False).digest()
        return f"{self.user}:{base64.b64encode(raw).decode()}"


def read_credentials(file: Path) -> Credentials:
    """Of a file that has `user:password`.

    Raises:
        OSError: it cannot be read.
        ValueError: it has something else.
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
    """The access lists of a cluster's tree, for the identities that are given by their digests."""

    broker: str
    control: str

    def acl(self, path: str) -> tuple[Grant, Grant]:
        """Of a node, by its path below the cluster's chroot ("" is the chroot itself)."""
        brokers, control = _permissions(path)
        return Grant(brokers, self.broker), Grant(control, self.control)

    def absolute_acl(self, path: str) -> tuple[Grant, Grant]:
        """Of a node at `CLUSTERS_ROOT` or below it, by its whole path."""
        parts = path.split("/")
        if len(parts) <= CHROOT_PARTS:
            return Grant(READ | CREATE, self.broker), Grant(READ | CREATE | ADMIN, self.control)
        return self.acl("".join(f"/{part}" for part in parts[CHROOT_PARTS + 1 :]))


def _permissions(path: str) -> tuple[int, int]:
    """What brokers and the control plane may do. Only the control plane changes access lists.

    What an operator promised a tenant (the instance document, its ports) and who may come in by certificate is the
    control plane's to write; the rest of the tree is the brokers'.
    """
    if path != _CONTROL_ROOT and not path.startswith(f"{_CONTROL_ROOT}/"):
        return CHANGE, ADMIN | READ | _control_elsewhere(path)
    return _brokers_in_control_tree(path), ALL


def _control_elsewhere(path: str) -> int:
    """Quotas of a deleted instance are removed, and what a first instance needs may be made before any broker runs."""
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
