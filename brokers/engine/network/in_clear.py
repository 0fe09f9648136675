"""Processes on one machine prove by a handshake who they are, and go on without encryption: whoever can read or change
what passes over the loopback interface has the keys as well, and to encrypt costs as much as to replicate.
"""

from __future__ import annotations

import ssl
from ipaddress import ip_address
from socket import socket
from typing import Final

# The protocol that a client offers, and a server chooses (ALPN): both end TLS when the handshake is over.
IN_CLEAR: Final = "penstock-in-clear"


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def plain_socket(tls: ssl.SSLSocket) -> socket:
    """What carried TLS, once both sides have ended it (`unwrap`)."""
    plain = socket(fileno=tls.detach())
    plain.setblocking(False)
    return plain
