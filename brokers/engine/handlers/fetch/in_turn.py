"""Turns of woken fetches: their scheduling and their cost."""

from __future__ import annotations

import asyncio
from typing import Final

from brokers.engine.handlers.services import BrokerServices
from brokers.engine.handlers.session import Session
from brokers.engine.protocol.apis import ApiKey

# Longer turns of a fetch that is served again are charged to its instance as request time. A fetch of a few partitions
# takes a tenth of this.
UNPAID_TURN_S_MAX: Final = 0.001


class InTurn:
    """Sets an event in the turn of the instance: one event may wake thousands of fetches, and the work that follows in
    each takes long.
    """

    def __init__(self, services: BrokerServices, instance_id: str | None) -> None:
        self._services = services
        self._instance_id = instance_id
        self._is_due = False
        self.event = asyncio.Event()

    def set(self) -> None:
        if self._is_due:
            return
        self._is_due = True
        if self._instance_id is None:
            self.event.set()
        else:
            self._services.accounting.request_turns.take(self._instance_id).add_done_callback(self._on_turn)

    def _on_turn(self, _: object) -> None:
        self.event.set()


def charge_long_turn(session: Session, spent_s: float) -> None:
    """Records a later turn of a client's fetch, and charges it as request time if it was long."""
    services, instance_id = session.services, session.principal.instance_id
    services.accounting.loop_turns.record(int(ApiKey.FETCH), instance_id, spent_s)
    if spent_s >= UNPAID_TURN_S_MAX and instance_id is not None and not session.principal.internal:
        services.accounting.accountings.of(instance_id).request_time.charge(
            round(spent_s * 1e6), services.clock.monotonic_ms()
        )
