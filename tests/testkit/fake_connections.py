"""Connections of clients kept in lists: what brokers would answer, without them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from instances.clients.interfaces import Connection, ConnectionList
from instances.interfaces import BrokerUnresponsive
from tenants.errors import NotFound, OutcomeUnknown

SINCE_MS = 1_790_000_000_000


@dataclass(slots=True)
class FakeConnections:
    """Connections of `instances.clients.interfaces.ConnectionAdminClient`, by instance id.

    With `is_lost` nobody says what was done.
    """

    kept: dict[str, list[Connection]] = field(default_factory=lambda: defaultdict(list))
    silent: tuple[BrokerUnresponsive, ...] = ()
    is_lost: bool = False
    asked: int = 0

    def add(self, instance_id: str, client_id: str, **changes: Any) -> Connection:
        number = len(self.kept[instance_id]) + 1
        fields: dict[str, Any] = {
            "id": f"con-1-abc-{number}", "broker_id": 1, "address": "10.0.0.7", "user": "reports",
            "client_id": client_id, "software": "librdkafka", "software_version": "2.5.0", "route": "default",
            "since_ms": SINCE_MS + number, "requests": 10 * number, "is_signing_in": False,
        }  # fmt: skip
        connection = Connection(**{**fields, **changes})
        self.kept[instance_id].append(connection)
        return connection

    def connections(self, instance_id: str, at_most: int) -> ConnectionList:
        self.asked += 1
        found = self.kept[instance_id]
        return ConnectionList(connections=found[:at_most], silent=self.silent, is_cut=len(found) > at_most)

    def close(self, instance_id: str, connection_id: str) -> None:
        if self.is_lost:
            raise OutcomeUnknown
        left = [connection for connection in self.kept[instance_id] if connection.id != connection_id]
        if len(left) == len(self.kept[instance_id]):
            raise NotFound("There is no such connection.")
        self.kept[instance_id] = left
