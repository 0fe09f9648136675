"""Connections of this broker to other brokers, separate for each purpose."""

from __future__ import annotations

from brokers.engine.handlers.services import BrokerServices
from brokers.engine.replication.interfaces import Connect
from brokers.engine.replication.peers import Peers


def peers_for(purpose: str, services: BrokerServices, connect: Connect) -> Peers:
    """Returns the connections for one purpose, which is in their client id."""
    return Peers(
        connect=connect,
        call_later=lambda delay_ms, callback: services.loop.call_later(delay_ms / 1000, callback),
        monotonic_ms=services.clock.monotonic_ms,
        client_id=f"broker-{services.broker_id}-{purpose}",
    )
