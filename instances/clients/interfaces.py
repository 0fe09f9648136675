"""Connections and counters of clients, as interfaces that `brokers` implements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from instances.interfaces import BrokerUnresponsive
from tenants.interfaces import Interface


class Connection(NamedTuple):
    """A client's connection to one broker. `id` is never used again. Empty text is unknown, such as the user of a
    connection that is signing in, or the software of a client that does not report it; `since_ms` in ms since the
    epoch.
    """

    id: str
    broker_id: int
    address: str
    user: str
    client_id: str
    software: str
    software_version: str
    route: str
    since_ms: int
    requests: int
    is_signing_in: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionList:
    """Connections to all brokers of an instance; those to unresponsive brokers are missing. `is_cut`: not all are
    listed.
    """

    connections: Sequence[Connection]
    silent: tuple[BrokerUnresponsive, ...]
    is_cut: bool = False


class ConnectionAdminClient(Protocol):
    """Admin client that lists and closes connections."""

    def connections(self, instance_id: str, at_most: int) -> ConnectionList:
        """Returns the current connections of an instance, `at_most` of them."""
        ...

    def close(self, instance_id: str, connection_id: str) -> None:
        """Closes a connection. Raises `NotFound` for an unknown one, `Unavailable` if its broker does not answer, and
        `OutcomeUnknown` if it is unknown whether it was closed.
        """
        ...


class ClientCounter(NamedTuple):
    """Bytes that one user and client id produced to or consumed from a topic on one broker since its start. `direction`
    is `produce` or `consume`; `moved_ms` is the time of the last transfer in ms since the epoch, to within 10 s.
    """

    user: str
    client_id: str
    direction: str
    bytes: int
    moved_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTopicTraffic:
    """Counters of one broker for one topic. Instants in ms since the epoch, by the broker's clock. `is_cut`: the
    instance has more clients than the broker counts one by one.
    """

    now_ms: int
    alive_since_ms: int
    counters: Sequence[ClientCounter]
    is_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTraffic:
    """Counters by broker id, and the brokers that did not answer."""

    brokers: Mapping[int, BrokerTopicTraffic]
    silent: tuple[BrokerUnresponsive, ...]


connection_admin_client: Interface[ConnectionAdminClient] = Interface(
    "instances.clients.interfaces.connection_admin_client"
)
# Takes (instance id, topic): returns the current counters of the topic's clients.
topic_traffic: Interface[Callable[[str, str], TopicTraffic]] = Interface("instances.clients.interfaces.topic_traffic")
