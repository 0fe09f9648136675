"""May this connection do that to this topic? Instance state (CKA-14), then the topic's IP allow-list (CKA-11, CKA-12).

Decided anew for every request from the present image, so a change takes effect on open connections at once.
Unknown and foreign topics get the same answer from the same path (CKA-10).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Protocol

NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
TOPIC_AUTHORIZATION_FAILED = 29
POLICY_VIOLATION = 44

COMPILED_LISTS_MAX = 4096
_MAPPED_PREFIX_BITS = 96

Address = IPv4Address | IPv6Address


class Operation(enum.Enum):
    PRODUCE = "produce"
    CONSUME = "consume"
    # Either right shows a topic in listings (CKA-11).
    DESCRIBE = "describe"


class AllowLists(Protocol):
    @property
    def produce_ips(self) -> tuple[str, ...]: ...
    @property
    def consume_ips(self) -> tuple[str, ...]: ...


def peer_address(text: str) -> Address:
    """A socket's peer as compared with allow-lists; IPv4-mapped IPv6 becomes IPv4, a zone (`%eth0`) is dropped."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


class Owners:
    """Marks the address of who acts for an instance inside the cluster (console, REST, probe): lists are the owner's to
    change and must not shut the owner out, wherever the control plane happens to run.
    """

    __slots__ = ()


class _OwnersV4(Owners, IPv4Address):
    __slots__ = ()


class _OwnersV6(Owners, IPv6Address):
    __slots__ = ()


def owners_address(text: str) -> Address:
    """A peer of the internal listener that speaks for itself: every list admits it."""
    address = peer_address(text)
    return _OwnersV4(int(address)) if address.version == 4 else _OwnersV6(int(address))


@dataclass(frozen=True, slots=True)
class AddressList:
    """Networks as (base, mask) pairs of integers, by address family."""

    v4: tuple[tuple[int, int], ...]
    v6: tuple[tuple[int, int], ...]

    def admits(self, address: Address) -> bool:
        value = int(address)
        networks = self.v4 if address.version == 4 else self.v6
        return any(value & mask == base for base, mask in networks)


@lru_cache(maxsize=COMPILED_LISTS_MAX)
def compile_list(entries: tuple[str, ...]) -> AddressList:
    """Addresses and CIDRs. An entry that does not parse admits nobody: a list with a typing error must not open a
    admin client.
    """
    networks: list[IPv4Network | IPv6Network] = []
    for entry in entries:
        try:
            networks.append(_normalised(ip_network(entry, strict=False)))
        except ValueError:
            continue
    return AddressList(v4=_pairs(networks, 4), v6=_pairs(networks, 6))


def decide(state: str, topic: AllowLists | None, operation: Operation, address: Address) -> int:
    """The protocol error code of `operation` on a topic of an instance in `state`; 0 means go ahead."""
    if topic is None or state == "deleting":
        return UNKNOWN_TOPIC_OR_PARTITION
    if not _is_admitted(topic, operation, address):
        return TOPIC_AUTHORIZATION_FAILED
    if state == "frozen" and operation is Operation.PRODUCE:
        return POLICY_VIOLATION
    return NONE


def _is_admitted(topic: AllowLists, operation: Operation, address: Address) -> bool:
    if isinstance(address, Owners):
        return True
    if operation is Operation.PRODUCE:
        return not topic.produce_ips or compile_list(topic.produce_ips).admits(address)
    if operation is Operation.CONSUME:
        return not topic.consume_ips or compile_list(topic.consume_ips).admits(address)
    return _is_admitted(topic, Operation.PRODUCE, address) or _is_admitted(topic, Operation.CONSUME, address)


def _normalised(network: IPv4Network | IPv6Network) -> IPv4Network | IPv6Network:
    if isinstance(network, IPv6Network) and network.prefixlen >= _MAPPED_PREFIX_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((mapped, network.prefixlen - _MAPPED_PREFIX_BITS))
    return network


def _pairs(networks: Sequence[IPv4Network | IPv6Network], version: int) -> tuple[tuple[int, int], ...]:
    return tuple((int(n.network_address), int(n.netmask)) for n in networks if n.version == version)
