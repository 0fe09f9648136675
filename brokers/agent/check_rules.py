"""Verdicts on a host's machine, computed from observations. Pure; `host_checks` makes the observations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from brokers.choices import HostCheck, HostCheckState
from brokers.limits import CLOCK_OFFSET_MS_MAX, PORTS_NAMED_MAX

Check = dict[str, Any]


def version(code_version: str, behind: Collection[str], ahead: Collection[str]) -> Check:
    """Returns the check that code and database fit; `behind` are migrations that only the database has, `ahead` those
    that only the code has.
    """
    state = HostCheckState.FAILED if behind or ahead else HostCheckState.PASSED
    return _check(HostCheck.VERSION, state, version=code_version, behind=len(behind), ahead=len(ahead))


def clock(offset_ms: int) -> Check:
    """Returns the check that the clocks agree; `offset_ms` is the lead of the machine's over the control plane's."""
    is_wrong = abs(offset_ms) > CLOCK_OFFSET_MS_MAX
    return _check(HostCheck.CLOCK, HostCheckState.FAILED if is_wrong else HostCheckState.PASSED, offset_ms=offset_ms)


def address(bind_host: str, reason: str) -> Check:
    """Returns the check that brokers can listen on the host's address; `reason` says why not, and is empty if so."""
    state = HostCheckState.FAILED if reason else HostCheckState.PASSED
    return _check(HostCheck.ADDRESS, state, address=bind_host, reason=reason)


def ports(first: int, last: int, listening: Collection[int], own_ports: Collection[int], outgoing: range) -> Check:
    """Returns the check of the host's port range. It fails if other programs listen on ports of it (`own_ports` are our
    brokers' ports), and warns if the kernel may assign ports of it to outgoing connections.
    """
    taken_ports = sorted(port for port in set(listening) - set(own_ports) if first <= port <= last)
    shared = range(max(first, outgoing.start), min(last + 1, outgoing.stop))
    state = HostCheckState.PASSED
    if taken_ports:
        state = HostCheckState.FAILED
    elif shared:
        state = HostCheckState.WARNING
    data = {"first": first, "last": last, "taken": taken_ports[:PORTS_NAMED_MAX], "taken_count": len(taken_ports)}
    return _check(HostCheck.PORTS, state, **data, outgoing_first=shared.start if shared else None)


def directories(reasons: Mapping[str, str]) -> Check:
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
