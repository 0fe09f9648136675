"""Tax by rates: pure. A line is taxed at the rate that was in force when it was used; each rate is rounded once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol

from billing.rating.allocation import shared_out
from billing.rating.hours import HOUR, ceil_hour
from billing.rating.terms import Agreement, Period, TaxSum
from tenants.currencies import minor_unit, rounded

ZERO: Final = Decimal(0)
HUNDRED: Final = Decimal(100)


class Taxed(Protocol):
    """A line: its amount before tax, and its rate."""

    @property
    def amount(self) -> Decimal: ...

    @property
    def tax_percent(self) -> Any: ...


def tax_sums(lines: Iterable[Taxed], currency: str) -> list[TaxSum]:
    """Base and tax of each rate that lines have, the highest rate first."""
    bases: dict[Decimal, Decimal] = defaultdict(Decimal)
    for line in lines:
        bases[line.tax_percent] += line.amount
    return [
        TaxSum(percent=percent, base=base, tax=rounded(base * percent / HUNDRED, currency))
        for percent, base in sorted(bases.items(), reverse=True)
    ]


def cuts_of(agreement: Agreement, period: Period) -> list[datetime]:
    """Hours of the period at which another rate begins."""
    starts = {ceil_hour(each.effective_from) for each in agreement.tax_changes}
    return sorted(start for start in starts if period.start < start < period.end)


def hours_by_rate(agreement: Agreement, period: Period) -> dict[Decimal, Decimal]:
    """Hours of the period that each rate is in force in, in the order of time."""
    edges = [period.start, *cuts_of(agreement, period), period.end]
    hours: dict[Decimal, Decimal] = defaultdict(Decimal)
    for start, end in pairwise(edges):
        hours[agreement.tax_percent_at(start)] += (end - start) // HOUR
    return hours


class Credit(NamedTuple):
    """Part of a credit note at one rate."""

    percent: Decimal
    net: Decimal
    tax: Decimal


def credited(net: Decimal, left: Sequence[TaxSum], currency: str) -> list[Credit]:
    """Parts of a credit note over `net`, of an invoice of which `left` is not credited yet. Rates are credited in
    proportion to what is left of them; a rate below zero (late usage that was less) with the last note alone.

    Rounded taxes of parts need not sum to the invoice's: the last note of a rate takes what is left, and none takes
    more.
    """
    if net == sum((each.base for each in left), ZERO):
        parts: Mapping[Decimal, Decimal] = {each.percent: each.base for each in left}
    else:
        weights = {each.percent: each.base for each in left if each.base > 0}
        parts = shared_out(net, weights, minor_unit(currency))
    result = []
    for each in left:
        part = parts.get(each.percent, ZERO)
        if part == each.base:
            tax = each.tax
        else:
            tax = min(rounded(part * each.percent / HUNDRED, currency), max(each.tax, ZERO))
        if part or tax:
            result.append(Credit(each.percent, part, tax))
    return result
