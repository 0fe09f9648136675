"""Taxes by rate: pure. A line is taxed at the rate in force at the time of use; each rate is rounded once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol

from billing.rating.allocation import allocate
from billing.rating.hours import HOUR, ceil_hour
from billing.rating.terms import Agreement, Period, TaxSum
from tenants.currencies import minor_unit, rounded

ZERO: Final = Decimal(0)
HUNDRED: Final = Decimal(100)


class Taxed(Protocol):
    """Line with an amount before tax and a tax rate."""

    @property
    def amount(self) -> Decimal: ...

    @property
    def tax_percent(self) -> Any: ...


def tax_sums(lines: Iterable[Taxed], currency: str) -> list[TaxSum]:
    """Returns base and tax of each rate that lines have, the highest rate first."""
    bases: dict[Decimal, Decimal] = defaultdict(Decimal)
    for line in lines:
        bases[line.tax_percent] += line.amount
    return [
        TaxSum(percent=percent, base=base, tax=rounded(base * percent / HUNDRED, currency))
        for percent, base in sorted(bases.items(), reverse=True)
    ]


def tax_change_hours(agreement: Agreement, period: Period) -> list[datetime]:
    """Returns the hours of the period at which the tax rate changes."""
    changes = [change for change in agreement.tax_changes if change.effective_from < period.end]
    hours = {ceil_hour(change.effective_from) for change in changes}
    return sorted(start for start in hours if period.start < start < period.end)


def hours_by_rate(agreement: Agreement, period: Period) -> dict[Decimal, Decimal]:
    """Returns the number of hours of the period by tax rate, in chronological order."""
    edges = [period.start, *tax_change_hours(agreement, period), period.end]
    hours: dict[Decimal, Decimal] = defaultdict(Decimal)
    for start, end in pairwise(edges):
        hours[agreement.tax_percent_at(start)] += (end - start) // HOUR
    return hours


class CreditPart(NamedTuple):
    """Part of a credit note at one tax rate."""

    percent: Decimal
    net: Decimal
    tax: Decimal


def split_credit(net: Decimal, remaining: Sequence[TaxSum], currency: str) -> list[CreditPart]:
    """Divides a credit note over `net` by tax rate; `remaining` has what is not credited yet.

    Rates are credited in proportion to their remaining base; a negative one (from a correction of late usage) only by
    the last note. Rounded taxes of parts need not sum to the invoice's tax: the last note of a rate takes the
    remainder, and none takes more.
    """
    if net == sum((tax_sum.base for tax_sum in remaining), ZERO):
        parts: Mapping[Decimal, Decimal] = {tax_sum.percent: tax_sum.base for tax_sum in remaining}
    else:
        weights = {tax_sum.percent: tax_sum.base for tax_sum in remaining if tax_sum.base > 0}
        parts = allocate(net, weights, minor_unit(currency))
    result = []
    for tax_sum in remaining:
        part = parts.get(tax_sum.percent, ZERO)
        if part == tax_sum.base:
            tax = tax_sum.tax
        else:
            tax = min(rounded(part * tax_sum.percent / HUNDRED, currency), max(tax_sum.tax, ZERO))
        if part or tax:
            result.append(CreditPart(tax_sum.percent, part, tax))
    return result
