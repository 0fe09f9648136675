"""Throttle time of all requests (QUO-21, QUO-22).

Each limit yields a delay with its reason. The longest delay is the request's: the response has it as
`throttle_time_ms`, its connection is muted for that time, and its reason is written to the throttle log. Produce and
Fetch charge their bytes where they are appended or encoded, and call `apply_longest` if one of their limits yields a
delay.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import replace
from enum import Enum, auto
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol

from brokers.engine.access.authorizer import OwnerAddress
from brokers.engine.access.principals import Principal
from brokers.engine.handlers import zookeeper_change
from brokers.engine.handlers.change_turns import WriteQueue
from brokers.engine.handlers.client import ClientContext
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.protocol.codec import EncodedResponse
from brokers.engine.throttling import charging
from brokers.engine.throttling.accounting import InstanceAccounting
from brokers.engine.throttling.charging import REQUEST_PERCENTAGE, Limiter
from brokers.engine.throttling.shares import InstanceShares
from brokers.engine.throttling.waits import Mute
from quotas.throttle import DELAY_MS_MAX

# A request waits before it is handled if its instance has more debt than this.
DEBT_MS_MAX: Final = 1_000
# Maximum number of waiting requests of one instance on this broker.
WAITING_MAX: Final = 8


class Reason(Enum):
    """Reason of a throttle delay."""

    # Bytes produced or consumed, by the limit of the client, of a topic, or of the instance's bandwidth.
    BYTES = auto()
    # Broker time taken by requests of the instance (decision 89).
    REQUEST_TIME = auto()
    # Bytes that coordinators wrote for the request, charged to the instance's bandwidth.
    STATE_WRITES = auto()
    # Changes in ZooKeeper by the instance.
    CHANGE_RATE = auto()
    # The client's own `request_percentage` or `controller_mutation_rate`.
    CLIENT_QUOTA = auto()


class Throttle(NamedTuple):
    """A delay required by one limit. `limiter` is set for `BYTES` and `CLIENT_QUOTA`."""

    delay_ms: int
    reason: Reason
    limiter: Limiter | None = None


_DELAY_MS: Final = attrgetter("delay_ms")
NO_THROTTLE: Final = Throttle(0, Reason.CLIENT_QUOTA)


class RequestSession(Protocol):
    """The session of a request, as this module uses it."""

    principal: Principal

    def client(self, client_id: str | None) -> ClientContext: ...


def apply_longest(
    services: BrokerServices, client: ClientContext, throttles: Sequence[Throttle]
) -> tuple[int, Mute | None]:
    """Takes the longest delay of a Produce or a Fetch, and records its reason. Returns it in ms, with the mute of the
    connection if that may end earlier, when the limit is paid.
    """
    longest = max(throttles, key=_DELAY_MS)
    delay_ms, reason, limiter = longest
    now_ms = services.clock.now_ms()
    if limiter is not None:
        client.record_throttle(limiter, delay_ms, now_ms)
    elif client.accounting is not None:
        _record_instance(services, client.accounting, longest, client.user, client.client_id)
    if limiter is None or reason is not Reason.BYTES:
        return delay_ms, None
    return delay_ms, Mute(limiter, delay_ms, services.loop_clock)


def charge_time(session: RequestSession, context: RequestContext, spent_s: float) -> int:
    """Charges broker time to the client and its instance. Returns the debt of the instance in ms."""
    accounting = _accounting(context)
    if accounting is None:
        return 0
    now_ms = context.services.clock.monotonic_ms()
    limiter = _time_limiter(session, context)
    if limiter is not None:
        charging.record_time(limiter, spent_s, now_ms)
    return accounting.request_time.charge(round(spent_s * 1e6), now_ms)


def throttle_time_ms(session: RequestSession, context: RequestContext, response: Any, spent_s: float) -> int:
    """Charges the last turn of a request. Returns the delay of its client after the response, in ms."""
    throttles = [Throttle(charge_time(session, context, spent_s), Reason.REQUEST_TIME)]
    if context.api.throttled_first:
        throttles.append(Throttle(state_delay_ms(context, response), Reason.STATE_WRITES))
    if context.has_changed:
        throttles.append(_change_rate_throttle(context))
    throttles.append(_client_quota_throttle(session, context))
    longest = max(throttles, key=_DELAY_MS)
    _record(session, context, longest)
    return longest.delay_ms


def _change_rate_throttle(context: RequestContext) -> Throttle:
    accounting = _accounting(context)
    if accounting is None:
        return NO_THROTTLE
    wait_ms = accounting.change_rate.wait_ms(context.services.clock.monotonic_ms())
    return Throttle(min(wait_ms, DELAY_MS_MAX), Reason.CHANGE_RATE)


def _client_quota_throttle(session: RequestSession, context: RequestContext) -> Throttle:
    limiter = _time_limiter(session, context)
    delay_ms = 0 if limiter is None else charging.time_delay_ms(limiter, context.services.clock.monotonic_ms())
    if context.mutation_limiter is not None:
        wait_ms = zookeeper_change.mutation_wait_ms(context)
        if wait_ms > delay_ms:
            delay_ms, limiter = wait_ms, context.mutation_limiter
    return Throttle(delay_ms, Reason.CLIENT_QUOTA, limiter)


def _record(session: RequestSession, context: RequestContext, longest: Throttle) -> None:
    """Records the reason of the longest delay, and the time that parts of the request waited for their turns."""
    delay_ms, reason, limiter = longest
    time_ms = context.paused_ms + (delay_ms if reason is Reason.REQUEST_TIME else 0)
    accounting, user, services = _accounting(context), session.principal.user, context.services
    if time_ms and accounting is not None:
        _record_instance(services, accounting, Throttle(time_ms, Reason.REQUEST_TIME), user, context.client_id)
    if not delay_ms:
        return
    if reason is Reason.STATE_WRITES:
        _record_state_writes(context, user, delay_ms)
    elif reason is Reason.CHANGE_RATE and accounting is not None:
        _record_instance(services, accounting, longest, user, context.client_id)
    elif limiter is not None:
        session.client(context.client_id).record_throttle(limiter, delay_ms, services.clock.now_ms())


def _record_instance(
    services: BrokerServices, accounting: InstanceAccounting, throttle: Throttle, user: str, client_id: str
) -> None:
    """Records a delay by the request time or the change rate of an instance."""
    services.accounting.totals.delays += 1
    is_time = throttle.reason is Reason.REQUEST_TIME
    record = accounting.record_request_time if is_time else accounting.record_change_rate
    record(throttle.delay_ms, user, client_id, services.clock.now_ms())


def _accounting(context: RequestContext) -> InstanceAccounting | None:
    """Returns the accounting to charge. Requests of the control plane for an instance are not throttled."""
    view = context.view
    return (
        None
        if view.instance is None or view.internal
        else context.services.accounting.accountings.get_or_create(view.instance.id)
    )


def _time_limiter(session: RequestSession, context: RequestContext) -> Limiter | None:
    """Returns the limiter of the time that requests of the client take, None without a limit."""
    view = context.view
    if view.instance is None or view.internal:
        return None
    if not view.client_limits and context.services.accounting.accountings.callback is None:
        return None
    quotas = context.services.accounting.accountings.get_or_create(view.instance.id).client_quotas
    if not quotas.is_set(view.client_limits, REQUEST_PERCENTAGE):
        return None
    return session.client(context.client_id).request_limiter


# -- writes of coordinators -------------------------------------------------------------------------------------------
#
# Records that are appended to the state topics for an instance are charged to its bandwidth like produced ones
# (`throttling.shares`), and a client in debt is delayed as after a produce. An instance with many connections could
# write with each of them before it is delayed: above `DEBT_MS_MAX` of debt its next requests are handled one after the
# other, each when the debt is lower. Few may wait, since each holds its request in memory; the others are answered with
# COORDINATOR_NOT_AVAILABLE, and retry.


def is_in_debt(context: RequestContext) -> bool:
    """True if the request has to wait until its instance has paid for earlier writes."""
    shares = _shares(context)
    return shares is not None and shares.state_debt_ms(context.services.clock.monotonic_ms()) > DEBT_MS_MAX


def _queue(context: RequestContext) -> WriteQueue:
    queues, instance_id = context.services.coordination.state_write_queues, context.view.instance_id
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
async def wait_until_paid(context: RequestContext) -> AsyncIterator[RequestContext]:
    """Waits until the debt of the instance is low enough. The next request waits while this one is handled.

    Yields the context with which to handle the request. If too many requests wait already, it has no coordinators, so
    that the response is COORDINATOR_NOT_AVAILABLE.
    """
    shares = _shares(context)
    if shares is None or shares.state_debt_ms(context.services.clock.monotonic_ms()) <= DEBT_MS_MAX:
        yield context
        return
    queue = _queue(context)
    if queue.waiting >= WAITING_MAX:
        yield replace(context, services=_without_coordinators(context.services))
        return
    queue.waiting += 1
    try:
        async with queue.lock:
            while True:
                debt_ms = shares.state_debt_ms(context.services.clock.monotonic_ms())
                if debt_ms <= DEBT_MS_MAX:
                    break
                await asyncio.sleep((debt_ms - DEBT_MS_MAX) / 1000)
            yield context
    finally:
        queue.waiting -= 1


def state_delay_ms(context: RequestContext, response: Any) -> int:
    """Returns the delay of the client in ms for writes of coordinators: the debt of its instance on this broker, or on
    the broker to which the request was forwarded if that is greater.
    """
    shares = _shares(context)
    debt_ms = 0 if shares is None else shares.state_debt_ms(context.services.clock.monotonic_ms())
    if isinstance(response, EncodedResponse):
        return max(debt_ms, response.throttled_ms)
    return max(debt_ms, getattr(response, "throttle_time_ms", 0))


def _record_state_writes(context: RequestContext, user: str, delay_ms: int) -> None:
    """Records why the client is throttled."""
    services, instance_id = context.services, context.view.instance_id
    accounting = None if instance_id is None else services.accounting.accountings.get(instance_id)
    if accounting is None or accounting.shares.state is None:
        return
    now_ms, limiter = services.clock.now_ms(), accounting.shares.state
    bandwidth_limiter = accounting.shares.produce or limiter
    services.accounting.totals.delays += 1
    accounting.traffic.record_delay(delay_ms, now_ms)
    accounting.ledger.record(
        limiter.rule,
        limiter.limit_per_s,
        user,
        context.client_id,
        delay_ms,
        now_ms,
        bandwidth_limiter.whole_limit_per_s,
    )


def _shares(context: RequestContext) -> InstanceShares | None:
    """Returns the shares to charge, None without any. Changes by the console are not throttled."""
    view = context.view
    if view.instance is None or isinstance(context.address, OwnerAddress):
        return None
    accounting = context.services.accounting.accountings.get(view.instance.id)
    return None if accounting is None else accounting.shares
