"""Closing of a month: issues the invoice of every tenant with charges. A tenant's failure does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from django.db.models import F, Q, QuerySet

from billing import action_items
from billing.invoices import issuing
from billing.invoices.periods import month_before, month_of
from billing.models import ActionKind, BillingProfile, Invoice, InvoiceKind, UsageRevision
from billing.rating.terms import Period
from instances.models import Instance
from tenants.actors import Actor, system_actor
from tenants.errors import Conflict
from tenants.models import Tenant

log = structlog.get_logger(__name__)

UNEXPECTED_FAILURE = "It failed; the log says why."
# Codes of conflicts that resolve themselves later.
TRANSIENT_CONFLICTS = ("usage_incomplete", "period_not_over")
# Shortest time, from the start of a month, in which its usage is evaluated: length of the shortest two adjacent months.
EVALUATION_MIN: Final = timedelta(days=59)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingResult:
    """Result of closing a month. `waiting` has the reason why an invoice could not be issued, by tenant slug."""

    period: Period
    issued: int
    nothing_to_charge: int
    waiting: dict[str, str]


# Callback with the number of processed tenants and the total.
ProgressCallback = Callable[[int, int], None]


def tenants_without_invoice(period: Period) -> QuerySet[Tenant]:
    """Returns the tenants without an invoice of the period that may have charges.

    A tenant may have charges if it had an instance in the period or in the month before, if usage of an earlier month
    arrived since the start of the month before, or if a minimum was agreed on.
    """
    since = month_before(period).start
    with_instance = Instance.objects.filter(Q(deleted_at=None) | Q(deleted_at__gte=since), created_at__lt=period.end)
    late_usage = UsageRevision.objects.filter(noted_at__gte=since, month__lt=period.start)
    with_late_usage = Instance.objects.filter(pk__in=late_usage.values("instance_id"))
    invoiced = Invoice.objects.filter(kind=InvoiceKind.INVOICE, period_start=period.start).values("tenant_id")
    with_minimum = BillingProfile.objects.filter(
        Q(minimum_from=None) | Q(minimum_from__lt=period.end.date()), minimum__gt=0, tenant__created_at__lt=period.end
    )
    may_have_charges = (
        Q(pk__in=with_instance.values("tenant_id"))
        | Q(pk__in=with_late_usage.values("tenant_id"))
        | Q(pk__in=with_minimum.values("tenant_id"))
    )
    return Tenant.objects.filter(may_have_charges).exclude(pk__in=invoiced).order_by("pk")


def late_months_without_invoice(closed: Period) -> list[tuple[str, datetime]]:
    """Returns months before `closed` that have no invoice, and whose usage arrived after their last evaluation.

    A month is evaluated until the following one ends. Late usage of a month that has an invoice is a line of the next
    invoice (`billing.invoices.adjustments`); a month without an invoice gets its own. Each pair is a tenant's id and
    the start of a month, ordered by month.
    """
    revisions = UsageRevision.objects.filter(noted_at__gte=month_before(closed).start, month__lt=closed.start)
    months = list(revisions.filter(noted_at__gte=F("month") + EVALUATION_MIN).values_list("instance_id", "month"))
    tenant_ids = dict(Instance.objects.filter(pk__in={pk for pk, _ in months}).values_list("pk", "tenant_id"))
    pairs = {(tenant_ids[pk], month) for pk, month in months if pk in tenant_ids}
    invoices = Invoice.objects.filter(kind=InvoiceKind.INVOICE, tenant_id__in={tenant_id for tenant_id, _ in pairs})
    invoiced = set(invoices.values_list("tenant_id", "period_start"))
    return sorted(pairs - invoiced, key=lambda pair: (pair[1], pair[0]))


def invoices_to_issue(closed: Period, *, with_earlier: bool) -> Iterator[tuple[Tenant, Period]]:
    """Iterates over tenants and months without an invoice, in chunks: earlier months used late, then `closed`."""
    if with_earlier:
        pairs = late_months_without_invoice(closed)
        tenants = Tenant.objects.in_bulk({tenant_id for tenant_id, _ in pairs})
        yield from ((tenants[tenant_id], month_of(month.astimezone(UTC))) for tenant_id, month in pairs)
    yield from ((tenant, closed) for tenant in tenants_without_invoice(closed).iterator(chunk_size=500))


def close_month(
    now: datetime,
    *,
    acting: Actor | None = None,
    period: Period | None = None,
    progress: ProgressCallback | None = None,
) -> ClosingResult:
    """Issues the invoices of `period`. Idempotent, and safe to run concurrently.

    The default is the month before `now`, together with earlier months that had no charges until usage arrived.

    A tenant whose invoice fails becomes an action item for operators and does not stop the others. Items of tenants
    that no longer fail are removed by the default round alone.
    """
    closed = period or month_before(month_of(now))
    issued = nothing_to_charge = 0
    waiting: dict[str, str] = {}
    failed: set[str] = set()
    tenant_count = tenants_without_invoice(closed).count() if progress is not None else 0
    for position, (tenant, month) in enumerate(invoices_to_issue(closed, with_earlier=period is None)):
        if progress is not None:
            progress(position, tenant_count)
        actor = (acting or system_actor("invoices")).within(tenant)
        try:
            invoice = issuing.issue(acting=actor, tenant=tenant, period=month, now=now)
        except Conflict as conflict:
            waiting[tenant.slug] = str(conflict.detail)
            log.info("invoice_waits", tenant=tenant.pk, reason=conflict.code)
            if conflict.code not in TRANSIENT_CONFLICTS:
                failed.add(tenant.pk)
                action_items.record(tenant, ActionKind.CLOSING, str(conflict.detail), now)
            continue
        except Exception as failure:  # a failure of one tenant must not stop the others
            waiting[tenant.slug] = UNEXPECTED_FAILURE
            log.exception("invoice_failed", tenant=tenant.pk, reason=type(failure).__name__)
            failed.add(tenant.pk)
            action_items.record(tenant, ActionKind.CLOSING, UNEXPECTED_FAILURE, now)
            continue
        issued += invoice is not None
        nothing_to_charge += invoice is None
    if period is None:
        # An item does not name its month: only the regular round knows that no other month failed.
        action_items.clear_all_but(ActionKind.CLOSING, failed)
    return ClosingResult(period=closed, issued=issued, nothing_to_charge=nothing_to_charge, waiting=waiting)
