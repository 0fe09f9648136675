"""Version 1 of the rating rules, for invoices whose snapshot states this version.

It must not change: recomputing such an invoice gives the amounts it was issued with, and late usage is charged by the
same rules as the rest of the invoice. Monthly terms (included amount, tiers, commitment) belong to a price list here,
and the percentile to the whole period (docs/decisions/0135).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal

from billing.rating.booked import BOOKED, booked_per_hour
from billing.rating.hours import HOUR, Segment, segments
from billing.rating.percentile import percentile_95
from billing.rating.terms import (
    Agreement,
    Bill,
    Component,
    HourUsage,
    InstanceUsage,
    Meter,
    Period,
    PriceList,
    RatedLine,
)
from billing.rating.tiers import Charge, charges

ZERO = Decimal(0)
CENT = Decimal("0.01")
BYTES_PER_GB = Decimal(10**9)
HUNDRED = Decimal(100)

UNITS = {
    Meter.INSTANCE: "h",
    Meter.BANDWIDTH: "MB/s·h",
    Meter.STORAGE: "GB·h",
    Meter.PARTITIONS: "partition·h",
    Meter.STORED: "GB·h",
    Meter.CONNECTIONS: "connection·h",
    Meter.BYTES_IN: "GB",
    Meter.BYTES_OUT: "GB",
    Meter.BANDWIDTH_P95: "MB/s",
}
# Meters measured per hour, and charged only in hours in which the instance existed.
GAUGES = (Meter.STORED, Meter.PARTITIONS, Meter.CONNECTIONS)
# Meters whose included amount belongs to the billing period; that of the others belongs to each hour.
PERIOD_METERS = (Meter.BYTES_IN, Meter.BYTES_OUT, Meter.BANDWIDTH_P95)


def rounded(amount: Decimal) -> Decimal:
    return amount.quantize(CENT, ROUND_HALF_UP)


def rate(period: Period, usage: Sequence[InstanceUsage], prices: Sequence[PriceList], agreement: Agreement) -> Bill:
    """Returns the bill of a period. Only `prices` in the currency of the agreement are used.

    Raises:
        NoPrice: a plan that an instance had has no price at that time.
    """
    price_lists = [price_list for price_list in prices if price_list.currency == agreement.currency]
    lines = [line for instance in usage for line in _lines_of(period, instance, price_lists)]
    lines += _discounts(period, agreement, sum((line.amount for line in lines), ZERO))
    subtotal = sum((line.amount for line in lines), ZERO)
    if subtotal < agreement.minimum:
        missing = rounded(agreement.minimum - subtotal)
        lines.append(_bill_line(period, "minimum", missing))
        subtotal += missing
    tax = rounded(subtotal * agreement.tax_percent / HUNDRED)
    return Bill(
        currency=agreement.currency, period=period, lines=lines, subtotal=subtotal, tax=tax, total=subtotal + tax
    )


@dataclass(slots=True)
class _Sum:
    """Quantity of one component of a price list, and its hours."""

    segment: Segment
    component: Component
    start: datetime
    end: datetime
    quantity: Decimal = ZERO


@dataclass(slots=True)
class _Sums:
    """Sums by plan, meter and price list, in order of insertion."""

    by_key: dict[tuple[str, Meter, datetime], _Sum] = field(default_factory=dict)

    def add(self, segment: Segment, component: Component, start: datetime, end: datetime, quantity: Decimal) -> None:
        key = segment.span.plan, component.meter, segment.prices.effective_from
        present = self.by_key.get(key)
        if present is None:
            self.by_key[key] = _Sum(segment, component, start, end, quantity)
        else:
            present.quantity += quantity
            present.end = max(present.end, end)


def _lines_of(period: Period, usage: InstanceUsage, price_lists: Sequence[PriceList]) -> Iterator[RatedLine]:
    charged = list(segments(period, usage.spans, price_lists))
    if not charged:
        return
    sums = _Sums()
    for segment in charged:
        for component in segment.prices.components:
            if component.meter in BOOKED:
                quantity = booked_per_hour(component, segment.span) * segment.hours
                sums.add(segment, component, segment.start, segment.end, quantity)
    starts = [segment.start for segment in charged]
    for hour in usage.hours:
        if not period.start <= hour.hour < period.end:
            continue
        # Usage after the last hour or before the first belongs to the nearest size.
        segment = charged[max(0, bisect_right(starts, hour.hour) - 1)]
        is_inside = segment.start <= hour.hour < segment.end
        for component in segment.prices.components:
            if segment.span.only_storage and component.meter is not Meter.STORED:
                continue
            if not is_inside and component.meter in GAUGES:
                continue  # gauges that brokers still report for a deleted instance
            if component.meter not in BOOKED and component.meter is not Meter.BANDWIDTH_P95:
                sums.add(segment, component, hour.hour, hour.hour + HOUR, _measured(component, hour))
    _add_percentiles(period, usage, charged, sums)
    yield from _priced(usage.instance_id, sums)


def _measured(component: Component, hour: HourUsage) -> Decimal:
    """Returns the units of one hour above the hourly included amount."""
    match component.meter:
        case Meter.BYTES_IN:
            return hour.bytes_in / BYTES_PER_GB
        case Meter.BYTES_OUT:
            return hour.bytes_out / BYTES_PER_GB
        case Meter.STORED:
            level = hour.stored_byte_hours / BYTES_PER_GB
        case Meter.PARTITIONS:
            level = hour.partition_hours
        case _:
            level = Decimal(hour.connections_peak)
    return max(ZERO, level - component.included)


def _add_percentiles(period: Period, usage: InstanceUsage, charged: Sequence[Segment], sums: _Sums) -> None:
    """Adds the percentile of the whole period, at the price list of the last hour that has such a component."""
    candidates = [
        (segment, component)
        for segment in charged
        for component in segment.prices.components
        if component.meter is Meter.BANDWIDTH_P95
    ]
    if not candidates:
        return
    segment, component = candidates[-1]
    result = percentile_95(period, usage.spans, usage.rate_points)
    mb_s = max(ZERO, result.mb_s - component.included)
    scaled = Component(
        meter=component.meter,
        scheme=component.scheme,
        tiers=component.tiers,
        commit=component.commit * result.share,
        overage_price=component.overage_price,
    )
    sums.add(segment, scaled, charged[0].start, charged[-1].end, mb_s * result.share)


def _priced(instance_id: str, sums: _Sums) -> Iterator[RatedLine]:
    before: dict[tuple[str, Meter], Decimal] = {}
    used: dict[tuple[str, Meter], Decimal] = {}
    for (plan, meter, _), total in sums.by_key.items():
        quantity = total.quantity
        if meter in PERIOD_METERS and meter is not Meter.BANDWIDTH_P95:
            free = max(ZERO, total.component.included - used.get((plan, meter), ZERO))
            used[plan, meter] = used.get((plan, meter), ZERO) + quantity
            quantity = max(ZERO, quantity - free)
        for charge in _committed(total.component, quantity, before.get((plan, meter), ZERO)):
            yield from _line(instance_id, total, charge)
        before[plan, meter] = before.get((plan, meter), ZERO) + quantity


def _committed(component: Component, quantity: Decimal, before: Decimal) -> Iterator[Charge]:
    """Yields at least the commitment; units beyond it have the price of overage, if there is one."""
    if component.overage_price is not None and quantity > component.commit:
        yield from charges(component, component.commit, before=before)
        yield Charge(quantity - component.commit, component.overage_price, ZERO)
    else:
        yield from charges(component, max(quantity, component.commit), before=before)


def _line(instance_id: str, total: _Sum, charge: Charge) -> Iterator[RatedLine]:
    meter, plan = total.component.meter, total.segment.span.plan
    amount = rounded(charge.quantity * charge.unit_price)

    def line(quantity: Decimal, unit: str, unit_price: Decimal, amount: Decimal) -> RatedLine:
        return RatedLine(
            kind="usage", instance_id=instance_id, plan=plan, meter=meter, start=total.start, end=total.end,
            quantity=quantity, unit=unit, unit_price=unit_price, amount=amount,
        )  # fmt: skip

    if amount or charge.unit_price:
        yield line(charge.quantity, UNITS[meter], charge.unit_price, amount)
    if charge.flat:
        yield line(Decimal(1), "tier", charge.flat, rounded(charge.flat))


def _discounts(period: Period, agreement: Agreement, subtotal: Decimal) -> Iterator[RatedLine]:
    """Yields the discounts in order, limited to the remaining amount."""
    remaining = subtotal
    for discount in agreement.discounts:
        begins_late = discount.start is not None and period.start < discount.start
        is_over = discount.end is not None and period.start >= discount.end
        reduction = min(remaining, rounded(remaining * discount.percent / HUNDRED) + discount.amount)
        if begins_late or is_over or reduction <= 0:
            continue
        remaining -= reduction
        yield _bill_line(period, "discount", -rounded(reduction), discount.code)


def _bill_line(period: Period, kind: str, amount: Decimal, code: str = "") -> RatedLine:
    """Returns a line of the whole bill, with the code of a discount as its `meter`."""
    return RatedLine(
        kind=kind, instance_id="", plan="", meter=code, start=period.start, end=period.end,
        quantity=Decimal(1), unit="", unit_price=amount, amount=amount,
    )  # fmt: skip
