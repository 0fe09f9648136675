"""Inputs of rating: usage, prices and agreement of a tenant, read together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from billing import consumption, prices
from billing.invoices.periods import month_of
from billing.invoices.snapshot import Inputs
from billing.invoices.unpriced import without_unpriced
from billing.rating.hours import HOUR, ceil_hour
from billing.rating.terms import Bill, HourUsage, InstanceUsage, Period
from tenants.models import Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Bill of the current month.

    `so_far` extends to the end of the current hour. `forecast` assumes unchanged sizes and, for each remaining hour,
    the average bytes of the past hours. `unpriced` are instances in neither bill because their plans have no price.
    """

    so_far: Bill
    forecast: Bill
    unpriced: Sequence[str] = ()


def inputs_of(tenant: Tenant, period: Period) -> Inputs:
    """Returns all inputs of the bill of a period, as known now."""
    usage = consumption.of_tenant(tenant, period)
    lists = prices.price_lists(tenant.currency, {span.plan for each in usage for span in each.spans})
    inputs = Inputs(period=period, usage=usage, prices=lists, agreement=prices.agreement_of(tenant))
    if inputs.has_percentiles:
        return replace(inputs, usage=consumption.of_tenant(tenant, period, with_rates=True))
    return inputs


def draft(tenant: Tenant, now: datetime) -> Draft:
    """Computes the bill so far and the forecast of the current month. Raises `NoPrice`."""
    month = month_of(now)
    inputs, unpriced = without_unpriced(inputs_of(tenant, month))
    until = known_until(month, now)
    expected = [_going_on(each, until, month) for each in inputs.usage]
    return Draft(so_far=rated_so_far(inputs, now), forecast=replace(inputs, usage=expected).rated(), unpriced=unpriced)


def known_until(month: Period, now: datetime) -> datetime:
    """Returns the end of the current hour, at most the end of the month."""
    return max(min(ceil_hour(now), month.end), month.start + HOUR)


def rated_so_far(inputs: Inputs, now: datetime) -> Bill:
    """Computes the bill of a billing period that has begun. Raises `NoPrice`."""
    if now >= inputs.period.end:
        return inputs.rated()
    # A minimum is due at the end of the month; before that it is unknown whether the amounts reach it.
    running = replace(inputs, agreement=replace(inputs.agreement, minimum=Decimal(0)))
    return running.rated(known_until(inputs.period, now))


def _going_on(usage: InstanceUsage, until: datetime, month: Period) -> InstanceUsage:
    """Returns the usage extended by the instance's average hour in each remaining hour of the month."""
    last = usage.spans[-1] if usage.spans else None
    if last is None or last.end is not None or last.only_storage or not usage.hours:
        return usage
    since = max(month.start, usage.spans[0].start)
    hours = max(1, -(-(until - since) // HOUR))
    average = HourUsage(
        hour=until,
        bytes_in=sum(each.bytes_in for each in usage.hours) // hours,
        bytes_out=sum(each.bytes_out for each in usage.hours) // hours,
        stored_byte_hours=sum((each.stored_byte_hours for each in usage.hours), Decimal(0)) // hours,
        partition_hours=sum((each.partition_hours for each in usage.hours), Decimal(0)) / hours,
        connections_peak=sum(each.connections_peak for each in usage.hours) // hours,
    )
    left = (month.end - until) // HOUR
    to_come = [replace(average, hour=until + n * HOUR) for n in range(left)]
    return replace(usage, hours=[*usage.hours, *to_come])
