"""Reads: what a period costs, by instance, by day, and by topic, user or client id. Rows sum to the bill to the cent.

What is bought is a cost of the instance as a whole. By topic, user and client id an instance's cost is shared out by
the bytes they moved: an allocation, not a price.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Literal, cast

from billing import metered
from billing.invoices.charging import inputs_of
from billing.invoices.snapshot import Inputs
from billing.invoices.unpriced import without_unpriced
from billing.rating.allocation import shared_out
from billing.rating.hours import ceil_hour, floor_hour
from billing.rating.terms import Bill, InstanceUsage, Period
from tenants.models import Tenant

GroupBy = Literal["instance", "day", "topic", "user", "client_id"]
# The heaviest; all others are one row.
NAMES_MAX = 500
OTHERS = "(other)"
UNUSED = "(not used)"
OF_THE_ACCOUNT = ""
ZERO = Decimal(0)
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """`key` is an instance id, a day (`2026-11-20`, UTC) or a name; empty for what concerns the whole account.
    `instance_id` is empty where a row is not of one instance.
    """

    key: str
    instance_id: str
    amount: Decimal
    bytes: int
    is_allocated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs before tax. `unpriced` are instances that are left out, since their plans have no price."""

    period: Period
    currency: str
    total: Decimal
    rows: Sequence[CostRow]
    unpriced: Sequence[str] = ()


def costs(tenant: Tenant, start: datetime, end: datetime, group_by: GroupBy) -> Costs:
    """Of the full hours that `[start, end)` touches. Dearest first; days in order.

    Raises:
        NoPrice: a plan that was had has no price.
        MinutesNotKept: names are asked for of a part of a day that is long over.
    """
    period = Period(start=floor_hour(start.astimezone(UTC)), end=ceil_hour(end.astimezone(UTC)))
    inputs, unpriced = without_unpriced(inputs_of(tenant, period))
    # A minimum is due when a month is over; a part of it has none.
    inputs = replace(inputs, agreement=replace(inputs.agreement, minimum=ZERO))
    bill = inputs.rated()
    rows = {"instance": _by_instance, "day": _by_day}.get(group_by)
    found = rows(inputs, bill) if rows else _by_name(inputs, bill, cast(metered.GroupBy, group_by))
    return Costs(period=period, currency=bill.currency, total=bill.subtotal, rows=found, unpriced=unpriced)


def _amounts(bill: Bill) -> dict[str, Decimal]:
    """By instance; what concerns the whole bill under the empty key."""
    result: dict[str, Decimal] = defaultdict(Decimal)
    for line in bill.lines:
        result[line.instance_id] += line.amount
    return result


def _bytes(usage: InstanceUsage, period: Period) -> int:
    return sum(each.bytes_in + each.bytes_out for each in usage.hours if period.start <= each.hour < period.end)


def _dearest_first(rows: Sequence[CostRow]) -> list[CostRow]:
    return sorted(rows, key=lambda row: (-row.amount, row.key))


def _by_instance(inputs: Inputs, bill: Bill) -> list[CostRow]:
    moved = {each.instance_id: _bytes(each, inputs.period) for each in inputs.usage}
    return _dearest_first(
        [
            CostRow(key=key, instance_id=key, amount=amount, bytes=moved.get(key, 0), is_allocated=False)
            for key, amount in _amounts(bill).items()
        ]
    )


def _by_day(inputs: Inputs, bill: Bill) -> list[CostRow]:
    weights: dict[str, Decimal] = {}
    moved: dict[str, int] = {}
    day = inputs.period.start.replace(hour=0)
    while day < inputs.period.end:
        part = Period(start=max(day, inputs.period.start), end=min(day + DAY, inputs.period.end))
        usage = [
            replace(each, hours=[hour for hour in each.hours if part.start <= hour.hour < part.end])
            for each in inputs.usage
        ]
        lines = replace(inputs, period=part, usage=usage).rated().lines
        key = f"{day:%Y-%m-%d}"
        weights[key] = sum((line.quantity * line.unit_price for line in lines if line.kind == "usage"), ZERO)
        moved[key] = sum(_bytes(each, part) for each in usage)
        day += DAY
    amounts = shared_out(bill.subtotal, weights)
    return [
        CostRow(key=key, instance_id="", amount=amounts[key], bytes=moved[key], is_allocated=False) for key in weights
    ]


def _by_name(inputs: Inputs, bill: Bill, group_by: metered.GroupBy) -> list[CostRow]:
    amounts = _amounts(bill)
    moved = _names_of([each.instance_id for each in inputs.usage], inputs.period, group_by)
    rows = []
    for instance_id, amount in amounts.items():
        if instance_id == OF_THE_ACCOUNT:
            rows.append(CostRow(key="", instance_id="", amount=amount, bytes=0, is_allocated=False))
            continue
        names = moved.get(instance_id) or {UNUSED: 0}
        shares = shared_out(amount, {name: Decimal(count) for name, count in names.items()})
        rows += [
            CostRow(key=name, instance_id=instance_id, amount=shares[name], bytes=count, is_allocated=name != UNUSED)
            for name, count in names.items()
        ]
    return _dearest_first(rows)


def _names_of(instance_ids: Sequence[str], period: Period, by: metered.GroupBy) -> dict[str, dict[str, int]]:
    """Bytes by name of each instance. The heaviest `NAMES_MAX` keep their names."""
    result: dict[str, dict[str, int]] = defaultdict(dict)
    found = metered.names_of(instance_ids, start=period.start, end=period.end, by=by)
    for number, (instance_id, name, produced, consumed) in enumerate(found):
        names = result[instance_id]
        shown = name if number < NAMES_MAX else OTHERS
        names[shown] = names.get(shown, 0) + produced + consumed
    return result
