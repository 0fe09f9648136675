"""Charges of coordinator writes: records appended to the state topics for an instance are charged to its bandwidth like
produced ones (`throttling.shares`).

A client in debt is delayed as after a produce: the response has the throttle time, and the connection is muted. An
instance with many connections could write with each of them before it is delayed: above `DEBT_MS_MAX` of debt its next
requests are handled one after the other, each when the debt is lower. Few may wait, since each holds its request in
memory; the others are answered with COORDINATOR_NOT_AVAILABLE, and retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import replace
from typing import Any, Final

from brokers.engine.access.authorizer import Owners
from brokers.engine.handlers.context import Call
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.protocol.codec import Encoded
from brokers.engine.throttling.shares import InstanceShares

# A request waits before it is handled if its instance has more debt than this.
DEBT_MS_MAX: Final = 1_000
# Maximum number of waiting requests of one instance on this broker.
WAITING_MAX: Final = 8


def owes_too_much(call: Call) -> bool:
    """True if the request has to wait until its instance has paid for earlier writes."""
    shares = _shares(call)
    return shares is not None and shares.state_debt_ms(call.services.clock.monotonic_ms()) > DEBT_MS_MAX


class WriteQueue:
    """Waiting requests of one instance; `waiting` is their number."""

    __slots__ = ("__weakref__", "lock", "waiting")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


def _queue(call: Call) -> WriteQueue:
    queues, instance_id = call.services.coordination.state_write_queues, call.view.instance_id
    assert instance_id is not None, "only instances are charged"
    queue = queues.get(instance_id)
    if queue is None:
        queue = queues[instance_id] = WriteQueue()
    return queue


def _without_coordinators(services: BrokerServices) -> BrokerServices:
    """Returns the services without coordinators, with which handlers answer COORDINATOR_NOT_AVAILABLE."""
    result = copy(services)
    result.coordination = replace(services.coordination, groups=None, transactions=None)
    return result


@asynccontextmanager
async def paid(call: Call) -> AsyncIterator[Call]:
    """Waits until the debt of the instance is low enough, and keeps its place in the queue while the request is
    handled.

    Yields the call to handle. If too many requests wait already it is a call without coordinators, which is answered
    with COORDINATOR_NOT_AVAILABLE.
    """
    shares = _shares(call)
    if shares is None or shares.state_debt_ms(call.services.clock.monotonic_ms()) <= DEBT_MS_MAX:
        yield call
        return
    queue = _queue(call)
    if queue.waiting >= WAITING_MAX:
        yield replace(call, services=_without_coordinators(call.services))
        return
    queue.waiting += 1
    try:
        async with queue.lock:
            while True:
                debt_ms = shares.state_debt_ms(call.services.clock.monotonic_ms())
                if debt_ms <= DEBT_MS_MAX:
                    break
                await asyncio.sleep((debt_ms - DEBT_MS_MAX) / 1000)
            yield call
    finally:
        queue.waiting -= 1


def delay_ms(call: Call, response: Any) -> int:
    """Returns the delay of the client, by its instance's debt here or where the request was forwarded."""
    shares = _shares(call)
    owed_ms = 0 if shares is None else shares.state_debt_ms(call.services.clock.monotonic_ms())
    if isinstance(response, Encoded):
        return max(owed_ms, response.throttled_ms)
    return max(owed_ms, getattr(response, "throttle_time_ms", 0))


def remember(call: Call, user: str, waited_ms: int) -> None:
    """Records why the client is throttled."""
    services, instance_id = call.services, call.view.instance_id
    accounting = None if instance_id is None else services.accounting.accountings.get(instance_id)
    if accounting is None or accounting.shares.state is None:
        return
    now_ms, limiter = services.clock.now_ms(), accounting.shares.state
    bought = accounting.shares.produce or limiter
    services.accounting.totals.delays += 1
    accounting.traffic.delayed(waited_ms, now_ms)
    accounting.ledger.record(
        limiter.rule, limiter.limit_per_s, user, call.client_id, waited_ms, now_ms, bought.whole_limit_per_s
    )


def _shares(call: Call) -> InstanceShares | None:
    """Returns the shares to charge, None without any. Changes by the console are not throttled."""
    view = call.view
    if view.instance is None or isinstance(call.address, Owners):
        return None
    accounting = call.services.accounting.accountings.get(view.instance.id)
    return None if accounting is None else accounting.shares
