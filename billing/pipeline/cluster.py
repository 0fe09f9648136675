"""Which cluster a run of the pipeline reads; light enough for every process that only wants to say so."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where a cluster's usage is read: internal bootstrap servers, and what lets the pipeline in there: the certificate
    of its process, with the authority of the brokers', or a name and a password.
    """

    cluster_id: str
    bootstrap: str
    username: str
    password: str = field(repr=False)
    certificate_file: str = ""
    ca_file: str = ""

    @property
    def login(self) -> dict[str, str]:
        """As options of the data source."""
        if self.certificate_file:
            return {"certificate_file": self.certificate_file, "ca_file": self.ca_file}
        return {"username": self.username, "password": self.password}
