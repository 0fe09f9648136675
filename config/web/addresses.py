"""Client address of a request: the peer's, or the one reported by a proxy in `PENSTOCK_TRUSTED_PROXIES`."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Size of the network that a provider assigns to a customer.
IPV6_NETWORK_BITS = 64
FORWARDED_ADDRESSES_MAX = 32


def networks(text: str) -> tuple[Network, ...]:
    """Parses addresses and networks separated by commas. Raises `ValueError`."""
    return tuple(ipaddress.ip_network(word.strip()) for word in text.split(",") if word.strip())


def parse_address(text: str) -> Address | None:
    """Parses an address of a header, with or without port; an IPv4-mapped address becomes IPv4."""
    host = text.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        result = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return (result.ipv4_mapped or result) if isinstance(result, ipaddress.IPv6Address) else result


def is_trusted(address: Address | None, trusted: Sequence[Network]) -> bool:
    return address is not None and any(address in network for network in trusted)


def client_address(peer: str, forwarded_for: str, trusted: Sequence[Network]) -> str:
    """Returns the rightmost address that is not a trusted proxy; headers of others are ignored.

    If a proxy reports an invalid address, the proxy's own address is returned.
    """
    address = parse_address(peer)
    if not trusted or not is_trusted(address, trusted):
        return str(address or peer)
    for part in reversed(forwarded_for.split(",")[-FORWARDED_ADDRESSES_MAX:]):
        reported_address = parse_address(part)
        if reported_address is None:
            break
        address = reported_address
        if not is_trusted(reported_address, trusted):
            break
    return str(address)


def neighbourhood(address: str) -> str:
    """Returns the network that counts as one client: an IPv4 address, or an IPv6 network."""
    parsed = parse_address(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, IPV6_NETWORK_BITS), strict=False))
    return str(parsed or address)
