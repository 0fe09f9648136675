"""Conflicts with ports for outgoing connections, on which a listener may find its port taken at any start."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from brokers.contract.ports import INTERNAL_PORTS_BELOW
from config.embedded.process import StartFailed, outgoing_ports
from config.supervisor.options import LOWEST_PORT_BASE, TENANT_PORTS, UpOptions

RESERVED_PORTS_FILE = Path("/proc/sys/net/ipv4/ip_local_reserved_ports")


def check(options: UpOptions, *, is_complete: bool) -> list[str]:
    """Returns warnings about these ports. `is_complete` means that addresses were assigned, so the base cannot change.

    Raises:
        StartFailed: the first tenant port, or a broker's own, is in the range of outgoing connections, and the base can
            still be changed.
    """
    conflicting = _conflicting_ports()
    warnings: list[str] = []
    if options.http_port in conflicting:
        warnings.append(
            f"Port {options.http_port} of the console may be taken by an outgoing connection ({_range()}) before the "
            "next start: choose another one with --http-port."
        )
    needed_ports = {options.port_base, *options.internal_ports, *options.admin_ports}
    if needed_ports.isdisjoint(conflicting):
        return warnings
    ports = range(options.port_base - INTERNAL_PORTS_BELOW, min(65_536, options.port_base + TENANT_PORTS))
    sentence = (
        f"--port-base {options.port_base} is among the ports for outgoing connections ({_range()}): any of these may "
        "take a tenant's port, which then does not open."
    )
    reserve = f"sysctl -w net.ipv4.ip_local_reserved_ports={ports.start}-{ports[-1]}"
    highest = outgoing_ports().start - TENANT_PORTS
    if is_complete or highest < LOWEST_PORT_BASE:
        return [*warnings, f"{sentence} Keep them free with `{reserve}`."]
    raise StartFailed(
        sentence, f"Choose --port-base from {LOWEST_PORT_BASE} to {highest}, or keep these ports free with `{reserve}`."
    )


def tenant_ports(port_base: int) -> int:
    """Returns the number of ports for tenants from the first one on: those before the first conflicting one."""
    conflicting = _conflicting_ports()
    until = next((port for port in range(port_base, port_base + TENANT_PORTS) if port in conflicting), None)
    return TENANT_PORTS if until is None or until == port_base else until - port_base


def reserved_ports(message: str) -> set[int]:
    """Parses the kernel's list of ports: `8080,9000-9010`. Pure; invalid parts are skipped."""
    result: set[int] = set()
    for part in message.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            result.update(range(int(first), int(last or first) + 1))
    return result


def _conflicting_ports() -> set[int]:
    return set(outgoing_ports()) - reserved_ports(_reserved())


def _reserved() -> str:
    try:
        return RESERVED_PORTS_FILE.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""


def _range() -> str:
    ports: Sequence[int] = outgoing_ports()
    return f"{ports[0]} to {ports[-1]}"
