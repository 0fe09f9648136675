"""Rating: computes a bill from usage at the prices in force. Pure and exact.

An amount is the quantity times the unit price of its line, as both are printed, rounded once to the minor unit of the
currency; the subtotal is the sum of the lines. Monthly terms belong to a plan and a billing period
(`billing.rating.accounts`). `billing.rating.version_1` has the rules of older invoices.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final

from billing.rating.accounts import TIER_UNIT, VOLUMES, Account, Piece
from billing.rating.allocation import allocate
from billing.rating.booked import BOOKED, booked_per_hour
from billing.rating.hours import HOUR, Segment, segments
from billing.rating.percentile import POINTS_PER_HOUR, billed_rate
from billing.rating.taxes import hours_by_rate, tax_change_hours, tax_sums
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
    RatePoint,
)
from tenants.currencies import minor_unit, rounded

ZERO: Final = Decimal(0)
BYTES_PER_GB: Final = Decimal(10**9)
HUNDRED: Final = Decimal(100)

UNITS: Final = {
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
GAUGES: Final = (Meter.STORED, Meter.PARTITIONS, Meter.CONNECTIONS)
# Meters charged while an instance is suspended.
CHARGED_WHILE_SUSPENDED: Final = (Meter.STORED, Meter.STORAGE)
Accounts = dict[tuple[str, Meter], Account]


def rate(
    period: Period,
    usage: Sequence[InstanceUsage],
    prices: Sequence[PriceList],
    agreement: Agreement,
    *,
    until: datetime | None = None,
) -> Bill:
    """Returns the bill of a billing period. Only `prices` in the currency of the agreement are used.

    With `until` it is the bill of the hours before it, in a running period: included amounts are those of the whole
    period, assuming that it continues unchanged; commitments, percentiles and fees are due for the past hours.

    Raises:
        NoPrice: a plan that an instance had has no price at that time.
    """
    end = period.end if until is None else min(until, period.end)
    currency = agreement.currency
    price_lists = [prices_of_plan for prices_of_plan in prices if prices_of_plan.currency == currency]
    rating = _Rating(period, end, agreement)
    lines = [line for instance in usage for line in rating.lines_of(instance, price_lists)]
    charged = Period(start=period.start, end=end)
    lines += _discounts(charged, agreement, lines)
    subtotal = sum((line.amount for line in lines), ZERO)
    if subtotal < agreement.minimum:
        missing = rounded(agreement.minimum - subtotal, currency)
        lines += _lines_by_tax_rate(charged, "minimum", missing, hours_by_rate(agreement, charged), currency)
        subtotal += missing
    taxes = tax_sums(lines, currency)
    tax = sum((tax_sum.tax for tax_sum in taxes), rounded(ZERO, currency))
    return Bill(
        currency=currency, period=charged, lines=lines, subtotal=subtotal, tax=tax, total=subtotal + tax, taxes=taxes
    )


class _Rating:
    """Rating of the hours before `end` of a billing period."""

    def __init__(self, period: Period, end: datetime, agreement: Agreement) -> None:
        self._period = period
        self._end = end
        self._agreement = agreement
        self._cuts = tax_change_hours(agreement, period)
        self._hours = (period.end - period.start) // HOUR

    def lines_of(self, usage: InstanceUsage, price_lists: Sequence[PriceList]) -> Iterator[RatedLine]:
        """Yields the lines of one instance. Raises `NoPrice`."""
        charged = list(segments(self._period, usage.spans, price_lists, running_first=True, cut_at=self._cuts))
        if not charged:
            return
        accounts: Accounts = {}
        # In the order of lines: booked, measured, percentiles.
        self._add_hours(accounts, charged, [meter for meter in Meter if meter in BOOKED])
        measured = [meter for meter in Meter if meter not in BOOKED and meter is not Meter.BANDWIDTH_P95]
        pieces = self._add_hours(accounts, charged, measured)
        self._add_measured(usage, charged, pieces, accounts)
        self._add_hours(accounts, charged, [Meter.BANDWIDTH_P95])
        for (plan, meter), account in accounts.items():
            mb_s = self._percentile(usage, charged, plan) if meter is Meter.BANDWIDTH_P95 else ZERO
            yield from self._lines(usage.instance_id, plan, account, mb_s)

    def _add_hours(
        self, accounts: Accounts, charged: Sequence[Segment], meters: Sequence[Meter]
    ) -> dict[tuple[int, Meter], Piece]:
        """Adds the hours of these meters to their accounts. Returns the piece of each segment and meter."""
        pieces: dict[tuple[int, Meter], Piece] = {}
        for number, segment in enumerate(charged):
            end = min(segment.end, self._end)
            hours = max(0, (end - segment.start) // HOUR)
            tax_percent = self._agreement.tax_percent_at(segment.start)
            for component in segment.prices.components:
                meter = component.meter
                if meter not in meters or not _is_charged(segment, meter):
                    continue
                account = accounts.setdefault((segment.span.plan, meter), Account(meter))
                piece = pieces[number, meter] = account.piece(component, segment.start, end, tax_percent)
                piece.hours += hours
                piece.entitled_hours += segment.hours
                piece.end = max(piece.end, end)
                if meter in BOOKED:
                    piece.quantity += booked_per_hour(component, segment.span) * hours
        return pieces

    def _add_measured(
        self,
        usage: InstanceUsage,
        charged: Sequence[Segment],
        pieces: dict[tuple[int, Meter], Piece],
        accounts: Accounts,
    ) -> None:
        starts = [segment.start for segment in charged]
        for hour in usage.hours:
            if not self._period.start <= hour.hour < self._end:
                continue
            # Usage after the last hour or before the first belongs to the nearest size.
            number = max(0, bisect_right(starts, hour.hour) - 1)
            segment = charged[number]
            is_inside = segment.start <= hour.hour < segment.end
            for component in segment.prices.components:
                piece = pieces.get((number, component.meter))
                if piece is None or (not is_inside and component.meter in GAUGES):
                    continue  # gauges that brokers still report for a deleted instance are not charged
                if not is_inside:
                    tax_percent = self._agreement.tax_percent_at(hour.hour)
                    account = accounts[segment.span.plan, component.meter]
                    piece = account.piece_outside(piece, hour.hour, hour.hour < segment.start, tax_percent)
                piece.quantity += measured_units(component, hour)
                piece.start, piece.end = min(piece.start, hour.hour), max(piece.end, hour.hour + HOUR)

    def _percentile(self, usage: InstanceUsage, charged: Sequence[Segment], plan: str) -> Decimal:
        """Returns the percentile of the five-minute averages of the hours that the plan charges by percentile."""
        starts = [point.start for point in usage.rate_points]
        points: list[RatePoint] = []
        hours = 0
        for segment in charged:
            meters = [component.meter for component in segment.prices.components]
            if segment.span.plan != plan or segment.span.only_storage or Meter.BANDWIDTH_P95 not in meters:
                continue
            end = min(segment.end, self._end)
            hours += max(0, (end - segment.start) // HOUR)
            points += usage.rate_points[bisect_left(starts, segment.start) : bisect_left(starts, end)]
        return billed_rate(points, hours * POINTS_PER_HOUR)

    def _lines(self, instance_id: str, plan: str, account: Account, mb_s: Decimal) -> Iterator[RatedLine]:
        is_prorated = account.is_monthly and account.hours < self._hours
        for priced in account.priced(self._hours, mb_s):
            amount = rounded(priced.quantity * priced.unit_price, self._agreement.currency)
            if amount or priced.unit_price:
                yield RatedLine(
                    kind="usage", instance_id=instance_id, plan=plan, meter=account.meter, start=priced.start,
                    end=priced.end, quantity=priced.quantity,
                    unit=TIER_UNIT if priced.is_fee else UNITS[account.meter], unit_price=priced.unit_price,
                    amount=amount, hours=account.hours if is_prorated else None, tax_percent=priced.tax_percent,
                )  # fmt: skip


def _is_charged(segment: Segment, meter: Meter) -> bool:
    """True if the meter is charged: a suspended instance pays for storage, and for volumes of hours in which it also
    ran.
    """
    return not segment.span.only_storage or meter in CHARGED_WHILE_SUSPENDED or (segment.has_run and meter in VOLUMES)


def measured_units(component: Component, hour: HourUsage) -> Decimal:
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


def _discounts(period: Period, agreement: Agreement, lines: Sequence[RatedLine]) -> Iterator[RatedLine]:
    """Yields the discounts in order, limited to the remaining amount. A discount has the tax rates of the lines it
    reduces.
    """
    currency = agreement.currency
    remaining = {tax_sum.percent: tax_sum.base for tax_sum in tax_sums(lines, currency)}
    for discount in agreement.discounts:
        begins_late = discount.start is not None and period.start < discount.start
        is_over = discount.end is not None and period.start >= discount.end
        subtotal = sum(remaining.values(), ZERO)
        by_percent = rounded(subtotal * discount.percent / HUNDRED, currency)
        reduction = rounded(min(subtotal, by_percent + discount.amount), currency)
        if begins_late or is_over or reduction <= 0:
            continue
        for line in _lines_by_tax_rate(period, "discount", -reduction, dict(remaining), currency, discount.code):
            remaining[line.tax_percent] += line.amount
            yield line


def _lines_by_tax_rate(
    period: Period, kind: str, amount: Decimal, weights: Mapping[Decimal, Decimal], currency: str, code: str = ""
) -> Iterator[RatedLine]:
    """Yields a line of the whole bill for each tax rate, with the code of a discount as its `meter`."""
    for tax_percent, part in allocate(amount, weights, minor_unit(currency)).items():
        if part:
            yield RatedLine(
                kind=kind, instance_id="", plan="", meter=code, start=period.start, end=period.end,
                quantity=Decimal(1), unit="", unit_price=part, amount=part, tax_percent=tax_percent,
            )  # fmt: skip
