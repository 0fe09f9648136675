"""Identities of a connection (WIRE-20): the port of a tenant, or what SASL proved on the internal listener."""

from __future__ import annotations

from dataclasses import dataclass

from brokers.contract.process import CLUSTER_USER
from brokers.contract.process_identity import ProcessIdentity, Role
from instances.naming import is_instance_id

ANONYMOUS = "ANONYMOUS"


@dataclass(frozen=True, slots=True)
class Principal:
    """`instance_id` None is the cluster itself. `user` is the tenant's name for itself, without the instance's
    prefix.
    """

    user: str
    instance_id: str | None
    internal: bool = False
    # Of the internal listener: whose certificate it is; None for whoever knows the cluster's secret.
    process: ProcessIdentity | None = None

    def may_follow_as(self, broker_id: int) -> bool:
        """Whether it may fetch as this broker (REP-6)."""
        process = self.process
        return process is None or (process.role is Role.BROKER and process.name.endswith(f":{broker_id}"))

    @property
    def wire_name(self) -> str:
        return f"User:{self.user}"


def of_tenant_port(instance_id: str) -> Principal:
    """CKA-9: the port decides the instance; until the tenant has SASL users the user is anonymous."""
    return Principal(user=ANONYMOUS, instance_id=instance_id)


def of_internal_login(username: str) -> Principal | None:
    """What a proven username of the internal listener may be: the cluster itself or an instance's owner; None =
    neither.
    """
    if username == CLUSTER_USER:
        return Principal(user=CLUSTER_USER, instance_id=None, internal=True)
    if is_instance_id(username):
        return Principal(user=ANONYMOUS, instance_id=username, internal=True)
    return None
