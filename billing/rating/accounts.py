"""Charges of one meter of an instance under one plan by terms that span a month. Pure; amounts are exact decimals.

Included volumes, commitments, tiers and their fees belong to a plan and a billing period. They are prorated by the
hours in which the instance was on the plan. A new price list or tax rate splits amounts, but not terms
(docs/decisions/0135).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Final, NamedTuple

from billing.rating.terms import Component, Meter, Scheme

ZERO: Final = Decimal(0)
# Precision of the stored quantity and unit price of a line. Bytes are exact in GB.
QUANTITY_STEP: Final = Decimal("0.000000001")
UNIT_PRICE_STEP: Final = Decimal("0.00000001")
# Meters whose included amount belongs to the billing period; that of other meters belongs to each hour.
VOLUMES: Final = (Meter.BYTES_IN, Meter.BYTES_OUT)
TIER_UNIT: Final = "tier"


@dataclass(slots=True)
class Piece:
    """Charged hours of an account under equal terms and at one tax rate.

    `hours` are past hours; `entitled_hours` also include the remaining hours of the billing period.
    """

    component: Component
    start: datetime
    end: datetime
    hours: int = 0
    entitled_hours: int = 0
    quantity: Decimal = ZERO
    tax_percent: Decimal = ZERO

    @property
    def terms(self) -> tuple[object, ...]:
        """Key that is equal for equal terms."""
        component = self.component
        return (
            component.scheme, tuple(component.tiers), component.included, component.commit, component.overage_price,
        )  # fmt: skip


class PricedQuantity(NamedTuple):
    """Charge of `quantity` at `unit_price`. With `is_fee` the unit is a tier that was entered."""

    quantity: Decimal
    unit_price: Decimal
    is_fee: bool
    start: datetime
    end: datetime
    tax_percent: Decimal


@dataclass(slots=True)
class Account:
    """Quantities of one meter of an instance on one plan in one billing period, in pieces, oldest first."""

    meter: Meter
    pieces: list[Piece] = field(default_factory=list)

    def piece(self, component: Component, start: datetime, end: datetime, tax_percent: Decimal) -> Piece:
        """Returns the last piece if its terms and tax rate are the same; else appends and returns a new one."""
        new = Piece(component, start, end, tax_percent=tax_percent)
        last = self.pieces[-1] if self.pieces else None
        if last is not None and last.terms == new.terms and last.tax_percent == tax_percent:
            return last
        self.pieces.append(new)
        return new

    def piece_outside(self, piece: Piece, hour: datetime, is_before: bool, tax_percent: Decimal) -> Piece:
        """Returns the piece for an hour in which the instance did not exist, with the terms of `piece`.

        This is `piece` itself if its tax rate is the same.
        """
        for other in (piece, *self.pieces):
            if other.tax_percent == tax_percent and other.terms == piece.terms:
                return other
        new = Piece(piece.component, hour, hour, tax_percent=tax_percent)
        index = next(number for number, other in enumerate(self.pieces) if other is piece)
        self.pieces.insert(index if is_before else index + 1, new)
        return new

    @property
    def hours(self) -> int:
        return sum(piece.hours for piece in self.pieces)

    @property
    def is_monthly(self) -> bool:
        """True if a term of the account belongs to the month and is prorated."""
        return self.meter is Meter.BANDWIDTH_P95 or any(
            _is_monthly(self.meter, piece.component) for piece in self.pieces
        )

    def priced(self, period_hours: int, mb_s: Decimal = ZERO) -> list[PricedQuantity]:
        """Returns the charges, merged by price and tax rate. `mb_s` is the percentile of a `BANDWIDTH_P95` account."""
        pieces = [piece for piece in self.pieces if piece.entitled_hours or piece.quantity]
        if self.meter is Meter.BANDWIDTH_P95:
            return _merged(_percentile_parts(pieces, mb_s), period_hours)
        return _merged(_volume_parts(self.meter, pieces, period_hours), period_hours)


class _Part(NamedTuple):
    """Charge of a piece. With `is_multiplied_by_hours` the quantity is yet to be divided by the hours of the period."""

    piece: Piece
    quantity: Decimal
    unit_price: Decimal
    is_fee: bool = False
    is_multiplied_by_hours: bool = False


def _is_monthly(meter: Meter, component: Component) -> bool:
    has_tiers = len(component.tiers) > 1 or any(tier.flat for tier in component.tiers)
    return bool(has_tiers or component.commit or (meter in VOLUMES and component.included))


def _merged(parts: Iterator[_Part], period_hours: int) -> list[PricedQuantity]:
    """Sums parts by price and tax rate.

    Quantities are rounded here and only here; quantities times hours are divided by the hours of the period.
    """
    sums: dict[tuple[bool, Decimal, Decimal], tuple[Decimal, Decimal, datetime, datetime]] = {}
    for part in parts:
        key = part.is_fee, _printed_price(part.unit_price), part.piece.tax_percent
        plain, times_hours, start, end = sums.get(key, (ZERO, ZERO, part.piece.start, part.piece.end))
        if part.is_multiplied_by_hours:
            times_hours += part.quantity
        else:
            plain += part.quantity
        sums[key] = plain, times_hours, min(start, part.piece.start), max(end, part.piece.end)
    return [
        PricedQuantity(quantity, unit_price, is_fee, start, end, tax_percent)
        for (is_fee, unit_price, tax_percent), (plain, times_hours, start, end) in sums.items()
        if (quantity := _rounded(plain + times_hours / period_hours))
    ]


def _printed_price(unit_price: Decimal) -> Decimal:
    stored = unit_price.quantize(UNIT_PRICE_STEP, ROUND_HALF_UP)
    return unit_price if unit_price == stored else stored


def _rounded(quantity: Decimal) -> Decimal:
    return quantity.quantize(QUANTITY_STEP, ROUND_HALF_UP)


def _percentile_parts(pieces: Sequence[Piece], mb_s: Decimal) -> Iterator[_Part]:
    """Yields the charges of a percentile: the monthly price of each piece, to be prorated by the hours of the piece."""
    for piece in pieces:
        component, level = piece.component, max(ZERO, mb_s - piece.component.included)
        if component.overage_price is not None and level > component.commit:
            tiered, overage = component.commit, level - component.commit
        else:
            tiered, overage = max(level, component.commit), ZERO
        for units_in_tier, unit_price, flat, is_entered in _in_tiers(component, ZERO, tiered, tiered, 1, 1):
            yield _Part(piece, units_in_tier * piece.hours, unit_price, is_multiplied_by_hours=True)
            if is_entered and flat:
                yield _Part(piece, Decimal(piece.hours), flat, is_fee=True, is_multiplied_by_hours=True)
        if overage:
            assert component.overage_price is not None
            yield _Part(piece, overage * piece.hours, component.overage_price, is_multiplied_by_hours=True)


def _volume_parts(meter: Meter, pieces: Sequence[Piece], period_hours: int) -> Iterator[_Part]:
    """Yields the charges of a sum over hours: included units are free, the next units fill the tiers.

    With a price of overage, tiers end at the commitment.
    """
    entitled = sum(piece.entitled_hours for piece in pieces)
    billable = _billable(meter, pieces, period_hours)
    tiered = _below_overage(pieces, billable, period_hours)
    total, position = sum(tiered, ZERO), ZERO
    for piece, all_units, units in zip(pieces, billable, tiered, strict=True):
        tiers = _in_tiers(piece.component, position, units, total, entitled, period_hours)
        for units_in_tier, unit_price, flat, is_entered in tiers:
            yield _Part(piece, units_in_tier, unit_price)
            if is_entered and flat:
                yield _Part(piece, Decimal(piece.hours), flat, is_fee=True, is_multiplied_by_hours=True)
        if all_units > units:
            assert piece.component.overage_price is not None
            yield _Part(piece, all_units - units, piece.component.overage_price)
        position += units


def _billable(meter: Meter, pieces: Sequence[Piece], period_hours: int) -> list[Decimal]:
    """Returns the billable units of each piece, without included units and with units missing from the commitment.

    Missing units are distributed by the hours of each piece. Sums are rounded instead of parts, so that they do not
    depend on the number of parts.
    """
    free = ZERO
    if meter in VOLUMES:
        free = sum((piece.component.included * piece.entitled_hours for piece in pieces), ZERO) / period_hours
    exact = []
    for piece in pieces:
        free_units = min(free, piece.quantity)
        free -= free_units
        exact.append(piece.quantity - free_units)
    commits = [piece.component.commit * piece.hours for piece in pieces]
    committed = sum(commits, ZERO)
    missing = committed / period_hours - sum(exact, ZERO)
    if missing > 0:
        exact = [units + missing * commit / committed for units, commit in zip(exact, commits, strict=True)]
    result, so_far, before = [], ZERO, ZERO
    for units in exact:
        so_far += units
        result.append(_rounded(so_far) - before)
        before = _rounded(so_far)
    return result


def _below_overage(pieces: Sequence[Piece], billable: Sequence[Decimal], period_hours: int) -> list[Decimal]:
    """Returns the units of each piece that tiers price; units beyond the commitment are overage, if it has a price."""
    limit = _rounded(sum((piece.component.commit * piece.entitled_hours for piece in pieces), ZERO) / period_hours)
    result, position = [], ZERO
    for piece, units in zip(pieces, billable, strict=True):
        has_overage = piece.component.overage_price is not None
        result.append(max(ZERO, min(units, limit - position)) if has_overage else units)
        position += units
    return result


def _in_tiers(
    component: Component, position: Decimal, units: Decimal, total: Decimal, hours: int, period_hours: int
) -> Iterator[tuple[Decimal, Decimal, Decimal, bool]]:
    """Yields (units, unit price, fee, is entered) of each tier, for `units` that follow the first `position` units.

    A tier is entered if `total` reaches it. Tier bounds apply to a month, and are scaled by `hours` of the period's. A
    bounded last tier extends beyond its bound.
    """
    low = ZERO
    for tier in component.tiers:
        is_last = tier.up_to is None or tier is component.tiers[-1]
        high = total if is_last or tier.up_to is None else _rounded(tier.up_to * hours / period_hours)
        if component.scheme is Scheme.VOLUME:
            is_entered = low < total and (is_last or total <= high)
            units_in_tier = units if is_entered else ZERO
        else:
            is_entered = low < total
            units_in_tier = max(ZERO, min(position + units, high) - max(position, low))
        yield units_in_tier, tier.unit_price, tier.flat, is_entered
        low = high
