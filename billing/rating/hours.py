"""Clock hours: which size is charged in which of them.

An hour in which an instance existed at all is charged once, at the dearest size it had in it. So the first hour begins
at its full hour and the last one ends at its own (start floored, end ceiled), and no change inside an hour is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from billing.rating.levels import hourly_cost
from billing.rating.terms import Period, PriceList, SizeSpan

HOUR = timedelta(hours=1)


class NoPrice(Exception):
    """There is no price list of this plan that is in force at this hour."""

    def __init__(self, plan: str, hour: datetime) -> None:
        super().__init__(f"plan {plan} has no price at {hour:%Y-%m-%d %H:%M} UTC")
        self.plan = plan
        self.hour = hour


class Segment(NamedTuple):
    """Full hours `[start, end)` that are charged alike, at the size of `span`. `has_run`: the instance ran in some of
    their time, though a dearer size may be one at which it was suspended.
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


def price_list_at(lists: Sequence[PriceList], plan: str, hour: datetime) -> PriceList:
    """The list in force when the hour begins.

    Raises:
        NoPrice: none has begun.
    """
    begun = [each for each in lists if each.plan == plan and each.effective_from <= hour]
    if not begun:
        raise NoPrice(plan, hour)
    return max(begun, key=lambda each: each.effective_from)


def segments(
    period: Period,
    spans: Sequence[SizeSpan],
    lists: Sequence[PriceList],
    *,
    running_first: bool = False,
    cut_at: Iterable[datetime] = (),
) -> Iterator[Segment]:
    """The charged hours of the period, oldest first. Hours without a size are left out. With `running_first` an hour of
    two sizes that cost the same is charged at the one that was not suspended. A segment ends at the full hours of
    `cut_at`, too.

    Raises:
        NoPrice: a plan that was had has no price at that time.
    """
    cuts = {period.start, period.end, *cut_at}
    cuts.update(floor_hour(span.start) for span in spans)
    cuts.update(ceil_hour(span.end) for span in spans if span.end is not None)
    cuts.update(ceil_hour(each.effective_from) for each in lists)
    inside = sorted(cut for cut in cuts if period.start <= cut <= period.end)
    for start, end in pairwise(inside):
        had = [span for span in spans if span.start < start + HOUR and (span.end is None or span.end > start)]
        if had:
            priced = [(span, price_list_at(lists, span.plan, start)) for span in had]
            span, prices = max(
                priced, key=lambda each: (hourly_cost(each[1], each[0]), running_first and not each[0].only_storage)
            )
            yield Segment(start, end, span, prices, any(not each.only_storage for each in had))
