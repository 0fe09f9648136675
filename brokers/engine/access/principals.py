"""Principals of connections (WIRE-20): users of an instance on its listeners, and peers on the internal listener."""

from __future__ import annotations

from dataclasses import dataclass

from brokers.contract.process import CLUSTER_USER
from brokers.contract.process_identity import ProcessIdentity, ProcessRole
from instances.naming import is_instance_id

ANONYMOUS = "ANONYMOUS"


@dataclass(frozen=True, slots=True)
class Principal:
    """Identity of a connection.

    `instance_id` is None for the cluster itself. `user` is the name without the instance's prefix. `process` is the
    identity in the peer's certificate on the internal listener, None for a peer that proved the cluster's secret.
    """

    user: str
    instance_id: str | None
    internal: bool = False
    process: ProcessIdentity | None = None

    def may_follow_as(self, broker_id: int) -> bool:
        """True if the principal may fetch as the follower with this broker id (REP-6)."""
        process = self.process
        return process is None or (process.role is ProcessRole.BROKER and process.name.endswith(f":{broker_id}"))

    @property
    def wire_name(self) -> str:
        return f"User:{self.user}"


def tenant_port_principal(instance_id: str) -> Principal:
    """Returns the principal of a connection to a tenant's port without authentication: an anonymous user (CKA-9)."""
    return Principal(user=ANONYMOUS, instance_id=instance_id)


def internal_login_principal(username: str) -> Principal | None:
    """Returns the principal of a proven user name on the internal listener: the cluster itself or an instance's owner.

    Returns None for other names.
    """
    if username == CLUSTER_USER:
        return Principal(user=CLUSTER_USER, instance_id=None, internal=True)
    if is_instance_id(username):
        return Principal(user=ANONYMOUS, instance_id=username, internal=True)
    return None
