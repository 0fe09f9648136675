"""Reads: costs of a period by instance, day, topic, user or client id. Rows sum to the bill to the cent.

Booked capacity is a cost of the instance as a whole. Grouped by topic, user or client id, an instance's cost is divided
in proportion to the bytes moved: an allocation, not a price.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Literal, cast

from django.utils import timezone

from billing import metered
from billing.invoices.adjustments import with_current_usage
from billing.invoices.charging import bill_so_far, inputs_of
from billing.invoices.periods import month_of
from billing.invoices.snapshot import Inputs, from_json
from billing.invoices.unpriced import without_unpriced
from billing.models import Invoice, InvoiceKind
from billing.rating.allocation import CENT, allocate
from billing.rating.hours import HOUR, ceil_hour
from billing.rating.spreading import SpreadBill
from billing.rating.terms import Bill, InstanceUsage, Period
from tenants.currencies import minor_unit
from tenants.models import Tenant

GroupBy = Literal["instance", "day", "topic", "user", "client_id"]
# The names with the most bytes have a row each; all other names of an instance share the row `OTHERS`.
NAMES_MAX = 500
OTHERS = "(other)"
UNUSED = "(not used)"
WHOLE_ACCOUNT = ""
ZERO = Decimal(0)
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """One row of costs.

    `key` is an instance id, a day (`2026-11-20`, UTC) or a name; empty for costs of the whole account. `instance_id` is
    empty where a row does not belong to one instance. `hours` are the hours for which the instance is charged, in rows
    by instance only.
    """

    key: str
    instance_id: str
    amount: Decimal
    bytes: int
    is_allocated: bool
    hours: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs of a period before tax. `unpriced` are instances that are omitted because their plans have no price."""

    period: Period
    currency: str
    total: Decimal
    rows: Sequence[CostRow]
    unpriced: Sequence[str] = ()

    @property
    def hours(self) -> int:
        return (self.period.end - self.period.start) // HOUR


@dataclass(frozen=True, slots=True)
class _Part:
    """Part `[start, end)` of one billing period, with the usage and the bill of the whole billing period."""

    start: datetime
    end: datetime
    usage: Sequence[InstanceUsage]
    bill: Bill
    spread: SpreadBill
    unpriced: Sequence[str]

    def amounts(self) -> dict[str, Decimal]:
        """Returns the amounts by instance; amounts of the whole bill are under the empty key."""
        result: dict[str, Decimal] = defaultdict(Decimal)
        for line, amount in zip(self.bill.lines, self.spread.between(self.start, self.end), strict=True):
            result[line.instance_id] += amount
        return result


def costs(tenant: Tenant, start: datetime, end: datetime, group_by: GroupBy, now: datetime | None = None) -> Costs:
    """Returns the costs of the hours that begin in `[start, end)`: the amounts that the monthly bills charge for them.

    An hour belongs to exactly one of two adjacent spans. Therefore days of any time zone sum to their month, and
    months (UTC) to their invoices. Rows are ordered by descending amount; days by date.

    Raises:
        NoPrice: a plan that an instance had has no price.
        MinutesNotKept: a grouping by name asks for a part of a day whose minutes are no longer kept.
    """
    period = Period(start=ceil_hour(start.astimezone(UTC)), end=ceil_hour(end.astimezone(UTC)))
    parts = list(_parts(tenant, period, (now or timezone.now()).astimezone(UTC)))
    rows = {"instance": _by_instance, "day": _by_day}.get(group_by)
    cost_rows = rows(parts, period) if rows else _by_name(parts, period, cast(metered.GroupBy, group_by))
    total = sum((row.amount for row in cost_rows), ZERO)
    unpriced = sorted({id for part in parts for id in part.unpriced})
    return Costs(period=period, currency=tenant.currency, total=total, rows=cost_rows, unpriced=unpriced)


def _parts(tenant: Tenant, period: Period, now: datetime) -> Iterator[_Part]:
    """Yields the part of the period in each month (UTC) that has begun."""
    month = month_of(period.start)
    while month.start < period.end and month.start <= now:
        inputs, unpriced = without_unpriced(_inputs(tenant, month))
        bill = bill_so_far(inputs, now)
        part = max(period.start, month.start), min(period.end, month.end)
        yield _Part(*part, inputs.usage, bill, SpreadBill(bill, inputs.usage, inputs.prices), unpriced)
        month = month_of(month.end)


def _inputs(tenant: Tenant, month: Period) -> Inputs:
    """Returns the inputs of a month's invoice with the usage known now; without an invoice, the inputs known now."""
    issued = Invoice.objects.filter(tenant=tenant, kind=InvoiceKind.INVOICE, period_start=month.start).first()
    if issued is None or not issued.inputs:
        return inputs_of(tenant, month)
    return with_current_usage(issued, from_json(issued.inputs))


def _amounts_by_instance(parts: Sequence[_Part]) -> dict[str, Decimal]:
    result: dict[str, Decimal] = defaultdict(Decimal)
    for part in parts:
        for instance_id, amount in part.amounts().items():
            result[instance_id] += amount
    return result


def _bytes(usage: InstanceUsage, period: Period) -> int:
    return sum(hour.bytes_in + hour.bytes_out for hour in usage.hours if period.start <= hour.hour < period.end)


def _by_descending_amount(rows: Sequence[CostRow]) -> list[CostRow]:
    return sorted(rows, key=lambda row: (-row.amount, row.key))


def _bytes_by_instance(parts: Sequence[_Part]) -> dict[str, int]:
    """Returns the bytes moved by instance."""
    result: dict[str, int] = defaultdict(int)
    for part in parts:
        for usage in part.usage:
            result[usage.instance_id] += _bytes(usage, Period(start=part.start, end=part.end))
    return result


def _by_instance(parts: Sequence[_Part], period: Period) -> list[CostRow]:
    bytes_moved = _bytes_by_instance(parts)
    return _by_descending_amount(
        [
            CostRow(
                key=key,
                instance_id=key,
                amount=amount,
                bytes=bytes_moved.get(key, 0),
                is_allocated=False,
                hours=sum(part.spread.hours(key, part.start, part.end) for part in parts) if key else None,
            )
            for key, amount in _amounts_by_instance(parts).items()
            if amount or bytes_moved.get(key)
        ]
    )


def _by_day(parts: Sequence[_Part], period: Period) -> list[CostRow]:
    rows = []
    for part in parts:
        day = part.start.replace(hour=0)
        while day < part.end:
            day_part = replace(part, start=max(day, part.start), end=min(day + DAY, part.end))
            amount, bytes_moved = sum(day_part.amounts().values(), ZERO), sum(_bytes_by_instance([day_part]).values())
            rows.append(
                CostRow(key=f"{day:%Y-%m-%d}", instance_id="", amount=amount, bytes=bytes_moved, is_allocated=False)
            )
            day += DAY
    return rows


def _by_name(parts: Sequence[_Part], period: Period, group_by: metered.GroupBy) -> list[CostRow]:
    amounts = _amounts_by_instance(parts)
    unit = minor_unit(parts[0].bill.currency) if parts else CENT
    bytes_moved = _names_of(sorted(key for key in amounts if key), period, group_by)
    rows = []
    for instance_id, amount in amounts.items():
        if instance_id == WHOLE_ACCOUNT and amount:
            rows.append(CostRow(key="", instance_id="", amount=amount, bytes=0, is_allocated=False))
        if instance_id == WHOLE_ACCOUNT or not (amount or bytes_moved.get(instance_id)):
            continue
        names = bytes_moved.get(instance_id) or {UNUSED: 0}
        shares = allocate(amount, {name: Decimal(count) for name, count in names.items()}, unit)
        rows += [
            CostRow(key=name, instance_id=instance_id, amount=shares[name], bytes=count, is_allocated=name != UNUSED)
            for name, count in names.items()
        ]
    return _by_descending_amount(rows)


def _names_of(instance_ids: Sequence[str], period: Period, by: metered.GroupBy) -> dict[str, dict[str, int]]:
    """Returns the bytes by name of each instance. Only the first `NAMES_MAX` names get a key of their own."""
    result: dict[str, dict[str, int]] = defaultdict(dict)
    rows = metered.names_of(instance_ids, start=period.start, end=period.end, by=by)
    for number, (instance_id, name, produced, consumed) in enumerate(rows):
        names = result[instance_id]
        label = name if number < NAMES_MAX else OTHERS
        names[label] = names.get(label, 0) + produced + consumed
    return result
