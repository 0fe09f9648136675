"""Division of a quantity into the tiers of a price, and parsing of tiers."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from billing.rating.terms import Component, Scheme, Tier

ZERO = Decimal(0)
TIERS_MAX = 20
NUMBER_CHARS_MAX = 24


class Charge(NamedTuple):
    """Charge of `quantity` at `unit_price`, plus `flat`."""

    quantity: Decimal
    unit_price: Decimal
    flat: Decimal

    @property
    def exact(self) -> Decimal:
        """Amount before rounding."""
        return self.quantity * self.unit_price + self.flat


def charges(component: Component, quantity: Decimal, *, before: Decimal = ZERO) -> Iterator[Charge]:
    """Yields the charges of `quantity` after the same tiers have charged `before`.

    `before` is the first part of a period under another price list. A bounded last tier extends beyond its bound.
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


def parse_tiers(raw: Any) -> list[Tier]:
    """Parses tiers of `[up to, unit price, flat fee]` with numbers as strings; only the last one is unbounded.

    Raises:
        ValueError: the tiers are invalid; the message is for the user who entered them.
    """
    if not isinstance(raw, list) or not 1 <= len(raw) <= TIERS_MAX:
        raise ValueError(f"A list of 1 to {TIERS_MAX} tiers.")
    result: list[Tier] = []
    low = ZERO
    for number, entry in enumerate(raw, start=1):
        if not isinstance(entry, list) or len(entry) != 3:
            raise ValueError(f"Tier {number} is not [up to, unit price, flat fee].")
        up_to, unit_price, flat = entry
        is_last = number == len(raw)
        if (up_to is None) != is_last:
            raise ValueError("The last tier, and no other, is without an end (null).")
        tier = Tier(
            up_to=None if up_to is None else _number(up_to, number),
            unit_price=_number(unit_price, number),
            flat=_number(flat, number),
        )
        if tier.up_to is not None and tier.up_to <= low:
            raise ValueError(f"Tier {number} ends before it begins.")
        low = tier.up_to or low
        result.append(tier)
    return result


def _number(text: Any, tier: int) -> Decimal:
    try:
        if not isinstance(text, str) or len(text) > NUMBER_CHARS_MAX:
            raise InvalidOperation
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"In tier {tier} {text!r} is not a number in quotes.") from None
    if not value.is_finite() or value < 0:
        raise ValueError(f"In tier {tier} {text} is below zero or without an end.")
    return value
