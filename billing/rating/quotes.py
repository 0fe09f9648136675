"""What a size costs per hour, before it is bought.

A price has three components per hour: a base, one per MB/s bought above what the plan includes, one per GB above it.
1 MB = 10^6 bytes, 1 GB = 10^9 bytes. A month is 730 hours. Unit prices carry 4 decimals, sums 2 (design: money).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

HOURS_PER_MONTH = 730
UNIT = Decimal("0.0001")
CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPrice:
    """What a plan costs per hour; all amounts in `currency`, not rounded."""

    currency: str
    base_per_hour: Decimal
    included_mb_s: int
    per_mb_s_hour: Decimal
    included_gb: int
    per_gb_hour: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteLine:
    """One component: `quantity` of `unit` at `unit_price` an hour gives `per_hour` (rounded to 4 decimals)."""

    component: str
    quantity: int
    unit: str
    unit_price: Decimal
    per_hour: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """The lines and their sums; `per_hour` is exactly the sum of the shown lines, `per_month` 730 times that."""

    currency: str
    lines: tuple[QuoteLine, ...]
    per_hour: Decimal
    per_month: Decimal


def quote(price: PlanPrice, *, bandwidth_mb_s: int, storage_gb: int) -> Quote:
    """Price of an instance with `bandwidth_mb_s` MB/s and `storage_gb` GB under `price`.

    Raises:
        ValueError: a quantity is not positive.
    """
    if bandwidth_mb_s <= 0 or storage_gb <= 0:
        raise ValueError("bandwidth and storage are positive")

    def line(component: str, quantity: int, unit: str, unit_price: Decimal) -> QuoteLine:
        per_hour = (unit_price * quantity).quantize(UNIT, ROUND_HALF_UP)
        return QuoteLine(
            component=component, quantity=quantity, unit=unit, unit_price=unit_price.quantize(UNIT), per_hour=per_hour
        )

    extra_mb_s = max(0, bandwidth_mb_s - price.included_mb_s)
    extra_gb = max(0, storage_gb - price.included_gb)
    lines = [line("base", 1, "instance", price.base_per_hour)]
    if extra_mb_s:
        lines.append(line("bandwidth", extra_mb_s, "MB/s", price.per_mb_s_hour))
    if extra_gb:
        lines.append(line("storage", extra_gb, "GB", price.per_gb_hour))
    per_hour = sum((item.per_hour for item in lines), Decimal(0))
    return Quote(
        currency=price.currency,
        lines=tuple(lines),
        per_hour=per_hour,
        per_month=(per_hour * HOURS_PER_MONTH).quantize(CENT, ROUND_HALF_UP),
    )
