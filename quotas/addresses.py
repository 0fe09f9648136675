"""Entities of connection rate limits (QUO-1): one client address, or the default of all other addresses. Pure."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
# Kafka's limit is a 32-bit integer whose maximum means unlimited.
CONNECTION_CREATION_RATE_MAX: Final = 2**31 - 1
# Longest form of an IPv6 address: eight groups, the last two as four decimal numbers.
ADDRESS_CHARS_MAX: Final = 45


class IpEntity(NamedTuple):
    """Address in `canonical` form; None is the default (`<default>`)."""

    address: str | None


def canonical(address: str) -> str:
    """Returns the canonical form of an address, in which brokers look up the limit of a connection.

    An IPv6 address that stands for an IPv4 address, such as `::ffff:192.0.2.1`, becomes `192.0.2.1`.

    Raises:
        ValueError: not an IP address. Host names are refused, because brokers do not resolve names of tenants.
    """
    if len(address) > ADDRESS_CHARS_MAX:
        raise ValueError("the address is too long")
    parsed = ip_address(address)
    if isinstance(parsed, IPv6Address):
        if parsed.scope_id is not None:
            raise ValueError(f"{address!r} has a zone, which is valid on one machine only")
        return str(parsed.ipv4_mapped or parsed)
    return str(parsed)
