"""What an hour of a size costs: the meters that are bought, not measured."""

from __future__ import annotations

from decimal import Decimal

from billing.rating.terms import Component, Meter, PriceList, SizeSpan

ZERO = Decimal(0)
BOUGHT = (Meter.INSTANCE, Meter.BANDWIDTH, Meter.STORAGE)


def bought_per_hour(component: Component, span: SizeSpan) -> Decimal:
    """Units of a bought meter that an hour of the span is charged for, above what is included."""
    level = {
        Meter.INSTANCE: Decimal(1),
        Meter.BANDWIDTH: Decimal(span.bandwidth_mb_s),
        Meter.STORAGE: Decimal(span.storage_gb),
    }[component.meter]
    if span.only_storage and component.meter is not Meter.STORAGE:
        return ZERO
    return max(ZERO, level - component.included)


def hourly_cost(prices: PriceList, span: SizeSpan) -> Decimal:
    """By the first tiers: what tells the dearer of two sizes."""
    return sum(
        (
            bought_per_hour(each, span) * each.tiers[0].unit_price
            + (each.tiers[0].flat if not span.only_storage else ZERO)
            for each in prices.components
            if each.meter in BOUGHT
        ),
        ZERO,
    )
