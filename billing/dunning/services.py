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

SYSTEM = "invoices"
NOTHING = Decimal(0)
WARNING = timedelta(days=1)


def dun(now: datetime) -> None:
    """Reminds and suspends tenants, and resumes those without overdue invoices.

    A tenant whose processing fails becomes an action item for operators and does not stop the others.
    """
    terms = terms_in_force()
    failed: set[str] = set()

    def act(tenant: Tenant) -> None:
        _remind(tenant, terms, now)
        _suspend(tenant, terms, now)

    for tenant in _tenants_overdue(now):
        _contained(tenant, partial(act, tenant), failed, now)
    for tenant in Tenant.objects.filter(pk__in=UnpaidSuspension.objects.values("tenant_id")).order_by("pk"):
        _contained(tenant, partial(resume_if_paid, tenant, now), failed, now)
    action_items.clear_all_but(ActionKind.DUNNING, failed)


def _contained(tenant: Tenant, act: Callable[[], Any], failed: set[str], now: datetime) -> None:
    try:
        act()
    except Exception as failure:
        log.exception("dunning_failed", tenant=tenant.pk, reason=type(failure).__name__)
        failed.add(tenant.pk)
        action_items.note(tenant, ActionKind.DUNNING, "", now)


def terms_in_force() -> decide.Terms:
    """Returns the terms of the seller, or the defaults without a seller."""
    seller = Seller.objects.filter(pk=ONLY_SELLER).first() or Seller()
    return decide.Terms(
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
    return list(with_open_amount(invoices.defer("inputs")).filter(open_amount__gt=NOTHING).order_by("due_at", "pk"))


@transaction.atomic
def resume_if_paid(tenant: Tenant, now: datetime) -> bool:
    """Ends a suspension because of overdue invoices once they are paid.

    A suspension that an operator ended or made for another reason is not touched.
    """
    # The same lock as in `_suspend`, so that one of two concurrent transactions sees the other's result.
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    made = UnpaidSuspension.objects.filter(tenant=tenant).first()
    if made is None or overdue_of(tenant, now):
        return False
    made.delete()
    if tenant.suspension_reason != SuspensionReason.UNPAID:
        return False
    tenant_services.resume_tenant(acting=system_actor(SYSTEM), tenant=tenant)
    return True


def _tenants_overdue(now: datetime) -> Iterator[Tenant]:
    late = Invoice.objects.filter(kind=InvoiceKind.INVOICE, state=InvoiceState.ISSUED, due_at__lt=now, total__gt=0)
    return Tenant.objects.filter(pk__in=late.values("tenant_id")).order_by("pk").iterator(chunk_size=500)


def _remind(tenant: Tenant, terms: decide.Terms, now: datetime) -> None:
    for invoice in overdue_of(tenant, now):
        said = InvoiceReminder.objects.filter(invoice=invoice).values_list("number", flat=True)
        number = decide.reminder_due((now - invoice.due_at).days, terms, list(said))
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
    return InvoiceReminder.objects.filter(invoice=invoice, sent_at__lte=now - WARNING).exists()


def _suspend(tenant: Tenant, terms: decide.Terms, now: datetime) -> None:
    try:
        with transaction.atomic():
            # Serialises with a transaction that marks the invoice as paid.
            Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
            late = overdue_of(tenant, now)
            if not late or not decide.is_to_be_suspended((now - late[0].due_at).days, terms):
                return
            if terms.reminders and not _was_reminded(late[0], now):
                return
            note = f"Invoice {late[0].number} was due on {late[0].due_at:%Y-%m-%d}."
            tenant_services.suspend_tenant(
                acting=system_actor(SYSTEM), tenant=tenant, reason=SuspensionReason.UNPAID, note=note
            )
            UnpaidSuspension.objects.update_or_create(tenant=tenant, defaults={"made_at": now})
            log.warning("tenant_suspended_unpaid", tenant=tenant.pk, invoice=late[0].pk)
    except Conflict:
        return  # the tenant is already suspended
