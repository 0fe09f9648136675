"""Checks of the agent's own machine, shown to operators: version, clock, address, ports and directories.

With each check the use of processors and memory is measured.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import structlog
from django.db import Error as DatabaseError

from brokers.agent import check_rules
from brokers.agent.check_rules import Check
from brokers.agent.control_plane import HostFacts
from brokers.agent.database import DatabaseFacts
from brokers.agent.machine import MachineMeter
from brokers.limits import HOST_CHECKED_EVERY_S
from brokers.models import Host

log = structlog.get_logger(__name__)

SOCKET_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
OUTGOING_PORTS_FILE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Maximum wait for a running check at the end of the agent; the thread of a hanging check ends with the process.
END_WAIT_S: Final = 5.0
_LISTENING: Final = "0A"
_REASON_CHARS_MAX: Final = 200


class HostChecks:
    """Checks of one host, run when the host was changed and every `HOST_CHECKED_EVERY_S`.

    They run in a thread: a dead file system or name server would otherwise block the agent's supervision of brokers.
    """

    def __init__(self, run_dir: Path, facts: HostFacts | None = None) -> None:
        self._run_dir = run_dir
        self._facts = facts or DatabaseFacts()
        self._meter = MachineMeter()
        self._started_at_s: float | None = None
        self._checked_version = -1
        self._thread: threading.Thread | None = None

    @property
    def is_running_check(self) -> bool:
        """True while a check is under way."""
        return self._thread is not None and self._thread.is_alive()

    def start_if_due(self, host: Host, now_s: float) -> None:
        """Starts a check of the machine if one is due and none is under way."""
        is_due = self._started_at_s is None or now_s - self._started_at_s >= HOST_CHECKED_EVERY_S
        if (not is_due and host.version == self._checked_version) or self.is_running_check:
            return
        self._started_at_s, self._checked_version = now_s, host.version
        self._thread = threading.Thread(target=self._check_in_thread, args=(host,), name="host-checks", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Waits for a check that is under way, for `END_WAIT_S` at most."""
        if self._thread is not None:
            self._thread.join(END_WAIT_S)

    def _check_in_thread(self, host: Host) -> None:
        try:
            self.check(host)
        except (DatabaseError, OSError) as error:
            log.warning("agent.not_checked", reason=str(error))
        finally:
            self._facts.close()

    def check(self, host: Host) -> None:
        """Checks the machine, and records the results at its host. Raises `DatabaseError` or `OSError`."""
        self._facts.record_checks(host, self.checks(host), self._meter.measure())

    def checks(self, host: Host) -> list[Check]:
        """Returns the results of all checks, in the order in which they are shown."""
        return [
            self._facts.version_check(),
            check_rules.clock_check(self._facts.clock_offset_ms()),
            check_rules.address_check(host.bind_host, _reason_not_to_listen(host.bind_host)),
            check_rules.ports_check(
                host.port_first,
                host.port_last,
                listening_ports(host.bind_host),
                self._facts.own_ports(host),
                outgoing_ports(),
            ),
            check_rules.directories_check({path: _reason_not_to_write(Path(path)) for path in self._directories(host)}),
        ]

    def _directories(self, host: Host) -> list[str]:
        return list(dict.fromkeys([str(self._run_dir), *host.data_dirs, *self._facts.broker_directories(host)]))


def listening_ports(bind_host: str) -> set[int]:
    """Returns the TCP ports that are taken at an address, by listeners on it or on every address."""
    addresses = _resolve_addresses(bind_host)
    is_everywhere = any(ipaddress.ip_address(address).is_unspecified for address in addresses)
    return {
        port
        for address, port in _read_listeners()
        if is_everywhere or ipaddress.ip_address(address).is_unspecified or address in addresses
    }


def outgoing_ports() -> range:
    """Returns the ports that the kernel assigns to outgoing connections; empty if that is unknown."""
    try:
        first, last = (int(number) for number in OUTGOING_PORTS_FILE.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return range(0)
    return range(first, last + 1)


def _reason_not_to_listen(bind_host: str) -> str:
    """Returns the reason why no socket can listen on a free port of an address; "" if one can."""
    try:
        for address in _resolve_addresses(bind_host):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            with socket.socket(family) as probe:
                probe.bind((address, 0))
    except OSError as error:
        return _reason_text(error)
    return ""


def _resolve_addresses(host: str) -> set[str]:
    """Returns the addresses of a host name. Raises `OSError` for an unknown name."""
    return {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}


def _read_listeners() -> Iterator[tuple[str, int]]:
    for table in SOCKET_TABLES:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        yield from _parse_listeners(lines)


def _parse_listeners(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yields address and port of the listeners in a socket table of the kernel. The table has addresses as hexadecimal
    words in the machine's byte order.
    """
    for line in lines:
        fields = line.split()
        if fields[3] != _LISTENING:
            continue
        address, _, port = fields[1].partition(":")
        address_bytes = b"".join(bytes.fromhex(address[start : start + 8])[::-1] for start in range(0, len(address), 8))
        ip = ipaddress.ip_address(address_bytes)
        mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
        yield str(mapped or ip), int(port, 16)


def _reason_not_to_write(path: Path) -> str:
    """Returns the reason why a broker could not store its log in a directory, or create it; "" if it can."""
    nearest = next((parent for parent in (path, *path.parents) if parent.exists()), path)
    try:
        if not nearest.is_dir():
            return "not a directory"
        if nearest != path and not os.access(nearest, os.W_OK | os.X_OK):
            return f"{nearest} cannot be written"
        if nearest == path:
            with tempfile.NamedTemporaryFile(dir=path, prefix=".penstock-check-"):
                return ""
    except OSError as error:
        return _reason_text(error)
    return ""


def _reason_text(error: OSError) -> str:
    return (error.strerror or type(error).__name__)[:_REASON_CHARS_MAX]
