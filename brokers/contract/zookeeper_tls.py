"""A ZooKeeper that is spoken to under TLS: whom to believe, and what to show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperTls:
    """`ca_file` holds the authority of the servers' certificates, which name the hosts that they are reached under.
    `certificate_file` holds key and certificate of who asks; "" where servers ask for none.
    """

    ca_file: str
    certificate_file: str = ""

    def kazoo_options(self) -> dict[str, Any]:
        """Arguments of kazoo's client."""
        own = self.certificate_file or None
        return {
            "use_ssl": True,
            "verify_certs": True,
            "check_hostname": True,
            "ca": self.ca_file,
            "certfile": own,
            "keyfile": own,
        }


def zookeeper_tls(ca_file: str, certificate_file: str) -> ZooKeeperTls | None:
    """None where no authority is named: ZooKeeper is then spoken to in the clear."""
    return ZooKeeperTls(ca_file=ca_file, certificate_file=certificate_file) if ca_file else None
