"""TLS without encryption on the loopback interface: processes on one machine authenticate by a handshake and continue
unencrypted, since a process that can read or change loopback traffic can also read the keys, and encryption costs as
much as replication.
"""

from __future__ import annotations

import ssl
from ipaddress import ip_address
from socket import socket
from typing import Final

# The ALPN protocol that a client offers and a server selects: both end TLS when the handshake is over.
IN_CLEAR: Final = "penstock-in-clear"


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def plain_socket(tls: ssl.SSLSocket) -> socket:
    """Returns the underlying socket after both sides have ended TLS (`unwrap`)."""
    plain = socket(fileno=tls.detach())
    plain.setblocking(False)
    return plain
