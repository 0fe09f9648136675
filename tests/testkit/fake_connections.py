"""In-memory connections of clients."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from instances.clients.interfaces import BrokerTopicTraffic, ClientCounter, Connection, ConnectionList, TopicTraffic
from instances.interfaces import BrokerUnresponsive
from tenants.errors import NotFound, OutcomeUnknown

SINCE_MS = 1_790_000_000_000


@dataclass(slots=True)
class FakeConnections:
    """In-memory `instances.clients.interfaces.ConnectionAdminClient`, by instance id. `is_lost`: a connection is
    not closed, and the outcome is unknown to the caller.
    """

    connections_by_instance: dict[str, list[Connection]] = field(default_factory=lambda: defaultdict(list))
    silent: tuple[BrokerUnresponsive, ...] = ()
    is_lost: bool = False
    request_count: int = 0
    # Counters of clients by instance and topic; the brokers' clock, and whether there are more than are counted.
    counters: dict[tuple[str, str], list[ClientCounter]] = field(default_factory=lambda: defaultdict(list))
    now_ms: int = SINCE_MS
    is_cut: bool = False

    def add(self, instance_id: str, client_id: str, **changes: Any) -> Connection:
        number = len(self.connections_by_instance[instance_id]) + 1
        fields: dict[str, Any] = {
            "id": f"con-1-abc-{number}", "broker_id": 1, "address": "10.0.0.7", "user": "reports",
            "client_id": client_id, "software": "librdkafka", "software_version": "2.5.0", "route": "default",
            "since_ms": SINCE_MS + number, "requests": 10 * number, "is_signing_in": False,
        }  # fmt: skip
        connection = Connection(**{**fields, **changes})
        self.connections_by_instance[instance_id].append(connection)
        return connection

    def connections(self, instance_id: str, at_most: int) -> ConnectionList:
        self.request_count += 1
        connections = self.connections_by_instance[instance_id]
        return ConnectionList(connections=connections[:at_most], silent=self.silent, is_cut=len(connections) > at_most)

    def close(self, instance_id: str, connection_id: str) -> None:
        if self.is_lost:
            raise OutcomeUnknown
        remaining = [
            connection for connection in self.connections_by_instance[instance_id] if connection.id != connection_id
        ]
        if len(remaining) == len(self.connections_by_instance[instance_id]):
            raise NotFound("There is no such connection.")
        self.connections_by_instance[instance_id] = remaining

    def count(
        self,
        instance_id: str,
        topic: str,
        client_id: str,
        moved_bytes: int,
        *,
        user: str = "reports",
        direction: str = "produce",
    ) -> None:
        """Sets the bytes of a client since the start of the one broker, last at `now_ms`."""
        counter = ClientCounter(user, client_id, direction, moved_bytes, self.now_ms)
        other_counters = [counter_ for counter_ in self.counters[instance_id, topic] if counter_[:3] != counter[:3]]
        self.counters[instance_id, topic] = [*other_counters, counter]

    def topic_traffic(self, instance_id: str, topic: str) -> TopicTraffic:
        self.request_count += 1
        broker = BrokerTopicTraffic(
            now_ms=self.now_ms,
            alive_since_ms=SINCE_MS - 60_000,
            counters=tuple(self.counters[instance_id, topic]),
            is_cut=self.is_cut,
        )
        brokers = {} if self.silent and not self.connections_by_instance[instance_id] else {1: broker}
        return TopicTraffic(brokers=brokers, silent=self.silent)
