"""Hourly cost of a size before it is booked, by the same components as invoices (`booked`, `tiers`).

1 MB = 10^6 bytes, 1 GB = 10^9 bytes. A month is 730 hours. Prices are exact; the sum of a month is rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from billing.rating.booked import booked_per_hour
from billing.rating.terms import Meter, PriceList, SizeSpan
from billing.rating.tiers import charges
from tenants.currencies import rounded

HOURS_PER_MONTH = 730
# Names and units of booked meters in a quote.
NAMES = {Meter.INSTANCE: ("base", "instance"), Meter.BANDWIDTH: ("bandwidth", "MB/s"), Meter.STORAGE: ("storage", "GB")}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteLine:
    """One component of a quote. `per_hour` is exactly `quantity` times `unit_price`, plus fees of tiers."""

    component: str
    quantity: int
    unit: str
    unit_price: Decimal
    per_hour: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """Lines and their sums. `per_hour` is exactly the sum of the lines, `per_month` is 730 times that, rounded."""

    currency: str
    lines: tuple[QuoteLine, ...]
    per_hour: Decimal
    per_month: Decimal


def quote(prices: PriceList, *, bandwidth_mb_s: int, storage_gb: int) -> Quote:
    """Returns the hourly charge of an instance of this bandwidth (MB/s) and storage (GB) without any usage.

    Raises:
        ValueError: a quantity is not positive.
    """
    if bandwidth_mb_s <= 0 or storage_gb <= 0:
        raise ValueError("bandwidth and storage are positive")
    start = prices.effective_from
    span = SizeSpan(plan=prices.plan, bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb, start=start, end=None)
    lines = []
    for component in prices.components:
        if component.meter not in NAMES:
            continue
        quantity = booked_per_hour(component, span)
        if quantity or component.meter is Meter.INSTANCE:
            name, unit = NAMES[component.meter]
            unit_price = component.tiers[0].unit_price
            per_hour = sum((charge.exact for charge in charges(component, quantity)), Decimal(0))
            lines.append(
                QuoteLine(
                    component=name, quantity=int(quantity), unit=unit, unit_price=unit_price,
                    per_hour=per_hour,
                )
            )  # fmt: skip
    per_hour = sum((line.per_hour for line in lines), Decimal(0))
    return Quote(
        currency=prices.currency,
        lines=tuple(lines),
        per_hour=per_hour,
        per_month=rounded(per_hour * HOURS_PER_MONTH, prices.currency),
    )
