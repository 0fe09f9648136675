"""Identity of a process of the installation: the role and the name in its certificate (decision 106).

The authority of these certificates signs no certificates of tenants' routes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

# Kinds of security between the processes of an installation.
MUTUAL_TLS: Final = "tls"
# Mutual TLS, and the cluster's secret is accepted as well, for programs that have no certificate yet.
TLS_OR_SECRET: Final = "tls_or_secret"  # noqa: S105 (no secret)
# The cluster's secret without encryption, for processes on one machine.
PLAINTEXT: Final = "plaintext"
SECURITIES: Final = (MUTUAL_TLS, TLS_OR_SECRET, PLAINTEXT)

CA_NAME: Final = "Penstock internal CA"
CA_FILE: Final = "ca.pem"
# Programs of the control plane, each with a certificate; `command` is for commands that a person starts.
CONTROL_PROCESSES: Final = ("web", "worker", "agent", "pipeline", "command")

_PREFIX: Final = "urn:penstock:"


class ProcessRole(StrEnum):
    """Role of a process: a broker replicates and forwards requests, the control plane acts as any instance's owner, and
    a metrics reader reads metrics.
    """

    BROKER = "broker"
    CONTROL = "control"
    METRICS = "metrics"


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Identity of a process; the `name` of a broker is `<cluster>:<broker id>`."""

    role: ProcessRole
    name: str

    @property
    def uri(self) -> str:
        return f"{_PREFIX}{self.role}:{self.name}"

    @property
    def file_name(self) -> str:
        """Name of the file with its key and certificate."""
        return f"{self.role}-{self.name.replace(':', '-')}.pem"

    def is_broker(self, cluster_id: str, broker_id: int) -> bool:
        return self == broker(cluster_id, broker_id)

    def is_broker_of(self, cluster_id: str) -> bool:
        return self.role is ProcessRole.BROKER and self.name.rpartition(":")[0] == cluster_id

    def is_of(self, cluster_id: str) -> bool:
        """True if the process may connect to this cluster; brokers may only connect to their own one."""
        return self.role is not ProcessRole.BROKER or self.is_broker_of(cluster_id)


def broker(cluster_id: str, broker_id: int) -> ProcessIdentity:
    return ProcessIdentity(ProcessRole.BROKER, f"{cluster_id}:{broker_id}")


def control(process: str) -> ProcessIdentity:
    return ProcessIdentity(ProcessRole.CONTROL, process)


def identity_in(certificate: Mapping[str, Any] | None) -> ProcessIdentity | None:
    """Returns the identity in a verified certificate (`ssl.SSLSocket.getpeercert`), None if it is not of a process of
    the installation.
    """
    names: Iterable[tuple[str, str]] = (certificate or {}).get("subjectAltName", ())
    uris = [value for kind, value in names if kind == "URI" and value.startswith(_PREFIX)]
    if len(uris) != 1:
        return None
    role, _, name = uris[0].removeprefix(_PREFIX).partition(":")
    return ProcessIdentity(ProcessRole(role), name) if role in set(ProcessRole) and name else None
