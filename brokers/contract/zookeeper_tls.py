"""TLS settings of connections to ZooKeeper: the trusted authority and the client's certificate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperTls:
    """TLS settings of a connection to ZooKeeper.

    `ca_file` has the authority of the servers' certificates, which must name the servers' hosts. `certificate_file` has
    the client's key and certificate, "" if servers request none.
    """

    ca_file: str
    certificate_file: str = ""

    def kazoo_options(self) -> dict[str, Any]:
        """Returns the arguments for kazoo's client."""
        certificate = self.certificate_file or None
        return {
            "use_ssl": True,
            "verify_certs": True,
            "check_hostname": True,
            "ca": self.ca_file,
            "certfile": certificate,
            "keyfile": certificate,
        }


def zookeeper_tls(ca_file: str, certificate_file: str) -> ZooKeeperTls | None:
    """Returns the TLS settings, None without an authority, in which case connections are not encrypted."""
    return ZooKeeperTls(ca_file=ca_file, certificate_file=certificate_file) if ca_file else None
