"""Results of the checks of a host's machine, computed from the observations of `host_checks`. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from brokers.choices import HostCheck, HostCheckState
from brokers.limits import CLOCK_OFFSET_MS_MAX, PORTS_NAMED_MAX

Check = dict[str, Any]


def version_check(
    code_version: str, unknown_migrations: Collection[str], unapplied_migrations: Collection[str]
) -> Check:
    """Returns the check that code and database fit: `unknown_migrations` exist only in the database,
    `unapplied_migrations` only in the code.
    """
    state = HostCheckState.FAILED if unknown_migrations or unapplied_migrations else HostCheckState.PASSED
    return _check(
        HostCheck.VERSION, state, version=code_version, behind=len(unknown_migrations), ahead=len(unapplied_migrations)
    )


def clock_check(offset_ms: int) -> Check:
    """Returns the check that the clocks agree; `offset_ms` is the lead of the machine's over the control plane's."""
    is_wrong = abs(offset_ms) > CLOCK_OFFSET_MS_MAX
    return _check(HostCheck.CLOCK, HostCheckState.FAILED if is_wrong else HostCheckState.PASSED, offset_ms=offset_ms)


def address_check(bind_host: str, reason: str) -> Check:
    """Returns the check that brokers can listen on the host's address; `reason` is empty if they can."""
    state = HostCheckState.FAILED if reason else HostCheckState.PASSED
    return _check(HostCheck.ADDRESS, state, address=bind_host, reason=reason)


def ports_check(
    first_port: int, last_port: int, listening: Collection[int], own_ports: Collection[int], outgoing_ports: range
) -> Check:
    """Returns the check of the host's port range. It fails if other programs listen on ports of it (`own_ports` are our
    brokers' ports), and warns if the kernel may assign ports of it to outgoing connections.
    """
    taken_ports = sorted(port for port in set(listening) - set(own_ports) if first_port <= port <= last_port)
    shared_ports = range(max(first_port, outgoing_ports.start), min(last_port + 1, outgoing_ports.stop))
    state = HostCheckState.PASSED
    if taken_ports:
        state = HostCheckState.FAILED
    elif shared_ports:
        state = HostCheckState.WARNING
    data = {
        "first": first_port,
        "last": last_port,
        "taken": taken_ports[:PORTS_NAMED_MAX],
        "taken_count": len(taken_ports),
    }
    return _check(HostCheck.PORTS, state, **data, outgoing_first=shared_ports.start if shared_ports else None)


def directories_check(reasons: Mapping[str, str]) -> Check:
    """Returns the check that brokers can store logs; `reasons` maps each directory to the reason why it cannot be
    written, or to an empty text.
    """
    unusable = [{"path": path, "reason": reason} for path, reason in reasons.items() if reason]
    state = HostCheckState.FAILED if unusable else HostCheckState.PASSED
    return _check(HostCheck.DIRECTORIES, state, count=len(reasons), wrong=unusable)


def has_failed(checks: Sequence[Mapping[str, Any]]) -> bool:
    """True if a check has failed, so that brokers would not run well on the machine."""
    return any(check.get("state") == HostCheckState.FAILED for check in checks)


def _check(name: HostCheck, state: HostCheckState, **data: Any) -> Check:
    return {"name": str(name), "state": str(state), "data": data}
