"""Tiers: which quantity is charged at which price."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple

from billing.rating.terms import Component, Scheme

ZERO = Decimal(0)


class Charge(NamedTuple):
    """`quantity` at `unit_price`, and `flat` besides."""

    quantity: Decimal
    unit_price: Decimal
    flat: Decimal

    @property
    def exact(self) -> Decimal:
        """Not rounded."""
        return self.quantity * self.unit_price + self.flat


def charges(component: Component, quantity: Decimal, *, before: Decimal = ZERO) -> Iterator[Charge]:
    """How `quantity` is charged, when `before` was charged by the same tiers already (the first part of a period under
    another price list). A last tier with an end goes on behind it.
    """
    if component.scheme is Scheme.VOLUME:
        total = before + quantity
        for tier in component.tiers:
            if tier.up_to is None or total <= tier.up_to or tier is component.tiers[-1]:
                if quantity > 0:
                    yield Charge(quantity, tier.unit_price, tier.flat if not before else ZERO)
                return
        return
    begin, end = before, before + quantity
    low = ZERO
    for tier in component.tiers:
        high = end if tier.up_to is None or tier is component.tiers[-1] else tier.up_to
        inside = min(high, end) - max(low, begin)
        if inside > 0:
            yield Charge(inside, tier.unit_price, tier.flat if begin <= low else ZERO)
        low = high
        if low >= end:
            return
