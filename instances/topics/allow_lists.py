"""Validation and normal form of the address lists (allow-lists) of topics. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final, NamedTuple

from django.utils.translation import gettext_noop

from instances.limits import ALLOW_LIST_ENTRIES_MAX
from instances.topics.limits import ALLOW_LIST_BYTES_PER_TOPIC
from tenants.errors import FieldError, Invalid, Message


class AllowLists(NamedTuple):
    """Address lists of a topic, by use."""

    produce: Sequence[str] = ()
    consume: Sequence[str] = ()
    # An empty list admits the addresses that both other lists admit.
    administer: Sequence[str] = ()

    def columns(self, pointer_prefix: str) -> dict[str, list[str]]:
        """Returns the checked lists by column of `TopicAllowList`. Raises `Invalid` with pointers that begin with
        `pointer_prefix`.
        """
        return {
            column: normalized_addresses(addresses, f"{pointer_prefix}/{name}")
            for column, name, addresses in zip(COLUMNS, self._fields, self, strict=True)
        }


SCOPE_REFUSED: Final = Message(gettext_noop("A scope is not part of an address here."))
COLUMNS: Final = tuple(f"{name}_ips" for name in AllowLists._fields)


def normalized_addresses(addresses: Sequence[str], pointer: str) -> list[str]:
    """Returns sorted IPs and CIDRs without duplicates; IPv4-mapped IPv6 becomes IPv4 (CKA-11).

    A network has to begin with its first address: `10.1.2.3/8` is refused as a probable mistake. Raises `Invalid` with
    a pointer for every wrong entry.
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
            detail = _error_detail(address, error)
            errors.append(FieldError(pointer=f"{pointer}/{index}", detail=detail, code="invalid_address"))
    if errors:
        raise Invalid(errors[0].detail, errors=errors)
    in_order = sorted(networks, key=lambda network: (network.version, network.network_address, network.prefixlen))
    return [_address_text(network) for network in in_order]


def stored_bytes(*lists: Sequence[str]) -> int:
    """Returns the approximate size in bytes of a topic's lists in ZooKeeper."""
    addresses = sum(len(address) + len('"",') for addresses in lists for address in addresses)
    return ALLOW_LIST_BYTES_PER_TOPIC + addresses


def _network(address: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    network = ipaddress.ip_network(address)
    if isinstance(network, ipaddress.IPv6Network):
        if network.network_address.scope_id:
            raise ValueError(SCOPE_REFUSED)
        mapped = network.network_address.ipv4_mapped
        if mapped is not None and network.prefixlen >= 96:
            return ipaddress.IPv4Network((mapped, network.prefixlen - 96))
    return network


def _address_text(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> str:
    is_single = network.prefixlen == network.max_prefixlen
    return str(network.network_address) if is_single else str(network)


def _error_detail(address: str, error: ValueError) -> Message:
    """Returns the error text for an address; `error` was raised by `ipaddress`, or by `_network` for a scope."""
    text = str(error)
    if text == SCOPE_REFUSED:
        return SCOPE_REFUSED
    network = text.removesuffix(" has host bits set")
    if network != text:
        return Message(gettext_noop("%(network)s has host bits set."), network=f"{network[:1].upper()}{network[1:]}")
    return Message(gettext_noop("%(address)s does not appear to be an IPv4 or IPv6 network."), address=repr(address))
