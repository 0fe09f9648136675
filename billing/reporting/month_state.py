"""Reads: state of a month before it is closed, with a number of queries that does not depend on the number
of tenants.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from django.db.models import Count, Min, Q, QuerySet, Sum

from billing import consumption
from billing.invoices import issuing, mailing, month_runs
from billing.invoices.closing import tenants_without_invoice
from billing.invoices.month_runs import LastClosing, MonthRun, RunKind
from billing.invoices.unpriced import plans_without_price
from billing.lake import outcomes
from billing.models import (
    NEVER,
    BillingProfile,
    Invoice,
    InvoiceKind,
    InvoiceLine,
    InvoiceState,
    LakeFile,
    Price,
    UsageOffset,
)
from billing.rating.terms import Period
from billing.retention import partitions
from billing.retention.weeks import TableState
from brokers.contract.usage import USAGE_INTERVAL_MS
from brokers.models import Cluster, Placement
from instances.models import Operation
from notifications.models import DeliveryState, WebhookDelivery, WebhookEvent
from tenants.choices import Role
from tenants.models import Member, Tenant

SAMPLE_SIZE = 5
# Maximum number of tenants without an invoice whose plans are checked.
TENANTS_CHECKED_MAX = 5_000
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class NameSample:
    """Number of items, and the names of the first `SAMPLE_SIZE` of them."""

    count: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeDays:
    """Past days of the month by outcome of the comparison with the lake.

    `without_lake` are days before the lake existed.
    """

    equal: int = 0
    different: tuple[date, ...] = ()
    broken: tuple[date, ...] = ()
    unknown: int = 0
    without_lake: int = 0


class Adjustments(NamedTuple):
    """Lines of the month's invoices that correct earlier ones, in one currency."""

    currency: str
    lines: int
    amount: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthState:
    """State of one month. `unpriced` are plans with the currency in which they lack a price."""

    period: Period
    now: datetime
    clusters: int
    clusters_behind: NameSample
    minutes: TableState
    lake: LakeDays
    has_seller: bool
    without_profile: NameSample
    without_tax_details: NameSample
    unpriced: NameSample
    unpriced_tenants: int
    to_invoice: int
    issued: int
    open: int
    overdue: int
    closing: LastClosing | None
    late: MonthRun | None
    adjustments: tuple[Adjustments, ...]
    webhooks_failed: int
    mails_rejected: NameSample
    unreachable_tenants: NameSample

    @property
    def is_over(self) -> bool:
        return self.period.end <= self.now


def month_state(period: Period, now: datetime) -> MonthState:
    """Reads the state of the month; no bill is computed."""
    month = f"{period.start:%Y-%m}"
    uninvoiced = tenants_without_invoice(period)
    clusters, unread_clusters = _clusters(period)
    unpriced, unpriced_tenants = _unpriced(uninvoiced, period)
    invoices = _invoices(period)
    counts = invoices.aggregate(
        issued=Count("pk"),
        open=Count("pk", filter=Q(state=InvoiceState.ISSUED)),
        overdue=Count("pk", filter=Q(state=InvoiceState.ISSUED, due_at__lt=now, total__gt=0)),
    )
    mails = mailing.invoices_with_rejected_mail(period.start)
    return MonthState(
        period=period,
        now=now,
        clusters=clusters,
        clusters_behind=unread_clusters,
        minutes=partitions.state(now),
        lake=_lake(period, now),
        has_seller=issuing.has_seller(),
        without_profile=_name_sample(uninvoiced.filter(billing_profile=None)),
        without_tax_details=_name_sample(_without_tax_details()),
        unpriced=unpriced,
        unpriced_tenants=unpriced_tenants,
        to_invoice=uninvoiced.count(),
        **counts,
        closing=month_runs.last_closing(month),
        late=month_runs.last_run(RunKind.LATE, month),
        adjustments=_adjustments(period),
        webhooks_failed=_webhooks_failed(period),
        mails_rejected=NameSample(len(mails), tuple(mails[:SAMPLE_SIZE])),
        unreachable_tenants=_unreachable_tenants(period),
    )


def _invoices(period: Period) -> QuerySet[Invoice]:
    return Invoice.objects.filter(kind=InvoiceKind.INVOICE, period_start=period.start)


def _name_sample(tenants: QuerySet[Tenant]) -> NameSample:
    names = tenants.order_by("name", "pk").values_list("name", flat=True)
    return NameSample(tenants.count(), tuple(names[:SAMPLE_SIZE]))


def _clusters(period: Period) -> tuple[int, NameSample]:
    """Returns the number of clusters with instances, and those not read past the end of the month."""
    used = Placement.objects.order_by().values_list("cluster_id", flat=True).distinct()
    names = dict(Cluster.objects.filter(pk__in=used).values_list("pk", "name"))
    read_until = dict(
        UsageOffset.objects.filter(cluster_id__in=list(names))
        .order_by()
        .values("cluster_id")
        .annotate(until=Min("updated_at"))
        .values_list("cluster_id", "until")
    )
    interval = timedelta(milliseconds=USAGE_INTERVAL_MS)
    unread_clusters = sorted(name for pk, name in names.items() if read_until.get(pk, NEVER) - interval < period.end)
    return len(names), NameSample(len(unread_clusters), tuple(unread_clusters[:SAMPLE_SIZE]))


def _lake(period: Period, now: datetime) -> LakeDays:
    first = LakeFile.objects.aggregate(first=Min("day"))["first"]
    return lake_days(days_of(period, now), outcomes.of_days(days_of(period, now)), first)


def days_of(period: Period, now: datetime) -> list[date]:
    """Returns the past days (UTC) of the period. Pure."""
    end = min(period.end, now.replace(hour=0, minute=0, second=0, microsecond=0))
    return [(period.start + n * DAY).date() for n in range(max(0, (end - period.start) // DAY))]


def lake_days(days: list[date], known: dict[date, int], first: date | None) -> LakeDays:
    """Classifies days. `first` is the day of the first file of the lake, which is incomplete. Pure."""
    whole = [day for day in days if first is not None and day > first]
    return LakeDays(
        equal=sum(known.get(day) == 0 for day in whole),
        different=tuple(day for day in whole if known.get(day, 0) > 0),
        broken=tuple(day for day in whole if known.get(day) == outcomes.BROKEN),
        unknown=sum(day not in known for day in whole),
        without_lake=len(days) - len(whole),
    )


def _without_tax_details() -> QuerySet[Tenant]:
    """Returns tenants that are charged tax, or owe it, without name, address or required tax id."""
    taxed = Q(tax_percent__gt=0) | Q(reverse_charge=True)
    lacks = Q(legal_name="") | Q(address="") | Q(reverse_charge=True, tax_id="")
    return Tenant.objects.filter(pk__in=BillingProfile.objects.filter(taxed & lacks).values("tenant_id"))


def _unpriced(uninvoiced: QuerySet[Tenant], period: Period) -> tuple[NameSample, int]:
    """Returns the plans whose missing price would prevent invoices, and the number of tenants that it affects."""
    currencies = dict(uninvoiced.values_list("pk", "currency")[:TENANTS_CHECKED_MAX])
    operations = Operation.objects.filter(tenant_id__in=list(currencies))
    spans = consumption.spans_in(operations, period)
    owners = dict(operations.order_by().values_list("instance_id", "tenant_id").distinct())
    first_prices = {
        (plan, currency): first
        for plan, currency, first in Price.objects.order_by()
        .values_list("plan_id", "currency")
        .annotate(Min("effective_from"))
    }
    tenants_by_plan: dict[str, set[str]] = {}
    for instance_id, instance_spans in spans.items():
        tenant_id = owners[instance_id]
        for plan in plans_without_price(instance_spans, period, currencies[tenant_id], first_prices):
            tenants_by_plan.setdefault(f"{plan} ({currencies[tenant_id]})", set()).add(tenant_id)
    names = sorted(tenants_by_plan)
    return NameSample(len(names), tuple(names[:SAMPLE_SIZE])), len(set().union(*tenants_by_plan.values()))


def _adjustments(period: Period) -> tuple[Adjustments, ...]:
    rows = (
        InvoiceLine.objects.filter(invoice__in=_invoices(period).values("pk"), kind="adjustment")
        .order_by()
        .values_list("invoice__currency")
        .annotate(Count("pk"), Sum("amount"))
    )
    return tuple(Adjustments(*row) for row in sorted(rows))


def _webhooks_failed(period: Period) -> int:
    """Returns the number of failed deliveries of `invoice.issued` since the month ended."""
    rows = WebhookDelivery.objects.filter(
        event=WebhookEvent.INVOICE_ISSUED, state=DeliveryState.FAILED, created_at__gte=period.end
    )
    return rows.count()


def _unreachable_tenants(period: Period) -> NameSample:
    """Returns tenants of invoices without any address or verified owner or finance member: no mail was sent."""
    reached = Member.objects.filter(
        role__in=(Role.OWNER, Role.FINANCE), user__is_active=True, user__email_verified_at__isnull=False
    )
    rows = _invoices(period).filter(buyer__email="").exclude(tenant_id__in=reached.values("tenant_id"))
    return _name_sample(Tenant.objects.filter(pk__in=rows.values("tenant_id")))
