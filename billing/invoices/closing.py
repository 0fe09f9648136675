"""Closing of a month: issues the invoice of every tenant with charges. A tenant's failure does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

import structlog
from django.db.models import Q, QuerySet

from billing import action_items
from billing.invoices import issuing
from billing.invoices.periods import month_before, month_of
from billing.models import ActionKind, BillingProfile, Invoice, InvoiceKind
from billing.rating.terms import Period
from instances.models import Instance
from tenants.actors import Actor, system_actor
from tenants.errors import Conflict
from tenants.models import Tenant

log = structlog.get_logger(__name__)

FAILED = "It failed; the log says why."
# Codes of conflicts that resolve themselves later.
PASSES = ("usage_incomplete", "period_not_over")


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """Result of closing a month. `waiting` has the reason why an invoice could not be issued, by tenant slug."""

    period: Period
    issued: int
    nothing_to_charge: int
    waiting: dict[str, str]


# Callback with the number of processed tenants and the total.
Progress = Callable[[int, int], None]


def tenants_without_invoice(period: Period) -> QuerySet[Tenant]:
    """Returns the tenants without an invoice of the period that may have charges.

    These had an instance in the period or in the month before (usage may arrive late), or agreed on a minimum.
    """
    since = month_before(period).start
    had = Instance.objects.filter(Q(deleted_at=None) | Q(deleted_at__gte=since), created_at__lt=period.end)
    invoiced = Invoice.objects.filter(kind=InvoiceKind.INVOICE, period_start=period.start).values("tenant_id")
    agreed = BillingProfile.objects.filter(
        Q(minimum_from=None) | Q(minimum_from__lt=period.end.date()), minimum__gt=0, tenant__created_at__lt=period.end
    )
    is_charged = Q(pk__in=had.values("tenant_id")) | Q(pk__in=agreed.values("tenant_id"))
    return Tenant.objects.filter(is_charged).exclude(pk__in=invoiced).order_by("pk")


def tenants_to_invoice(period: Period) -> Iterator[Tenant]:
    """Iterates over the tenants without an invoice of the period, in chunks."""
    return tenants_without_invoice(period).iterator(chunk_size=500)


def close_month(
    now: datetime, *, acting: Actor | None = None, period: Period | None = None, progress: Progress | None = None
) -> Closing:
    """Issues the invoices of `period`, by default the month before `now`. Idempotent, and safe to run concurrently.

    A tenant whose invoice fails becomes an action item for operators and does not stop the others.
    """
    closed = period or month_before(month_of(now))
    issued = nothing = 0
    waiting: dict[str, str] = {}
    failed: set[str] = set()
    count = tenants_without_invoice(closed).count() if progress is not None else 0
    for position, tenant in enumerate(tenants_to_invoice(closed)):
        if progress is not None:
            progress(position, count)
        actor = (acting or system_actor("invoices")).within(tenant)
        try:
            invoice = issuing.issue(acting=actor, tenant=tenant, period=closed, now=now)
        except Conflict as refused:
            waiting[tenant.slug] = str(refused.detail)
            log.info("invoice_waits", tenant=tenant.pk, reason=refused.code)
            if refused.code not in PASSES:
                failed.add(tenant.pk)
                action_items.note(tenant, ActionKind.CLOSING, str(refused.detail), now)
            continue
        except Exception as failure:  # a failure of one tenant must not stop the others
            waiting[tenant.slug] = FAILED
            log.exception("invoice_failed", tenant=tenant.pk, reason=type(failure).__name__)
            failed.add(tenant.pk)
            action_items.note(tenant, ActionKind.CLOSING, FAILED, now)
            continue
        issued += invoice is not None
        nothing += invoice is None
    action_items.clear_all_but(ActionKind.CLOSING, failed)
    return Closing(period=closed, issued=issued, nothing_to_charge=nothing, waiting=waiting)
