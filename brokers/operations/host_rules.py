"""Rules for the addresses and ports of hosts relative to each other. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from django.utils.translation import gettext_noop

from brokers.contract.ports import ADMIN_PORTS_BELOW, HIGHEST_PORT, INTERNAL_PORTS_BELOW, LOWEST_PORT
from tenants.errors import Message

NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAddresses:
    """Addresses and ports of a host; `own_ports` are the internal and admin ports of its brokers."""

    name: str
    bind_host: str
    advertised_host: str
    internal_host: str
    port_first: int
    port_last: int
    own_ports: frozenset[int] = frozenset()

    def shares_address_with(self, other: HostAddresses) -> bool:
        """True if a port of one host may collide with the same port of the other: tenants, brokers or the kernel see
        one address.
        """
        return (
            self.advertised_host.casefold() == other.advertised_host.casefold()
            or self.internal_host.casefold() == other.internal_host.casefold()
            or (self.bind_host.casefold() == other.bind_host.casefold() and not is_wildcard(self.bind_host))
        )

    @property
    def tenant_ports(self) -> range:
        return range(self.port_first, self.port_last + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """The reason why a range of ports cannot be given to a host."""

    detail: str
    code: str


def normalised_directory(path: str) -> str:
    """Returns an absolute path in the form in which paths of the same directory are equal."""
    return str(PurePosixPath("/", path.lstrip("/")))


def normalised_address(text: str, *, wildcard: bool = False) -> str | None:
    """Returns the normal form of a host name or an address; None if it is neither, or a wildcard where none is
    accepted.
    """
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return text if _HOST.fullmatch(text) else None
    if address.is_multicast or (address.is_unspecified and not wildcard):
        return None
    return str(address)


def is_wildcard(host: str) -> bool:
    """True for an address that stands for all addresses of the machine."""
    return host in ("0.0.0.0", "::")  # noqa: S104 (compared, not bound)


def find_overlap(host: HostAddresses, others: Iterable[HostAddresses]) -> Overlap | None:
    """Returns the first reason why the range of `host` collides with itself or another host, or None."""
    for other in (host, *others):
        if other is not host and not host.shares_address_with(other):
            continue
        used_port = next((port for port in sorted(other.own_ports) if port in host.tenant_ports), None)
        if used_port is not None:
            detail = Message(
                gettext_noop("Port %(port)s is one of a broker's own on host %(name)s."),
                port=used_port,
                name=other.name,
            )
            return Overlap(detail=detail, code="ports_taken")
        if other is not host and _ranges_overlap(host.tenant_ports, other.tenant_ports):
            detail = Message(
                gettext_noop(
                    "Host %(name)s has the ports %(first)s to %(last)s on the same address. "
                    "Choose others, or another address."
                ),
                name=other.name,
                first=other.port_first,
                last=other.port_last,
            )
            return Overlap(detail=detail, code="ports_overlap")
    return None


def broker_ports(
    host: HostAddresses, same_address: Iterable[HostAddresses], used: Iterable[tuple[int, int]]
) -> tuple[int, int] | None:
    """Returns an internal and an admin port for another broker of `host`: after the pairs `used` there, or at the usual
    position below the first tenant port; outside all ranges of hosts with the same address. None if no port is left.
    """
    pairs = list(used)
    neighbours = [host, *same_address]
    taken_ports = {port for other in neighbours for port in other.own_ports}
    result: list[int] = []
    for position, below in enumerate((INTERNAL_PORTS_BELOW, ADMIN_PORTS_BELOW)):
        usual_port = host.port_first - below
        first = usual_port if usual_port >= LOWEST_PORT else host.port_last + 1
        start = max((pair[position] for pair in pairs), default=first - 1) + 1
        candidates = (*range(start, HIGHEST_PORT + 1), *range(LOWEST_PORT, start))
        port = next(
            (
                port
                for port in candidates
                if port not in taken_ports and not any(port in other.tenant_ports for other in neighbours)
            ),
            None,
        )
        if port is None:
            return None
        taken_ports.add(port)
        result.append(port)
    return result[0], result[1]


def _ranges_overlap(first: range, other: range) -> bool:
    return first.start < other.stop and other.start < first.stop
