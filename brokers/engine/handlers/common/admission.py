"""Admission: requests wait until the earlier traffic of their client, topics and instance is paid (decision 110).

A debt belongs to the limiter, not to a connection: a request on a new connection waits as well. Requests of one limiter
are admitted in the order of their arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from brokers.engine.handlers.client import Client
from brokers.engine.handlers.session import Session
from brokers.engine.scheduling.inline_wakeup import InlineWakeup
from brokers.engine.throttling.charging import Limiter, in_debt
from brokers.engine.throttling.waits import queue_of

# Returns the limiters that a request is charged to, for its client in the current state of the cluster.
LimitersOf = Callable[[Client], Iterable[Limiter]]


def limiter_in_debt(session: Session, client_id: str | None, limiters_of: LimitersOf) -> Limiter | None:
    """Returns the limiter that a request has to wait for now, None if none is in debt."""
    return in_debt(tuple(limiters_of(session.client(client_id))), session.services.clock.monotonic_ms())


async def until_paid(session: Session, client_id: str | None, limiters_of: LimitersOf) -> None:
    """Waits until no limiter is in debt, for a request that is served by a task and continues in the turn of its
    instance. The wait is cancelled with the task.
    """
    services = session.services
    while (limiter := limiter_in_debt(session, client_id, limiters_of)) is not None:
        now_ms = services.clock.monotonic_ms()
        debt_ms = limiter.debt_ms(now_ms)
        if debt_ms:
            limiter.note_wait(debt_ms, now_ms)
            session.client(client_id).remember_delay(limiter, debt_ms, services.clock.now_ms())
        admitted = InlineWakeup(services.loop)
        wait = queue_of(limiter, services.loop_clock).admit(admitted.begin, session.channel.turns)
        try:
            await admitted
        finally:
            wait.cancel()
