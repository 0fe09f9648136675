"""Authorization of topic operations by the instance's state (CKA-14) and the topic's IP allow-lists (CKA-11, CKA-12).

Every request is decided from the current image, so a change affects open connections at once. Unknown topics and topics
of other instances get the same answer on the same path (CKA-10).
"""

from __future__ import annotations

import enum
import re
from bisect import bisect_right
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
_Range = tuple[int, int]
# The usual notations of entries, which are parsed here because `ipaddress` takes thirty times as long. It parses the
# others.
_OCTET = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_PLAIN_V6 = re.compile(r"([0-9a-f:]{2,39})(?:/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))?")
_PLAIN_V4 = re.compile(rf"{_OCTET}\.{_OCTET}\.{_OCTET}\.{_OCTET}(?:/(3[0-2]|[12]?[0-9]))?")


class Operation(enum.Enum):
    """Kind of use of a topic, as the allow-lists distinguish it."""

    PRODUCE = "produce"
    CONSUME = "consume"
    # Delete a topic or its records, add partitions, change its configuration, or read its size.
    ADMINISTER = "administer"
    # See a topic in listings, which each of the other rights implies (CKA-11).
    DESCRIBE = "describe"


class AllowLists(Protocol):
    """Allow-lists of a topic. An empty list admits every address; an empty `administer_ips` admits those on both other
    lists.
    """

    @property
    def produce_ips(self) -> tuple[str, ...]: ...
    @property
    def consume_ips(self) -> tuple[str, ...]: ...
    @property
    def administer_ips(self) -> tuple[str, ...]: ...


def peer_address(text: str) -> Address:
    """Parses a peer's address for comparison with allow-lists.

    An IPv4-mapped IPv6 address becomes IPv4; a zone (`%eth0`) is dropped.
    """
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


class OwnerAddress:
    """Marker of the address of an instance's owner on the internal listener (console, REST, probe).

    The owner can change the allow-lists, so they must not lock the owner out, wherever the control plane runs.
    """

    __slots__ = ()


class _OwnerAddressV4(OwnerAddress, IPv4Address):
    __slots__ = ()


class _OwnerAddressV6(OwnerAddress, IPv6Address):
    __slots__ = ()


def owner_address(text: str) -> Address:
    """Parses the address of a peer of the internal listener that acts for itself; every list admits it."""
    address = peer_address(text)
    return _OwnerAddressV4(int(address)) if address.version == 4 else _OwnerAddressV6(int(address))


@dataclass(frozen=True, slots=True)
class AddressList:
    """Networks as disjoint ranges of integers: for each address family the sorted first addresses and the last ones."""

    v4: tuple[Sequence[int], Sequence[int]]
    v6: tuple[Sequence[int], Sequence[int]]

    def admits(self, address: Address) -> bool:
        value = int(address)
        first, last = self.v4 if address.version == 4 else self.v6
        index = bisect_right(first, value) - 1
        return index >= 0 and value <= last[index]


# Compiled lists by the identity of their entries, which the cluster metadata image keeps alive; comparing equal tuples
# would take long.
_compiled_lists_by_id: dict[int, tuple[tuple[str, ...], AddressList]] = {}


def compile_list(entries: tuple[str, ...]) -> AddressList:
    """Compiles a list of addresses and CIDRs.

    An entry that cannot be parsed admits no address, so that a typing error does not open the topic.
    """
    cached = _compiled_lists_by_id.get(id(entries))
    if cached is not None and cached[0] is entries:
        return cached[1]
    if len(_compiled_lists_by_id) >= COMPILED_LISTS_MAX:
        _compiled_lists_by_id.clear()
    result = _compile(entries)
    _compiled_lists_by_id[id(entries)] = entries, result
    return result


@lru_cache(maxsize=COMPILED_LISTS_MAX)
def _compile(entries: tuple[str, ...]) -> AddressList:
    v4: list[_Range] = []
    v6: list[_Range] = []
    for entry in entries:
        v4_match = _PLAIN_V4.fullmatch(entry)
        if v4_match is not None:
            a, b, c, d, bits = v4_match.groups(default="32")
            hosts = (1 << 32 - int(bits)) - 1
            base = (int(a) << 24 | int(b) << 16 | int(c) << 8 | int(d)) & ~hosts
            v4.append((base, base + hosts))
            continue
        v6_range = _parse_plain_v6(entry)
        if v6_range is not None:
            v6.append(v6_range)
            continue
        try:
            network = _unmap_ipv4(ip_network(entry, strict=False))
        except ValueError:
            continue
        (v4 if network.version == 4 else v6).append((int(network.network_address), int(network.broadcast_address)))
    return AddressList(v4=_merge_ranges(v4), v6=_merge_ranges(v6))


def _parse_plain_v6(entry: str) -> _Range | None:
    """Parses the usual notations of IPv6; None for those left to `ipaddress`: embedded IPv4, others and errors."""
    match = _PLAIN_V6.fullmatch(entry)
    if match is None:
        return None
    text, bits = match.groups(default="128")
    head, gap, tail = text.partition("::")
    before, after = head.split(":") if head else [], tail.split(":") if tail else []
    groups = [*before, *["0"] * (8 - len(before) - len(after)), *after] if gap else before
    if len(groups) != 8 or not all(0 < len(group) <= 4 for group in groups) or (gap and len(before) + len(after) > 7):
        return None
    hosts = (1 << 128 - int(bits)) - 1
    base = int("".join([group.zfill(4) for group in groups]), 16) & ~hosts
    return None if base >> 32 in (0, 0xFFFF) else (base, base + hosts)


def decide(state: str, topic: AllowLists | None, operation: Operation, address: Address) -> int:
    """Returns the error code of an operation on a topic of an instance in `state`; 0 if it is allowed."""
    if topic is None or state == "deleting":
        return UNKNOWN_TOPIC_OR_PARTITION
    if not is_admitted(topic, operation, address):
        return TOPIC_AUTHORIZATION_FAILED
    if state == "frozen" and operation is Operation.PRODUCE:
        return POLICY_VIOLATION
    return NONE


def is_admitted(topic: AllowLists, operation: Operation, address: Address) -> bool:
    """True if the topic's allow-lists admit `address`."""
    if isinstance(address, OwnerAddress):
        return True
    if operation is Operation.PRODUCE:
        return not topic.produce_ips or compile_list(topic.produce_ips).admits(address)
    if operation is Operation.CONSUME:
        return not topic.consume_ips or compile_list(topic.consume_ips).admits(address)
    may_produce = is_admitted(topic, Operation.PRODUCE, address)
    may_consume = is_admitted(topic, Operation.CONSUME, address)
    # Without a list of their own, administrators must be on both other lists: keeping producers out would be worth
    # little if they could delete the topic.
    may_administer = (
        compile_list(topic.administer_ips).admits(address) if topic.administer_ips else may_produce and may_consume
    )
    return may_administer or (operation is Operation.DESCRIBE and (may_produce or may_consume))


def _unmap_ipv4(network: IPv4Network | IPv6Network) -> IPv4Network | IPv6Network:
    if isinstance(network, IPv6Network) and network.prefixlen >= _MAPPED_PREFIX_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((mapped, network.prefixlen - _MAPPED_PREFIX_BITS))
    return network


def _merge_ranges(ranges: list[_Range]) -> tuple[list[int], list[int]]:
    """Returns the sorted first and last addresses of the ranges. Networks overlap only if one contains the other."""
    first: list[int] = []
    last: list[int] = []
    for base, end in sorted(ranges, key=lambda bounds: (bounds[0], -bounds[1])):
        if not last or end > last[-1]:
            first.append(base)
            last.append(end)
    return first, last
