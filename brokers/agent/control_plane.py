"""Port through which an agent learns what is wanted of its host, and says what it sees there.

`database` implements it for an agent that reaches PostgreSQL, `joined` for one that joined by a token (decision 163).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from brokers.agent.check_rules import Check
from brokers.contract.process import BrokerProcessSettings
from brokers.models import Broker, Host


class ControlPlaneAway(Exception):
    """The control plane does not answer. The agent goes on with what it knows, and asks again."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Wanted state of a host. The rows are read-only here: an agent without a database makes them of documents."""

    host: Host
    brokers: Sequence[Broker] = field(default_factory=list)


class HostFacts(Protocol):
    """Facts from elsewhere that checks of a host need, and the place of their result."""

    def version_check(self) -> Check:
        """Returns the check that the agent and the control plane fit."""
        ...

    def clock_offset_ms(self) -> int:
        """Returns the lead of this machine's clock over the control plane's."""
        ...

    def own_ports(self, host: Host) -> set[int]:
        """Returns the ports of the range that are our brokers'."""
        ...

    def broker_directories(self, host: Host) -> list[str]:
        """Returns the log directories of the brokers of the host."""
        ...

    def note(self, host: Host, found: list[Check], machine: Mapping[str, Any]) -> None:
        """Records the result, with the use of the machine (`brokers.agent.machine`)."""
        ...

    def close(self) -> None:
        """Releases what the thread of a check holds."""
        ...


class ControlPlane(Protocol):
    """Source of what is wanted of one host. All methods but `wait` return soon."""

    facts: HostFacts

    def begin_round(self) -> None:
        """Prepares a round of the agent."""
        ...

    def wanted(self) -> Wanted | None:
        """Returns what is wanted, None if the host is unknown. Raises `ControlPlaneAway`."""
        ...

    def renew_certificates(self, brokers: Sequence[Broker], now_s: float) -> None:
        """Creates and renews the certificates of brokers. Failures are logged and retried."""
        ...

    def settings_of(self, broker: Broker) -> BrokerProcessSettings:
        """Returns the settings of a broker's process. Raises `ControlPlaneAway`, and `OSError` if it cannot start."""
        ...

    def note_process(self, broker_id: str, fields: dict[str, Any]) -> None:
        """Records the state of a process. Raises `ControlPlaneAway`."""
        ...

    def note_restart(self, broker_id: str) -> None:
        """Counts an unexpected end of a process. Raises `ControlPlaneAway`."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Waits until something else may be wanted, for `timeout_s` at most."""
        ...

    def close(self) -> None:
        """Says what is not said yet, and ends the connection."""
        ...
