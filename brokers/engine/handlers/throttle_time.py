"""Throttle time of all requests but Produce and Fetch, which compute theirs where they are charged (QUO-21, QUO-22).

Each limit yields a delay with its reason. The longest delay is the request's: the response has it as
`throttle_time_ms`, its connection is muted for that time, and its reason is written to the throttle log.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final, NamedTuple, Protocol

from brokers.engine.access.principals import Principal
from brokers.engine.handlers import mutation_quota, state_writes
from brokers.engine.handlers.client import Client
from brokers.engine.handlers.context import Call
from brokers.engine.throttling import charging
from brokers.engine.throttling.accounting import InstanceAccounting
from brokers.engine.throttling.charging import REQUEST_PERCENTAGE, Limiter
from quotas.throttle import DELAY_MS_MAX


class Reason(Enum):
    # Broker time taken by requests of the instance (decision 89).
    REQUEST_TIME = auto()
    # Bytes that coordinators wrote for the request, charged to the instance's bandwidth.
    STATE_WRITES = auto()
    # Changes in ZooKeeper by the instance.
    CHANGE_RATE = auto()
    # The client's own `request_percentage` or `controller_mutation_rate`.
    CLIENT_QUOTA = auto()


class Throttle(NamedTuple):
    """A delay required by one limit. `limiter` is the client's, for `CLIENT_QUOTA`."""

    delay_ms: int
    reason: Reason
    limiter: Limiter | None = None


NO_THROTTLE: Final = Throttle(0, Reason.CLIENT_QUOTA)


class Sender(Protocol):
    """The session of a request, as this module uses it."""

    principal: Principal

    def client(self, client_id: str | None) -> Client: ...


def charge_time(sender: Sender, call: Call, spent_s: float) -> int:
    """Charges broker time to the client and its instance. Returns the debt of the instance in ms."""
    accounting = _accounting(call)
    if accounting is None:
        return 0
    now_ms = call.services.clock.monotonic_ms()
    limiter = _time_limiter(sender, call)
    if limiter is not None:
        charging.record_time(limiter, spent_s, now_ms)
    return accounting.request_time.charge(round(spent_s * 1e6), now_ms)


def throttle_time_ms(sender: Sender, call: Call, response: Any, spent_s: float) -> int:
    """Charges the last turn of a request. Returns the delay of its client after the response, in ms."""
    throttles = [Throttle(charge_time(sender, call, spent_s), Reason.REQUEST_TIME)]
    if call.api.throttled_first:
        throttles.append(Throttle(state_writes.delay_ms(call, response), Reason.STATE_WRITES))
    if call.has_changed:
        throttles.append(_by_change_rate(call))
    throttles.append(_by_client_quotas(sender, call))
    longest = max(throttles, key=_delay_ms)
    _record(sender, call, longest)
    return longest.delay_ms


def _delay_ms(throttle: Throttle) -> int:
    return throttle.delay_ms


def _by_change_rate(call: Call) -> Throttle:
    accounting = _accounting(call)
    if accounting is None:
        return NO_THROTTLE
    wait_ms = accounting.change_rate.wait_ms(call.services.clock.monotonic_ms())
    return Throttle(min(wait_ms, DELAY_MS_MAX), Reason.CHANGE_RATE)


def _by_client_quotas(sender: Sender, call: Call) -> Throttle:
    limiter = _time_limiter(sender, call)
    delay_ms = 0 if limiter is None else charging.time_delay_ms(limiter, call.services.clock.monotonic_ms())
    if call.mutation_limiter is not None:
        wait_ms = mutation_quota.wait_ms(call)
        if wait_ms > delay_ms:
            delay_ms, limiter = wait_ms, call.mutation_limiter
    return Throttle(delay_ms, Reason.CLIENT_QUOTA, limiter)


def _record(sender: Sender, call: Call, longest: Throttle) -> None:
    """Records the reason of the longest delay, and the time that parts of the request waited for their turns."""
    delay_ms, reason, limiter = longest
    time_ms = call.paused_ms + (delay_ms if reason is Reason.REQUEST_TIME else 0)
    accounting, user, now_ms = _accounting(call), sender.principal.user, call.services.clock.now_ms()
    if time_ms and accounting is not None:
        call.services.accounting.totals.delays += 1
        accounting.remember_request_time(time_ms, user, call.client_id, now_ms)
    if not delay_ms:
        return
    if reason is Reason.STATE_WRITES:
        state_writes.remember(call, user, delay_ms)
    elif reason is Reason.CHANGE_RATE and accounting is not None:
        call.services.accounting.totals.delays += 1
        accounting.remember_change_rate(delay_ms, user, call.client_id, now_ms)
    elif limiter is not None:
        sender.client(call.client_id).remember_delay(limiter, delay_ms, now_ms)


def _accounting(call: Call) -> InstanceAccounting | None:
    """Returns the accounting to charge. Requests of the control plane for an instance are not throttled."""
    view = call.view
    return None if view.instance is None or view.internal else call.services.accounting.accountings.of(view.instance.id)


def _time_limiter(sender: Sender, call: Call) -> Limiter | None:
    """Returns the limiter of the time that requests of the client take, None without a limit."""
    view = call.view
    if view.instance is None or view.internal:
        return None
    if not view.client_limits and call.services.accounting.accountings.callback is None:
        return None
    quotas = call.services.accounting.accountings.of(view.instance.id).client_quotas
    if not quotas.is_set(view.client_limits, REQUEST_PERCENTAGE):
        return None
    return sender.client(call.client_id).request_limiter
