"""Addresses of the servers of a ZooKeeper ensemble, and connections to one of them, with TLS if configured."""

from __future__ import annotations

import socket
import ssl
from urllib.parse import urlsplit

from brokers.contract.zookeeper_tls import ZooKeeperTls

PORT = 2_181


def servers_of(url: str) -> list[str]:
    """Returns `host:port` of each server."""
    return url.removeprefix("zookeeper://").split("/")[0].split(",")


def connect(server: str, tls: ZooKeeperTls | None, timeout_s: float) -> socket.socket:
    """Connects to `host[:port]`. Raises OSError, also for an untrusted certificate."""
    parts = urlsplit(f"//{server}")
    host = parts.hostname or "127.0.0.1"
    link = socket.create_connection((host, parts.port or PORT), timeout_s)
    if tls is None:
        return link
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        if tls.certificate_file:
            context.load_cert_chain(tls.certificate_file)
        return context.wrap_socket(link, server_hostname=host)
    except OSError:
        link.close()
        raise
