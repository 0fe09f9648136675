"""Usage that came in after an invoice was issued: the difference is a line of the next one. Nothing issued changes."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal

import structlog
from django.db.models import Sum
from django.db.models.functions import TruncMonth

from billing import consumption
from billing.invoices.snapshot import Inputs, from_json
from billing.models import Invoice, InvoiceKind, InvoiceLine, UsageCheck, UsageHour
from billing.rating.hours import NoPrice
from billing.rating.terms import Meter, RatedLine
from instances.models import Operation
from tenants.models import Tenant

log = structlog.get_logger(__name__)

# The latest invoices are always compared with the usage, older ones when their usage has changed.
ALWAYS_COMPARED = 3
Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjustment:
    """What the lines of one meter of an earlier invoice lack (or have too much), and what they charge so far."""

    corrects: Invoice
    charged: Decimal
    line: RatedLine


@dataclass(frozen=True, slots=True, kw_only=True)
class LateUsage:
    """Adjustments of earlier invoices, however old. `compared` has the digest of the usage of each invoice that was
    compared; `failed` has the numbers of invoices that could not be.
    """

    adjustments: Sequence[Adjustment]
    compared: Mapping[str, str]
    failed: Sequence[str]


def adjustments_of(tenant: Tenant) -> Sequence[Adjustment]:
    """Adjustments of all earlier invoices; nothing is written."""
    return late_usage(tenant).adjustments


def late_usage(tenant: Tenant) -> LateUsage:
    """Late usage of all earlier invoices, at the prices and the agreement they were made with. What was adjusted
    already is not adjusted again. An invoice that cannot be rated again keeps no other from being adjusted.
    """
    earlier = Invoice.objects.filter(tenant=tenant, kind=InvoiceKind.INVOICE).order_by("-period_start")
    rows = list(earlier.defer("inputs").select_related("usage_check"))
    # Read before the usage: what comes meanwhile is looked at again.
    digests = _digests(tenant, rows)
    adjustments: list[Adjustment] = []
    compared: dict[str, str] = {}
    failed: list[str] = []
    for position, row in enumerate(rows):
        check = getattr(row, "usage_check", None)
        if position >= ALWAYS_COMPARED and check is not None and check.digest == digests[row.pk]:
            continue
        if not row.inputs:
            continue
        try:
            adjustments += missing(row, as_known_now(row, from_json(row.inputs)))
        except (NoPrice, ValueError) as trouble:
            log.warning("late_usage_not_rated", invoice=row.pk, reason=str(trouble))
            failed.append(row.number)
        else:
            compared[row.pk] = digests[row.pk]
    return LateUsage(adjustments=adjustments, compared=compared, failed=failed)


def remember_compared(late: LateUsage, now: datetime) -> None:
    """Keeps the digests, so that invoices without late usage are not compared again."""
    UsageCheck.objects.bulk_create(
        (UsageCheck(invoice_id=pk, digest=digest, checked_at=now) for pk, digest in late.compared.items()),
        update_conflicts=True, unique_fields=["invoice"], update_fields=["digest", "checked_at"],
    )  # fmt: skip


def _digests(tenant: Tenant, invoices: Sequence[Invoice]) -> dict[str, str]:
    """Digest of what all instances of the tenant used in the period of each invoice."""
    if not invoices:
        return {}
    ids = Operation.objects.filter(tenant=tenant).order_by().values_list("instance_id", flat=True).distinct()
    rows = (
        UsageHour.objects.filter(instance_id__in=list(ids), hour__gte=min(each.period_start for each in invoices))
        .annotate(month=TruncMonth("hour", tzinfo=UTC))
        .order_by("month", "instance_id", "direction")
        .values_list("month", "instance_id", "direction")
        .annotate(Sum("bytes"))
    )
    by_month: dict[datetime, list[str]] = defaultdict(list)
    for month, *values in rows:
        by_month[month].append(" ".join(map(str, values)))
    return {each.pk: hashlib.sha256("\n".join(by_month[each.period_start]).encode()).hexdigest() for each in invoices}


def as_known_now(invoice: Invoice, inputs: Inputs) -> Inputs:
    """With the usage that is known now."""
    has_rates = any(each.meter is Meter.BANDWIDTH_P95 for one in inputs.prices for each in one.components)
    return replace(inputs, usage=consumption.of_tenant(invoice.tenant, inputs.period, with_rates=has_rates))


def missing(invoice: Invoice, inputs: Inputs) -> Iterator[Adjustment]:
    """What is due for these inputs beyond what the invoice and later corrections of it charge."""
    charged: dict[Key, Decimal] = defaultdict(Decimal)
    for each in _charged_lines(invoice):
        charged[each.instance_id, each.plan, each.meter] += each.amount
    due: dict[Key, Decimal] = defaultdict(Decimal)
    for rated in inputs.rated().lines:
        due[rated.instance_id, rated.plan, rated.meter] += rated.amount
    for key in sorted({*due, *charged}):
        amount = due[key] - charged[key]
        if amount:
            instance_id, plan, meter = key
            line = RatedLine(
                kind="adjustment", instance_id=instance_id, plan=plan, meter=meter, start=inputs.period.start,
                end=inputs.period.end, quantity=Decimal(1), unit="", unit_price=amount, amount=amount,
            )  # fmt: skip
            yield Adjustment(corrects=invoice, charged=charged[key], line=line)


def _charged_lines(invoice: Invoice) -> list[InvoiceLine]:
    """Its own, and what later invoices corrected; its own corrections are of others."""
    own = InvoiceLine.objects.filter(invoice=invoice).exclude(kind="adjustment")
    later = InvoiceLine.objects.filter(corrects=invoice, kind="adjustment")
    return [*own, *later]
