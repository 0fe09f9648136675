"""Traffic and throttling of all instances on this broker since a given time, for the control plane, which stores it.

The control plane sends one request every few seconds for all instances. A page has instances that were active in the
period, and the id of the last one if there are more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from brokers.engine.handlers.services import BrokerServices
from brokers.engine.telemetry.metrics import Sample
from brokers.engine.throttling.accounting import AccountingRegistry
from brokers.engine.throttling.traffic import STEP_MS

# Maximum number of points and causes on one page, which takes one turn of the event loop, a few milliseconds.
POINTS_PER_PAGE_MAX: Final = 2_000
# Weight of a cause in points.
CAUSE_WEIGHT: Final = 8


def traffic_page(
    services: BrokerServices, started_at_ms: int, *, since_ms: int, until_ms: int, after: str
) -> dict[str, Any]:
    """Returns the instances with ids after `after`: their seconds in `[since_ms, until_ms)`, and the whole minutes in
    which a client was throttled in that period. One instance is never split over two pages.
    """
    now_ms = services.clock.now_ms()
    instances: dict[str, dict[str, Any]] = {}
    weight, following = 0, None
    for instance_id, accounting in sorted(services.accounting.accountings):
        if instance_id <= after:
            continue
        points = accounting.traffic.points(since_ms, now_ms, until_ms)
        minutes = accounting.ledger.minutes.list_minutes(since_ms, until_ms)
        if not points and not minutes:
            continue
        instances[instance_id] = {"points": points, "throttled": minutes}
        weight += len(points) + CAUSE_WEIGHT * sum(len(minute["causes"]) for minute in minutes)
        if weight >= POINTS_PER_PAGE_MAX:
            following = instance_id
            break
    return {
        "now_ms": now_ms,
        "step_ms": STEP_MS,
        "alive_since_ms": started_at_ms,
        "instances": instances,
        "next": following,
    }


def throttle_samples(accountings: AccountingRegistry) -> Iterator[Sample]:
    """Yields, for each kind of limit, the number of requests that it delayed or refused here, and their total delay."""
    totals = sorted(accountings.throttled_totals.items())
    text = "Requests that a limit delayed, and parts of requests that one refused, by the kind of limit."
    for kind, total in totals:
        yield Sample("penstock_broker_throttled_requests", "counter", text, total.count, (("cause", kind),))
    text = "Time for which requests were delayed, by the kind of limit."
    for kind, total in totals:
        yield Sample("penstock_broker_throttle_seconds", "counter", text, total.waited_ms / 1000, (("cause", kind),))
