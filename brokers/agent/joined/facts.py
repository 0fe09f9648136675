"""Facts for the checks of a joined host, from its own processes and the last answer of the control plane."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from brokers.agent import check_rules
from brokers.agent.check_rules import Check
from brokers.agent.joined.documents import JoinedDocument
from brokers.contract.version import VERSION
from brokers.models import Host


class JoinedFacts:
    """Facts of a host without a database; `record_checks` receives the results of the checks."""

    def __init__(
        self,
        run_dir: Path,
        document: Callable[[], JoinedDocument | None],
        clock_offset_ms: Callable[[], int | None],
        record_checks: Callable[[list[Check], Mapping[str, Any]], None],
    ) -> None:
        self._run_dir = run_dir
        self._document = document
        self._clock_offset_ms = clock_offset_ms
        self._record_checks = record_checks

    def version_check(self) -> Check:
        document = self._document()
        control_plane_version = document.product_version if document else VERSION
        is_behind, is_ahead = (
            _parse_version(control_plane_version) > _parse_version(VERSION),
            _parse_version(control_plane_version) < _parse_version(VERSION),
        )
        return check_rules.version_check(
            VERSION, [control_plane_version] if is_behind else [], [control_plane_version] if is_ahead else []
        )

    def clock_offset_ms(self) -> int:
        """Returns the lead over the control plane's clock. Raises `OSError` before its first answer."""
        offset_ms = self._clock_offset_ms()
        if offset_ms is None:
            raise OSError("the control plane has not answered yet")
        return offset_ms

    def own_ports(self, host: Host) -> set[int]:
        """Returns the ports on which brokers of this host listen."""
        result: set[int] = set()
        for file in self._run_dir.glob("*/*/pid.json"):
            try:
                process = psutil.Process(int(json.loads(file.read_text(encoding="ascii"))["pid"]))
                connections = process.net_connections(kind="tcp")
            except (OSError, ValueError, KeyError, TypeError, psutil.Error):
                continue
            result |= {connection.laddr.port for connection in connections if connection.status == psutil.CONN_LISTEN}
        return result

    def broker_directories(self, host: Host) -> list[str]:
        document = self._document()
        return document.directories() if document else []

    def record_checks(self, host: Host, checks: list[Check], machine: Mapping[str, Any]) -> None:
        self._record_checks(checks, machine)

    def close(self) -> None:
        """Does nothing: a check opens no connection."""


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
