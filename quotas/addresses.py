"""Whom a limit on new connections is for: a client's address, or all of an instance that have no limit of their own
(QUO-1). Pure.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
# As Kafka's, where the limit is an integer of 32 bits and this one means none.
CONNECTION_CREATION_RATE_MAX: Final = 2**31 - 1
# The longest spelling of an address: eight groups, the last two as four numbers.
ADDRESS_CHARS_MAX: Final = 45


class IpEntity(NamedTuple):
    """`address` as `canonical` writes it; None is the default (`<default>`)."""

    address: str | None


def canonical(address: str) -> str:
    """The one spelling of an address: `::ffff:192.0.2.1` is `192.0.2.1`, as the connection of such a client is.

    Raises:
        ValueError: no address. Names of hosts are none: a broker asks nobody what a tenant's name stands for.
    """
    if len(address) > ADDRESS_CHARS_MAX:
        raise ValueError("an address is not that long")
    parsed = ip_address(address)
    if isinstance(parsed, IPv6Address):
        if parsed.scope_id is not None:
            raise ValueError(f"{address!r} is an address of one network card only")
        return str(parsed.ipv4_mapped or parsed)
    return str(parsed)
