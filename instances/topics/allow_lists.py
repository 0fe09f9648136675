"""Address lists of topics: checked and brought into one form. Pure but for the error type."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final, NamedTuple

from django.utils.translation import gettext_noop

from instances.limits import ALLOW_LIST_ENTRIES_MAX
from instances.topics.limits import ALLOW_LIST_BYTES_EACH
from tenants.errors import FieldError, Invalid, Message


class AllowLists(NamedTuple):
    """The lists of a topic: from where it may be used (`brokers.engine.handlers.topic_lists`)."""

    produce: Sequence[str] = ()
    consume: Sequence[str] = ()
    # Empty: whoever the other lists admit, both of them.
    administer: Sequence[str] = ()

    def columns(self, at: str) -> dict[str, list[str]]:
        """Checked, by column of `TopicAllowList`; wrong entries are told below the pointer `at`. Raises `Invalid`."""
        return {
            column: normalised(addresses, f"{at}/{name}")
            for column, name, addresses in zip(COLUMNS, self._fields, self, strict=True)
        }


COLUMNS: Final = tuple(f"{name}_ips" for name in AllowLists._fields)


def normalised(addresses: Sequence[str], pointer: str) -> list[str]:
    """Sorted IPs and CIDRs without duplicates; IPv4 inside IPv6 becomes IPv4 (CKA-11).

    A single address stays an address, a network is written by its first one (`10.1.2.3/8` is refused: more likely a
    slip than a wish). Raises `Invalid` with a pointer for every wrong entry.
    """
    if len(addresses) > ALLOW_LIST_ENTRIES_MAX:
        raise Invalid.at(
            pointer,
            Message(gettext_noop("A list has at most %(n)s entries."), n=ALLOW_LIST_ENTRIES_MAX),
            code="too_many",
        )
    errors: list[FieldError] = []
    networks: set[ipaddress.IPv4Network | ipaddress.IPv6Network] = set()
    for index, address in enumerate(addresses):
        try:
            networks.add(_network(address))
        except ValueError as error:
            errors.append(FieldError(pointer=f"{pointer}/{index}", detail=_sentence(error), code="invalid_address"))
    if errors:
        raise Invalid(errors[0].detail, errors=errors)
    in_order = sorted(networks, key=lambda network: (network.version, network.network_address, network.prefixlen))
    return [_written(network) for network in in_order]


def weight(*lists: Sequence[str]) -> int:
    """What the lists of one topic take in ZooKeeper."""
    addresses = sum(len(address) + len('"",') for addresses in lists for address in addresses)
    return ALLOW_LIST_BYTES_EACH + addresses


def _network(address: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    network = ipaddress.ip_network(address)
    if isinstance(network, ipaddress.IPv6Network):
        if network.network_address.scope_id:
            raise ValueError("a scope is not part of an address here")
        mapped = network.network_address.ipv4_mapped
        if mapped is not None and network.prefixlen >= 96:
            return ipaddress.IPv4Network((mapped, network.prefixlen - 96))
    return network


def _written(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> str:
    is_single = network.prefixlen == network.max_prefixlen
    return str(network.network_address) if is_single else str(network)


def _sentence(error: ValueError) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."
