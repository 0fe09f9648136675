"""Charged clock hours and the size that is charged in each.

An hour in which an instance existed is charged once, at its most expensive size in that hour. Therefore the start is
rounded down and the end up to full hours, and no change within an hour is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from billing.rating.booked import hourly_cost
from billing.rating.terms import Period, PriceList, SizeSpan

HOUR = timedelta(hours=1)


class NoPrice(Exception):
    """No price list of this plan is in force at this hour."""

    def __init__(self, plan: str, hour: datetime) -> None:
        super().__init__(f"plan {plan} has no price at {hour:%Y-%m-%d %H:%M} UTC")
        self.plan = plan
        self.hour = hour


class Segment(NamedTuple):
    """Full hours `[start, end)` that are charged alike, at the size of `span`.

    `has_run` is true if the instance ran in some of the time, even if the more expensive size is a suspended one.
    """

    start: datetime
    end: datetime
    span: SizeSpan
    prices: PriceList
    has_run: bool

    @property
    def hours(self) -> int:
        return (self.end - self.start) // HOUR


def floor_hour(instant: datetime) -> datetime:
    return instant.replace(minute=0, second=0, microsecond=0)


def ceil_hour(instant: datetime) -> datetime:
    floored = floor_hour(instant)
    return floored if floored == instant else floored + HOUR


def price_list_at(price_lists: Sequence[PriceList], plan: str, hour: datetime) -> PriceList:
    """Returns the price list in force at the start of the hour.

    Raises:
        NoPrice: no list of the plan is in force yet.
    """
    in_force = [
        price_list for price_list in price_lists if price_list.plan == plan and price_list.effective_from <= hour
    ]
    if not in_force:
        raise NoPrice(plan, hour)
    return max(in_force, key=lambda price_list: price_list.effective_from)


def segments(
    period: Period,
    spans: Sequence[SizeSpan],
    price_lists: Sequence[PriceList],
    *,
    running_first: bool = False,
    cut_at: Iterable[datetime] = (),
) -> Iterator[Segment]:
    """Yields the charged hours of the period, oldest first, without hours in which the instance had no size.

    With `running_first`, of two sizes with equal cost in an hour the one that was not suspended is charged. A segment
    also ends at the full hours of `cut_at`.

    Raises:
        NoPrice: a plan that the instance had has no price at that time.
    """
    cuts = {period.start, period.end, *cut_at}
    cuts.update(floor_hour(span.start) for span in spans)
    cuts.update(ceil_hour(span.end) for span in spans if span.end is not None)
    in_force = (price_list.effective_from for price_list in price_lists if price_list.effective_from < period.end)
    cuts.update(ceil_hour(effective_from) for effective_from in in_force)
    inside = sorted(cut for cut in cuts if period.start <= cut <= period.end)
    for start, end in pairwise(inside):
        overlapping = [span for span in spans if span.start < start + HOUR and (span.end is None or span.end > start)]
        if overlapping:
            priced = [(span, price_list_at(price_lists, span.plan, start)) for span in overlapping]
            span, prices = max(
                priced, key=lambda pair: (hourly_cost(pair[1], pair[0]), running_first and not pair[0].only_storage)
            )
            yield Segment(
                start, end, span, prices, any(not overlapping_span.only_storage for overlapping_span in overlapping)
            )
