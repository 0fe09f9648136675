"""Inputs of rating (usage, prices and agreement of a tenant, read together), and the draft of the current month."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from billing import consumption, prices
from billing.invoices.periods import month_of
from billing.invoices.snapshot import Inputs
from billing.invoices.unpriced import without_unpriced
from billing.rating.forecast import with_forecast
from billing.rating.hours import HOUR, ceil_hour
from billing.rating.terms import Bill, Period
from tenants.models import Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Bill of the current month.

    `so_far` extends to the end of the current hour. `forecast` assumes unchanged sizes and the average usage of past
    hours (`billing.rating.forecast`). `unpriced` are instances in neither bill because their plans have no price.
    """

    so_far: Bill
    forecast: Bill
    unpriced: Sequence[str] = ()


def inputs_of(tenant: Tenant, period: Period) -> Inputs:
    """Returns all inputs of the bill of a period, as known now."""
    usage = consumption.of_tenant(tenant, period)
    plans = {span.plan for instance_usage in usage for span in instance_usage.spans}
    lists = prices.price_lists(tenant.currency, plans)
    inputs = Inputs(period=period, usage=usage, prices=lists, agreement=prices.agreement_of(tenant, period))
    if inputs.has_percentiles:
        return replace(inputs, usage=consumption.of_tenant(tenant, period, with_rates=True))
    return inputs


def draft(tenant: Tenant, now: datetime) -> Draft:
    """Computes the bill so far and the forecast of the current month. Raises `NoPrice`."""
    month = month_of(now)
    inputs, unpriced = without_unpriced(inputs_of(tenant, month))
    until = known_until(month, now)
    expected = [with_forecast(usage, until, month) for usage in inputs.usage]
    return Draft(
        so_far=bill_so_far(inputs, now), forecast=replace(inputs, usage=expected).compute_bill(), unpriced=unpriced
    )


def known_until(month: Period, now: datetime) -> datetime:
    """Returns the end of the current hour, but not before the month's first hour has ended, nor after the month."""
    return max(min(ceil_hour(now), month.end), month.start + HOUR)


def bill_so_far(inputs: Inputs, now: datetime) -> Bill:
    """Computes the bill of a billing period that has begun. Raises `NoPrice`."""
    if now >= inputs.period.end:
        return inputs.compute_bill()
    # A minimum is due at the end of the month; before that it is unknown whether the amounts reach it.
    running = replace(inputs, agreement=replace(inputs.agreement, minimum=Decimal(0)))
    return running.compute_bill(known_until(inputs.period, now))
