"""Interface of an agent to the control plane: source of the wanted state of its host, and recipient of its reports.

`database` implements it for an agent that reaches PostgreSQL, `joined` for one that joined by a token (decision 163).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from brokers.agent.check_rules import Check
from brokers.contract.process import BrokerProcessSettings
from brokers.models import Broker, Host


class ControlPlaneUnavailable(Exception):
    """The control plane does not answer. The agent continues with the last wanted state, and retries."""


@dataclass(frozen=True, slots=True)
class WantedHost:
    """Wanted state of a host. The rows must not be saved: an agent without a database makes them from a document."""

    host: Host
    brokers: Sequence[Broker] = field(default_factory=list)


class HostFacts(Protocol):
    """Facts that the checks of a host need from the control plane, and the recipient of their results."""

    def version_check(self) -> Check:
        """Returns the check that the agent and the control plane fit."""
        ...

    def clock_offset_ms(self) -> int:
        """Returns the lead of this machine's clock over the control plane's."""
        ...

    def own_ports(self, host: Host) -> set[int]:
        """Returns the ports of the host's range that our brokers use."""
        ...

    def broker_directories(self, host: Host) -> list[str]:
        """Returns the log directories of the brokers of the host."""
        ...

    def record_checks(self, host: Host, checks: list[Check], machine: Mapping[str, Any]) -> None:
        """Records the results of the checks, with the use of the machine (`brokers.agent.machine`)."""
        ...

    def close(self) -> None:
        """Releases the resources of a check's thread, for example its database connection."""
        ...


class ControlPlane(Protocol):
    """Source of the wanted state of one host, and recipient of its reports. Only `wait` and `close` may block."""

    facts: HostFacts

    def begin_round(self) -> None:
        """Prepares a round of the agent."""
        ...

    def wanted_host(self) -> WantedHost | None:
        """Returns the wanted state of the host; None if the host is unknown. Raises `ControlPlaneUnavailable`."""
        ...

    def renew_certificates(self, brokers: Sequence[Broker], now_s: float) -> None:
        """Creates and renews the certificates of brokers. Failures are logged and retried."""
        ...

    def settings_of(self, broker: Broker) -> BrokerProcessSettings:
        """Returns the settings of a broker's process. Raises `ControlPlaneUnavailable`, and `OSError` if it cannot
        start.
        """
        ...

    def store_process_state(self, broker_id: str, fields: dict[str, Any]) -> None:
        """Records the state of a process. Raises `ControlPlaneUnavailable`."""
        ...

    def count_restart(self, broker_id: str) -> None:
        """Counts an unexpected end of a process. Raises `ControlPlaneUnavailable`."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Waits until the wanted state may have changed, for `timeout_s` at most."""
        ...

    def close(self) -> None:
        """Sends the reports that are pending, and closes the connection."""
        ...
