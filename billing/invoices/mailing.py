"""Mails about invoices, to the addresses of the billing profile or to owners and finance with verified addresses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog
from django.db import transaction
from django.utils import timezone

from billing import action_items
from billing.invoices import printing
from billing.models import ActionKind, Invoice, UntakenMail
from billing.models.agreements import emails_in
from tenants import mails
from tenants.choices import Role
from tenants.models import Member

RECIPIENTS_MAX = 20
log = structlog.get_logger(__name__)


def after_commit(send: Callable[..., int], invoice: Invoice, *args: Any) -> None:
    """Sends mails about an invoice after the transaction commits.

    A failure is recorded for operators. It affects neither the committed rows nor the rest of the round.
    """
    transaction.on_commit(partial(_send_or_record_failure, send, invoice, *args))


def _send_or_record_failure(send: Callable[..., int], invoice: Invoice, *args: Any) -> None:
    try:
        send(invoice, *args)
    except Exception as failure:
        log.exception("invoice_mail_failed", invoice=invoice.pk, reason=type(failure).__name__)
        _record_rejected_mail(invoice)
        action_items.record(invoice.tenant, ActionKind.MAIL, invoice.number, timezone.now())


def send_issued(invoice: Invoice) -> int:
    """Sends the invoice by mail and returns the number of mails that the server accepted.

    A rejected mail is not retried: the console shows the invoice, and the page that closes the month its number.
    """
    link = mails.public_url(f"/invoices/{invoice.pk}/")
    recipients = _recipients(invoice)
    files = {
        language: mails.Attachment(f"{invoice.number}.pdf", printing.as_pdf(invoice, language), "application/pdf")
        for language in {language for _, language in recipients}
    }
    accepted = sum(
        mails.send(
            "invoice", address, language, attachment=files[language], invoice=invoice, tenant=invoice.tenant.name,
            link=link,
        )
        for address, language in recipients
    )  # fmt: skip
    if accepted < len(recipients):
        _record_rejected_mail(invoice)
    return accepted


def invoices_with_rejected_mail(month: datetime) -> list[str]:
    """Returns the numbers of the month's invoices with at least one mail that the server rejected."""
    rejected = UntakenMail.objects.filter(invoice__period_start=month).order_by("invoice__number")
    return list(rejected.values_list("invoice__number", flat=True))


def _record_rejected_mail(invoice: Invoice) -> None:
    UntakenMail.objects.update_or_create(invoice=invoice)


def send_reminder(invoice: Invoice, suspend_days: int) -> int:
    """Sends a reminder that the invoice is overdue and returns the number of mails that the server accepted.

    `invoice` must carry its `open_amount`. After `suspend_days` overdue its tenant is suspended, unless that is 0. A
    rejected mail is recorded and not retried.
    """
    suspends_on = invoice.due_at + timedelta(days=suspend_days) if suspend_days else None
    link = mails.public_url(f"/invoices/{invoice.pk}/")
    recipients = _recipients(invoice)
    accepted = sum(
        mails.send(
            "reminder", address, language, invoice=invoice, tenant=invoice.tenant.name, link=link,
            suspends_on=suspends_on,
        )
        for address, language in recipients
    )  # fmt: skip
    if accepted < len(recipients):
        _record_rejected_mail(invoice)
    return accepted


def _recipients(invoice: Invoice) -> list[tuple[str, str]]:
    members = Member.objects.filter(
        tenant=invoice.tenant, role__in=(Role.OWNER, Role.FINANCE), user__is_active=True,
        user__email_verified_at__isnull=False,
    ).select_related("user").order_by("pk")  # fmt: skip
    recipients = [(member.user.email, member.user.language) for member in members[:RECIPIENTS_MAX]]
    if addresses := emails_in(invoice.buyer["email"]):
        return [(address, recipients[0][1] if recipients else "en") for address in addresses]
    return recipients
