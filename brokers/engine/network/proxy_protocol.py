"""The header of PROXY protocol version 2, in which a load balancer names its client (CKA-8). Pure.

https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt, section 2.2. Version 1, which is text without a length, is
not supported.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from struct import Struct
from typing import Final

from brokers.contract.connections import PROXY_HEADER_BYTES_MAX
from brokers.engine.protocol.errors import MalformedRequest

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
# Signature, version and command, family and transport, length of the rest.
_FIXED: Final = Struct(">12sBBH")
FIXED_BYTES: Final = _FIXED.size
HEADER_BYTES_MAX: Final = PROXY_HEADER_BYTES_MAX
# Maximum size of addresses and optional fields.
VARIABLE_BYTES_MAX: Final = HEADER_BYTES_MAX - FIXED_BYTES

_VERSION: Final = 2
_LOCAL, _PROXY = 0, 1
_UNSPECIFIED, _TCP4, _TCP6, _UNIX_STREAM = 0x00, 0x11, 0x21, 0x31
# Source and destination addresses, source and destination ports.
_ADDRESS_BYTES: Final = {_UNSPECIFIED: 0, _TCP4: 12, _TCP6: 36, _UNIX_STREAM: 216}


class NotProxyHeader(MalformedRequest):
    """Raised when a listed proxy did not send a valid header first."""


def missing_bytes(received: bytes) -> int:
    """Returns the number of bytes to read next, and no more: 0 when the header is complete.

    Raises:
        NotProxyHeader: the bytes cannot become a header.
    """
    if len(received) < FIXED_BYTES:
        if not SIGNATURE.startswith(received[: len(SIGNATURE)]):
            raise NotProxyHeader("no PROXY protocol header version 2")
        return FIXED_BYTES - len(received)
    signature, _, _, variable_bytes = _FIXED.unpack_from(received)
    if signature != SIGNATURE:
        raise NotProxyHeader("no PROXY protocol header version 2")
    if variable_bytes > VARIABLE_BYTES_MAX:
        raise NotProxyHeader(f"a PROXY protocol header of {FIXED_BYTES + variable_bytes} bytes")
    return FIXED_BYTES + int(variable_bytes) - len(received)


def read_client_address(header: bytes) -> str | None:
    """Returns the client's address from a complete header; None if the proxy acts for itself, or does not name it.

    Raises:
        NotProxyHeader: the header is invalid.
    """
    if missing_bytes(header):
        raise NotProxyHeader("a PROXY protocol header that is not whole")
    _, version_command, family, variable_bytes = _FIXED.unpack_from(header)
    command = version_command & 0x0F
    if version_command >> 4 != _VERSION or command not in (_LOCAL, _PROXY):
        raise NotProxyHeader("a PROXY protocol header of another version")
    if command == _LOCAL:
        return None
    if family not in _ADDRESS_BYTES or variable_bytes < _ADDRESS_BYTES[family]:
        raise NotProxyHeader(f"a PROXY protocol header of family {family:#04x} with {variable_bytes} bytes")
    if family == _TCP4:
        return str(IPv4Address(header[FIXED_BYTES : FIXED_BYTES + 4]))
    if family == _TCP6:
        address = IPv6Address(header[FIXED_BYTES : FIXED_BYTES + 16])
        return str(address.ipv4_mapped or address)
    return None
