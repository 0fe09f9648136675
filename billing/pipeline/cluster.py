"""Cluster from which a run of the pipeline reads usage. The module has no heavy imports."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSource:
    """Access to a cluster's usage topic: internal bootstrap servers and credentials.

    The credentials are the certificate of the pipeline's process with the brokers' CA, or a name and a password.
    """

    cluster_id: str
    bootstrap: str
    username: str
    password: str = field(repr=False)
    certificate_file: str = ""
    ca_file: str = ""

    @property
    def login(self) -> dict[str, str]:
        """Credentials as options of `UsageConsumer`."""
        if self.certificate_file:
            return {"certificate_file": self.certificate_file, "ca_file": self.ca_file}
        return {"username": self.username, "password": self.password}
