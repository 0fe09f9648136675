"""Distribution of the amounts of a bill over the hours of its period. Pure.

Amounts of booked meters are distributed by size and time, of measured meters by the units of each hour, and of units
missing from a commitment by the hours on the plan. A discount is distributed like the lines that it reduces, a minimum
evenly over the period. The amounts of adjacent time spans sum exactly to the amount of their union.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import accumulate

from billing.rating.accounts import TIER_UNIT
from billing.rating.booked import BOOKED, booked_per_hour
from billing.rating.engine import CHARGED_WHILE_SUSPENDED, ZERO, measured_units
from billing.rating.hours import HOUR, Segment, segments
from billing.rating.terms import Bill, Component, HourUsage, InstanceUsage, Meter, Period, PriceList, RatedLine
from tenants.currencies import rounded

# (start, end, weight of each hour)
Run = tuple[datetime, datetime, Decimal]
# (instance id, plan, meter, tax rate in percent)
Key = tuple[str, str, str, Decimal]


class Spread:
    """Distribution over time by weights: one weight per hour in each run of hours, plus weights of single hours."""

    def __init__(self, runs: Iterable[Run], hours: Sequence[tuple[datetime, Decimal]] = ()) -> None:
        self._runs = [(start, end, (end - start) // HOUR * weight) for start, end, weight in runs if start < end]
        self._hours = [hour for hour, _ in hours]
        self._sums = list(accumulate((weight for _, weight in hours), initial=ZERO))
        self.total = sum((weight for *_, weight in self._runs), self._sums[-1])

    def before(self, instant: datetime) -> Decimal:
        """Returns the fraction (0 to 1) of the total weight that belongs to the time before `instant`, a full hour."""
        weight = self._sums[bisect_left(self._hours, instant)]
        for start, end, run_weight in self._runs:
            if instant >= end:
                weight += run_weight
            elif instant > start:
                weight += run_weight * ((instant - start) // HOUR) / ((end - start) // HOUR)
        return weight / self.total


class SpreadBill:
    """Bill of a billing period with its amounts distributed over the hours of the period."""

    def __init__(self, bill: Bill, usage: Sequence[InstanceUsage], prices: Sequence[PriceList]) -> None:
        price_lists = [price_list for price_list in prices if price_list.currency == bill.currency]
        charged = _charged_quantities(bill.lines)
        instances = {
            instance_usage.instance_id: _InstanceWeights(bill.period, instance_usage, price_lists, charged)
            for instance_usage in usage
        }
        self._bill = bill
        self._instances = instances
        self._evenly = Spread([(bill.period.start, bill.period.end, Decimal(1))])
        self._spreads = {
            number: instances[line.instance_id].spread(line) or self._evenly
            for number, line in enumerate(bill.lines)
            if line.kind == "usage"
        }
        self._amounts_before: dict[datetime, list[Decimal]] = {}

    def between(self, start: datetime, end: datetime) -> list[Decimal]:
        """Returns the amount of each line, in the order of the lines, that belongs to `[start, end)`."""
        return [after - before for before, after in zip(self._before(start), self._before(end), strict=True)]

    def hours(self, instance_id: str, start: datetime, end: datetime) -> int:
        """Returns the charged hours of an instance in `[start, end)`."""
        instance = self._instances.get(instance_id)
        return instance.hours(start, end) if instance is not None else 0

    def _before(self, instant: datetime) -> list[Decimal]:
        """Returns the amount of each line for the hours before `instant`.

        Parts sum to the whole, because each part is the difference of two such amounts.
        """
        period = self._bill.period
        instant = min(max(instant, period.start), period.end)
        if instant not in self._amounts_before:
            shares = {number: self._share(spread, instant) for number, spread in self._spreads.items()}
            usage_shares = self._share_of_usage(shares, instant)
            self._amounts_before[instant] = [
                rounded(line.amount * shares.get(number, usage_shares[line.kind == "discount"]), self._bill.currency)
                for number, line in enumerate(self._bill.lines)
            ]
        return self._amounts_before[instant]

    def _share(self, spread: Spread, instant: datetime) -> Decimal:
        period = self._bill.period
        if instant in (period.start, period.end):
            return Decimal(instant == period.end)
        return spread.before(instant)

    def _share_of_usage(self, shares: Mapping[int, Decimal], instant: datetime) -> tuple[Decimal, Decimal]:
        """Returns the shares of the bill before `instant`: by time, and by the charges of usage."""
        by_time = self._share(self._evenly, instant)
        amounts = {number: self._bill.lines[number].amount for number in shares}
        total = sum(amounts.values(), ZERO)
        if not total or instant == self._bill.period.end:
            return by_time, by_time
        return by_time, sum((amounts[number] * share for number, share in shares.items()), ZERO) / total


class _InstanceWeights:
    """Weights of one instance's lines."""

    def __init__(
        self, period: Period, usage: InstanceUsage, price_lists: Sequence[PriceList], charged: Mapping[Key, Decimal]
    ) -> None:
        self._usage = usage
        self._charged = charged
        self._period = period
        self._segments = list(segments(period, usage.spans, price_lists, running_first=True))
        self._starts = [segment.start for segment in self._segments]

    def hours(self, start: datetime, end: datetime) -> int:
        parts = ((max(start, segment.start), min(end, segment.end)) for segment in self._segments)
        return sum((last - first) // HOUR for first, last in parts if first < last)

    def spread(self, line: RatedLine) -> Spread | None:
        """Returns the distribution of a line; None if nothing determines its hours."""
        runs = [
            (max(segment.start, line.start), min(segment.end, line.end), _per_hour(component, segment))
            for segment in self._segments
            if segment.span.plan == line.plan
            for component in segment.prices.components
            if component.meter == line.meter
        ]
        if line.meter in BOOKED or line.meter == Meter.BANDWIDTH_P95 or line.unit == TIER_UNIT:
            spread = Spread(runs)
            return spread if spread.total > 0 else None
        used = list(self._used(line))
        hours = Spread(runs).total
        missing = max(ZERO, self._charged[_key(line)] - sum((units for _, units in used), ZERO))
        per_hour = missing / hours if hours else ZERO
        spread = Spread([(start, end, weight * per_hour) for start, end, weight in runs], used)
        return spread if spread.total > 0 else None

    def _used(self, line: RatedLine) -> Iterable[tuple[datetime, Decimal]]:
        for hour in self._usage.hours:
            if line.start <= hour.hour < line.end and self._period.start <= hour.hour < self._period.end:
                segment = self._segments[max(0, bisect_right(self._starts, hour.hour) - 1)]
                if segment.span.plan == line.plan:
                    yield from _units(segment, line.meter, hour)


def _units(segment: Segment, meter: str, hour: HourUsage) -> Iterable[tuple[datetime, Decimal]]:
    for component in segment.prices.components:
        if component.meter == meter:
            yield hour.hour, measured_units(component, hour)


def _per_hour(component: Component, segment: Segment) -> Decimal:
    if component.meter in BOOKED:
        return booked_per_hour(component, segment.span)
    return Decimal(not segment.span.only_storage or component.meter in CHARGED_WHILE_SUSPENDED)


def _key(line: RatedLine) -> Key:
    return line.instance_id, line.plan, line.meter, line.tax_percent


def _charged_quantities(lines: Iterable[RatedLine]) -> dict[Key, Decimal]:
    """Returns the charged units by instance, plan, meter and tax rate."""
    result: dict[Key, Decimal] = defaultdict(Decimal)
    for line in lines:
        if line.kind == "usage" and line.unit != TIER_UNIT:
            result[_key(line)] += line.quantity
    return result
