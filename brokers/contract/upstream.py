"""Upstream cluster of a gateway: its addresses, and the login for it. The agent writes them to a file, which a gateway
reads when it starts.
"""

from __future__ import annotations

import json
import ssl
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from brokers.contract.scram_client import SCRAM_MECHANISMS

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
SECURITY_PROTOCOLS: Final = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
PLAIN: Final = "PLAIN"
SASL_MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS)
PORT_MAX: Final = 65_535
# Reason for which a gateway is not ready, in its status.
UPSTREAM_LOST: Final = "the upstream broker does not answer"

Address = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings:
    """Addresses and login of an upstream cluster. `client_certificate` has a key without a password and its certificate
    chain; certificates and the key are texts in PEM. Empty values are not used.
    """

    bootstrap_servers: str
    security_protocol: str = PLAINTEXT
    sasl_mechanism: str = PLAIN
    username: str = ""
    password: str = ""
    ca_pem: str = ""
    client_certificate: str = ""

    def __repr__(self) -> str:
        return f"UpstreamSettings({self.bootstrap_servers!r}, {self.security_protocol})"

    @property
    def has_tls(self) -> bool:
        return self.security_protocol in (SSL, SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self.security_protocol in (SASL_PLAINTEXT, SASL_SSL)

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> UpstreamSettings:
        """Raises `ValueError` or `TypeError` for anything else."""
        body: Any = json.loads(text)
        return cls(**{name: str(value) for name, value in body.items() if name in cls.__dataclass_fields__})


def parse_servers(text: str) -> list[Address]:
    """Returns the addresses in `host:port[,host:port]`. Raises `ValueError` for anything else."""
    return [parse_server(server) for server in text.split(",")]


def parse_server(text: str) -> Address:
    """Returns the address in `host:port`. Raises `ValueError` for anything else."""
    host, _, port = text.strip().rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) <= PORT_MAX:
        raise ValueError(f"not host:port: {text!r}")
    return host.strip("[]"), int(port)


def tls_context(settings: UpstreamSettings) -> ssl.SSLContext | None:
    """Returns the TLS context of connections to the upstream, None without TLS. Without `ca_pem` the authorities of
    this machine are trusted.

    Raises `OSError` (`ssl.SSLError` is one) or `ValueError` for unusable certificates.
    """
    if not settings.has_tls:
        return None
    context = ssl.create_default_context(cadata=settings.ca_pem or None)
    if settings.client_certificate:
        # The file is readable by its owner only; the standard library loads keys from files alone.
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "certificate.pem"
            file.touch(mode=0o600)
            file.write_text(settings.client_certificate, encoding="ascii")
            context.load_cert_chain(file, password=_no_password)
    return context


def _no_password() -> str:
    """Returns a wrong password for an encrypted key: OpenSSL would ask the terminal otherwise."""
    return ""
