"""Hourly cost of a size: booked meters, as opposed to measured ones."""

from __future__ import annotations

from decimal import Decimal

from billing.rating.terms import Component, Meter, PriceList, SizeSpan

ZERO = Decimal(0)
BOOKED = (Meter.INSTANCE, Meter.BANDWIDTH, Meter.STORAGE)


def booked_per_hour(component: Component, span: SizeSpan) -> Decimal:
    """Returns the units of a booked meter that one hour of the span is charged for, above the included amount."""
    level = {
        Meter.INSTANCE: Decimal(1),
        Meter.BANDWIDTH: Decimal(span.bandwidth_mb_s),
        Meter.STORAGE: Decimal(span.storage_gb),
    }[component.meter]
    if span.only_storage and component.meter is not Meter.STORAGE:
        return ZERO
    return max(ZERO, level - component.included)


def hourly_cost(prices: PriceList, span: SizeSpan) -> Decimal:
    """Returns the cost per hour by the first tiers, for comparing sizes."""
    return sum(
        (
            booked_per_hour(component, span) * component.tiers[0].unit_price
            + (component.tiers[0].flat if not span.only_storage else ZERO)
            for component in prices.components
            if component.meter in BOOKED
        ),
        ZERO,
    )
