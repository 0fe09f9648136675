"""Instances whose costs are unknown because their plan has no price: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from billing.invoices.snapshot import Inputs
from billing.rating.hours import floor_hour
from billing.rating.terms import Period, SizeSpan

FirstPrices = dict[tuple[str, str], datetime]


def plans_without_price(
    spans: Sequence[SizeSpan], period: Period, currency: str, first_prices: FirstPrices
) -> set[str]:
    """Returns the plans of which an hour in the period begins before their first price in the currency."""
    return {
        span.plan
        for span in spans
        if span.start < period.end
        and (span.end is None or span.end > period.start)
        and (
            (first := first_prices.get((span.plan, currency))) is None
            or first > max(period.start, floor_hour(span.start))
        )
    }


def without_unpriced(inputs: Inputs) -> tuple[Inputs, tuple[str, ...]]:
    """Returns the inputs without instances that cannot be rated, and the ids of the removed instances."""
    first_prices: FirstPrices = {}
    for prices in inputs.prices:
        key = prices.plan, prices.currency
        first_prices[key] = min(prices.effective_from, first_prices.get(key, prices.effective_from))
    currency = inputs.agreement.currency
    unpriced = {
        usage.instance_id
        for usage in inputs.usage
        if plans_without_price(usage.spans, inputs.period, currency, first_prices)
    }
    if not unpriced:
        return inputs, ()
    known = [usage for usage in inputs.usage if usage.instance_id not in unpriced]
    return replace(inputs, usage=known), tuple(sorted(unpriced))
