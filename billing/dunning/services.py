"""Writes: reminders of overdue invoices, and suspension and resumption of tenants. Idempotent and safe to run
concurrently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import structlog
from django.db import IntegrityError, transaction

from billing import action_items
from billing.dunning import decide
from billing.invoices import mailing
from billing.invoices.open_amounts import with_open_amount
from billing.models import (
    ActionKind,
    Invoice,
    InvoiceKind,
    InvoiceReminder,
    InvoiceState,
    Seller,
    UnpaidSuspension,
)
from billing.models.agreements import ONLY_SELLER
from notifications.models import WebhookEvent
from notifications.webhooks.services import publish
from tenants import services as tenant_services
from tenants.actors import system_actor
from tenants.choices import SuspensionReason
from tenants.errors import Conflict
from tenants.models import Tenant

log = structlog.get_logger(__name__)

ACTOR_NAME = "invoices"
ZERO = Decimal(0)
WARNING_PERIOD_MIN = timedelta(days=1)


def dun(now: datetime) -> None:
    """Reminds and suspends tenants, and resumes those without overdue invoices.

    A tenant whose processing fails becomes an action item for operators and does not stop the others.
    """
    terms = terms_in_force()
    failed: set[str] = set()

    def process(tenant: Tenant) -> None:
        _remind(tenant, terms, now)
        _suspend(tenant, terms, now)

    for tenant in _tenants_overdue(now):
        _run_or_record_failure(tenant, partial(process, tenant), failed, now)
    for tenant in Tenant.objects.filter(pk__in=UnpaidSuspension.objects.values("tenant_id")).order_by("pk"):
        _run_or_record_failure(tenant, partial(resume_if_paid, tenant, now), failed, now)
    action_items.clear_all_but(ActionKind.DUNNING, failed)


def _run_or_record_failure(tenant: Tenant, process: Callable[[], Any], failed: set[str], now: datetime) -> None:
    try:
        process()
    except Exception as failure:
        log.exception("dunning_failed", tenant=tenant.pk, reason=type(failure).__name__)
        failed.add(tenant.pk)
        action_items.record(tenant, ActionKind.DUNNING, "", now)


def terms_in_force() -> decide.DunningTerms:
    """Returns the terms of the seller, or the defaults without a seller."""
    seller = Seller.objects.filter(pk=ONLY_SELLER).first() or Seller()
    return decide.DunningTerms(
        first_reminder_days=seller.first_reminder_days,
        second_reminder_days=seller.second_reminder_days,
        suspend_days=seller.suspend_days,
    )


def overdue_of(tenant: Tenant, now: datetime) -> list[Invoice]:
    """Returns overdue invoices with their `open_amount`, earliest due date first; fully credited ones are
    not overdue.
    """
    invoices = Invoice.objects.filter(
        tenant=tenant, kind=InvoiceKind.INVOICE, state=InvoiceState.ISSUED, due_at__lt=now
    )
    return list(with_open_amount(invoices.defer("inputs")).filter(open_amount__gt=ZERO).order_by("due_at", "pk"))


@transaction.atomic
def resume_if_paid(tenant: Tenant, now: datetime) -> bool:
    """Ends a suspension because of overdue invoices once they are paid.

    A suspension that an operator ended or made for another reason is not touched.
    """
    # The same lock as in `_suspend`, so that one of two concurrent transactions sees the other's result.
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    suspension = UnpaidSuspension.objects.filter(tenant=tenant).first()
    if suspension is None or overdue_of(tenant, now):
        return False
    suspension.delete()
    if tenant.suspension_reason != SuspensionReason.UNPAID:
        return False
    tenant_services.resume_tenant(acting=system_actor(ACTOR_NAME), tenant=tenant)
    return True


def _tenants_overdue(now: datetime) -> Iterator[Tenant]:
    overdue = Invoice.objects.filter(kind=InvoiceKind.INVOICE, state=InvoiceState.ISSUED, due_at__lt=now, total__gt=0)
    return Tenant.objects.filter(pk__in=overdue.values("tenant_id")).order_by("pk").iterator(chunk_size=500)


def _remind(tenant: Tenant, terms: decide.DunningTerms, now: datetime) -> None:
    for invoice in overdue_of(tenant, now):
        sent = InvoiceReminder.objects.filter(invoice=invoice).values_list("number", flat=True)
        number = decide.reminder_due((now - invoice.due_at).days, terms, list(sent))
        if number is None:
            continue
        try:
            with transaction.atomic():
                InvoiceReminder.objects.create(invoice=invoice, number=number, sent_at=now)
                publish(tenant, WebhookEvent.INVOICE_OVERDUE, _payload(invoice, number), now)
                mailing.after_commit(mailing.send_reminder, invoice, terms.suspend_days)
        except IntegrityError:
            continue  # another run sent it


def _payload(invoice: Invoice, number: int) -> dict[str, Any]:
    return {
        "id": invoice.pk, "number": invoice.number, "due_at": invoice.due_at.isoformat(),
        "open_amount": str(invoice.open_amount),  # type: ignore[attr-defined]
        "currency": invoice.currency, "reminder": number,
    }  # fmt: skip


def _was_reminded(invoice: Invoice, now: datetime) -> bool:
    """True if a reminder was sent at least a day ago.

    It is required, so that no tenant is suspended without a warning when suspension has just been switched on.
    """
    return InvoiceReminder.objects.filter(invoice=invoice, sent_at__lte=now - WARNING_PERIOD_MIN).exists()


def _suspend(tenant: Tenant, terms: decide.DunningTerms, now: datetime) -> None:
    try:
        with transaction.atomic():
            # Serialises with a transaction that marks the invoice as paid.
            Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
            overdue = overdue_of(tenant, now)
            if not overdue or not decide.must_suspend((now - overdue[0].due_at).days, terms):
                return
            if terms.reminders and not _was_reminded(overdue[0], now):
                return
            note = f"Invoice {overdue[0].number} was due on {overdue[0].due_at:%Y-%m-%d}."
            tenant_services.suspend_tenant(
                acting=system_actor(ACTOR_NAME), tenant=tenant, reason=SuspensionReason.UNPAID, note=note
            )
            UnpaidSuspension.objects.update_or_create(tenant=tenant, defaults={"made_at": now})
            log.warning("tenant_suspended_unpaid", tenant=tenant.pk, invoice=overdue[0].pk)
    except Conflict:
        return  # the tenant is already suspended
