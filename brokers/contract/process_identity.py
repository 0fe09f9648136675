"""Who a process of the installation is to the others: a role and a name, as its certificate says them (decision 106).

The certificates are signed by an authority that signs no certificate of a tenant's route.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

# How the processes of an installation know each other.
MUTUAL_TLS: Final = "tls"
# The same, and the cluster's secret opens as well, for programs that have no certificate yet.
TLS_OR_SECRET: Final = "tls_or_secret"  # noqa: S105 (no secret)
# The cluster's secret alone, and nothing is encrypted: for processes that share one machine.
PLAINTEXT: Final = "plaintext"
SECURITIES: Final = (MUTUAL_TLS, TLS_OR_SECRET, PLAINTEXT)

CA_NAME: Final = "Penstock internal CA"
CA_FILE: Final = "ca.pem"
# Programs of the control plane, a certificate each; `command` is for what a person starts.
CONTROL_PROCESSES: Final = ("web", "worker", "agent", "pipeline", "command")

_PREFIX: Final = "urn:penstock:"


class Role(StrEnum):
    """What a process may: a broker replicates and passes on calls, the control plane acts as any instance's owner, a
    metrics reader reads metrics.
    """

    BROKER = "broker"
    CONTROL = "control"
    METRICS = "metrics"


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """`name` is `<cluster>:<broker id>` of a broker."""

    role: Role
    name: str

    @property
    def uri(self) -> str:
        return f"{_PREFIX}{self.role}:{self.name}"

    @property
    def file_name(self) -> str:
        """Of key and certificate, in one file."""
        return f"{self.role}-{self.name.replace(':', '-')}.pem"

    def is_broker(self, cluster_id: str, broker_id: int) -> bool:
        return self == broker(cluster_id, broker_id)

    def is_broker_of(self, cluster_id: str) -> bool:
        return self.role is Role.BROKER and self.name.rpartition(":")[0] == cluster_id

    def is_of(self, cluster_id: str) -> bool:
        """Whether it has any business with this cluster: brokers have it with their own one."""
        return self.role is not Role.BROKER or self.is_broker_of(cluster_id)


def broker(cluster_id: str, broker_id: int) -> ProcessIdentity:
    return ProcessIdentity(Role.BROKER, f"{cluster_id}:{broker_id}")


def control(process: str) -> ProcessIdentity:
    return ProcessIdentity(Role.CONTROL, process)


def identity_in(certificate: Mapping[str, Any] | None) -> ProcessIdentity | None:
    """Of a peer whose certificate was verified, as `ssl.SSLSocket.getpeercert` tells it. None: no process of ours."""
    names: Iterable[tuple[str, str]] = (certificate or {}).get("subjectAltName", ())
    found = [value for kind, value in names if kind == "URI" and value.startswith(_PREFIX)]
    if len(found) != 1:
        return None
    role, _, name = found[0].removeprefix(_PREFIX).partition(":")
    return ProcessIdentity(Role(role), name) if role in set(Role) and name else None
