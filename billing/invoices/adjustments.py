"""Adjustments for usage that arrived after an invoice was issued.

The difference is a line of the next invoice; issued documents do not change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal

import structlog
from django.db.models import Count, Max, Q, Sum
from django.db.models.functions import TruncMonth

from billing import consumption
from billing.invoices.snapshot import Inputs, from_json
from billing.models import Invoice, InvoiceKind, InvoiceLine, UsageCheck, UsageRevision
from billing.rating.hours import NoPrice
from billing.rating.terms import Meter, Period, RatedLine
from instances.choices import OperationState, OperationType
from instances.models import Operation
from tenants.models import Tenant

log = structlog.get_logger(__name__)

# (instance id, plan, meter, tax rate)
Key = tuple[str, str, str, Decimal]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjustment:
    """Difference between the due and the `charged` amount of one meter and tax rate of an earlier invoice.

    `line` is the line of the next invoice that charges the difference; `corrects` is the earlier invoice.
    """

    corrects: Invoice
    charged: Decimal
    line: RatedLine


@dataclass(frozen=True, slots=True, kw_only=True)
class LateUsage:
    """Adjustments of all earlier invoices, regardless of age.

    `compared_states` has the usage state of each invoice that was compared, by invoice id; `failed_numbers` are the
    numbers of invoices that could not be compared.
    """

    adjustments: Sequence[Adjustment]
    compared_states: Mapping[str, str]
    failed_numbers: Sequence[str]


def adjustments_of(tenant: Tenant) -> Sequence[Adjustment]:
    """Returns the adjustments of all earlier invoices without writing anything."""
    return late_usage(tenant).adjustments


def late_usage(tenant: Tenant) -> LateUsage:
    """Computes the late usage of all earlier invoices at their own prices and agreements.

    Amounts that were adjusted before are not adjusted again. An invoice that cannot be rated does not prevent
    adjustments of others. Invoices whose usage state has not changed since they were last compared or issued are not
    rated again.
    """
    earlier = Invoice.objects.filter(tenant=tenant, kind=InvoiceKind.INVOICE).order_by("-period_start")
    invoices = list(earlier.defer("inputs", "seller", "buyer").select_related("usage_check"))
    # Read before the usage, so that usage arriving meanwhile is compared again.
    states = usage_states(tenant, [Period(start=invoice.period_start, end=invoice.period_end) for invoice in invoices])
    adjustments: list[Adjustment] = []
    compared_states: dict[str, str] = {}
    failed_numbers: list[str] = []
    for invoice in invoices:
        check = getattr(invoice, "usage_check", None)
        state = states[invoice.period_start]
        if (check is not None and check.digest == state) or not invoice.inputs:
            continue
        try:
            adjustments += adjustments_due(invoice, with_current_usage(invoice, from_json(invoice.inputs)))
        except (NoPrice, ValueError) as error:
            log.warning("late_usage_not_rated", invoice=invoice.pk, reason=str(error))
            failed_numbers.append(invoice.number)
        else:
            compared_states[invoice.pk] = state
    return LateUsage(adjustments=adjustments, compared_states=compared_states, failed_numbers=failed_numbers)


def store_usage_states(states: Mapping[str, str], now: datetime) -> None:
    """Stores the state of the usage of these invoices, by invoice id, so that unchanged usage is not compared again."""
    UsageCheck.objects.bulk_create(
        (UsageCheck(invoice_id=pk, digest=state, checked_at=now) for pk, state in states.items()),
        update_conflicts=True, unique_fields=["invoice"], update_fields=["digest", "checked_at"],
    )  # fmt: skip


def usage_states(tenant: Tenant, periods: Sequence[Period]) -> dict[datetime, str]:
    """Returns the state of a tenant's usage in each of the months, by start of the month.

    The state changes whenever an hour of usage is written, and with each operation that takes effect. Two queries
    read one row per instance and month, regardless of the number of hours.
    """
    if not periods:
        return {}
    operations = Operation.objects.filter(tenant=tenant)
    ids = operations.order_by().values_list("instance_id", flat=True).distinct()
    revisions = dict(
        UsageRevision.objects.filter(instance_id__in=list(ids), month__gte=min(period.start for period in periods))
        .order_by()
        .values("month")
        .annotate(sum=Sum("revision"))
        .values_list("month", "sum")
    )
    effective = Q(state=OperationState.SUCCEEDED) | Q(type=OperationType.DELETE)
    operations_by_month = list(
        operations.filter(effective)
        .order_by()
        .annotate(month=TruncMonth("created_at", tzinfo=UTC))
        .values("month")
        .annotate(count=Count("pk"), last=Max("finished_at"))
        .values_list("month", "count", "last")
    )
    states = {}
    for period in periods:
        effective_operations = [(count, last) for month, count, last in operations_by_month if month < period.end]
        last_finished_at = max((last for _, last in effective_operations if last is not None), default=None)
        count = sum(count for count, _ in effective_operations)
        finished_s = last_finished_at.timestamp() if last_finished_at else 0
        states[period.start] = f"{revisions.get(period.start, 0)} {count} {finished_s:.6f}"
    return states


def with_current_usage(invoice: Invoice, inputs: Inputs) -> Inputs:
    """Returns the inputs of an invoice with the currently stored usage instead of the usage when it was issued."""
    components = (component for prices in inputs.prices for component in prices.components)
    has_rates = any(component.meter is Meter.BANDWIDTH_P95 for component in components)
    return replace(inputs, usage=consumption.of_tenant(invoice.tenant, inputs.period, with_rates=has_rates))


def adjustments_due(invoice: Invoice, inputs: Inputs) -> Iterator[Adjustment]:
    """Yields the differences between the amounts due for `inputs` and the amounts that the invoice charges.

    The invoice's later corrections count as charged.

    Amounts are compared by the tax rate in force at the time of use.
    """
    charged_by_key: dict[Key, Decimal] = defaultdict(Decimal)
    for charged_line in _charged_lines(invoice):
        # Old lines have no rate of their own; they have the rate of the invoice that they belong to.
        tax_percent = invoice.tax_percent if charged_line.tax_percent is None else charged_line.tax_percent
        key = charged_line.instance_id, charged_line.plan, charged_line.meter, tax_percent or Decimal(0)
        charged_by_key[key] += charged_line.amount
    due_by_key: dict[Key, Decimal] = defaultdict(Decimal)
    for rated_line in inputs.compute_bill().lines:
        key = rated_line.instance_id, rated_line.plan, rated_line.meter, rated_line.tax_percent
        due_by_key[key] += rated_line.amount
    for key in sorted({*due_by_key, *charged_by_key}):
        amount = due_by_key[key] - charged_by_key[key]
        if amount:
            instance_id, plan, meter, tax_percent = key
            correction = RatedLine(
                kind="adjustment", instance_id=instance_id, plan=plan, meter=meter, start=inputs.period.start,
                end=inputs.period.end, quantity=Decimal(1), unit="", unit_price=amount, amount=amount,
                tax_percent=tax_percent,
            )  # fmt: skip
            yield Adjustment(corrects=invoice, charged=charged_by_key[key], line=correction)


def _charged_lines(invoice: Invoice) -> list[InvoiceLine]:
    """Returns the invoice's own lines and later corrections of it, without its corrections of other invoices."""
    own_lines = InvoiceLine.objects.filter(invoice=invoice).exclude(kind="adjustment")
    corrections = InvoiceLine.objects.filter(corrects=invoice, kind="adjustment")
    return [*own_lines, *corrections]
