"""Writes: issuing an invoice, closing it, correcting it by a credit note; by operators and the system alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Min, Sum
from django.utils.translation import gettext_noop

from billing import prices
from billing.dunning import services as dunning
from billing.invoices import mailing
from billing.invoices.adjustments import Adjustment, adjustments_of
from billing.invoices.charging import inputs_of
from billing.invoices.snapshot import to_json
from billing.models import (
    NEVER,
    BillingProfile,
    Invoice,
    InvoiceKind,
    InvoiceLine,
    InvoiceSeries,
    InvoiceState,
    Seller,
    UsageOffset,
    WebhookEvent,
)
from billing.models.agreements import ONLY_SELLER
from billing.models.invoices import REFERENCE_CHARS_MAX
from billing.rating.hours import NoPrice
from billing.rating.terms import Period, RatedLine
from billing.webhooks.services import publish
from brokers.contract.usage import USAGE_INTERVAL_MS
from brokers.models import Placement
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.currencies import rounded
from tenants.errors import Conflict, Invalid, Message
from tenants.models import Tenant

HUNDRED = Decimal(100)
REVERSE_CHARGE_NOTE = "Reverse charge: the recipient owes the tax."
CLOSED_EVENTS = {
    InvoiceState.PAID: WebhookEvent.INVOICE_PAID,
    InvoiceState.WRITTEN_OFF: WebhookEvent.INVOICE_WRITTEN_OFF,
}
CLOSED = {InvoiceState.PAID: "invoice.paid", InvoiceState.WRITTEN_OFF: "invoice.written_off"}


@transaction.atomic
def issue(*, acting: Actor, tenant: Tenant, period: Period, now: datetime) -> Invoice | None:
    """The invoice of a period that is over; the one there is, if it was issued before. None: there is nothing to
    charge and nothing to correct.

    Raises:
        Conflict: the period is not over, its usage is not complete, or a plan has no price.
    """
    access.require(acting, Scope.OPERATOR)
    # One at a time for a tenant: a task that runs twice finds what the other one made.
    Tenant.objects.select_for_update().get(pk=tenant.pk)
    existing = Invoice.objects.filter(tenant=tenant, kind=InvoiceKind.INVOICE, period_start=period.start).first()
    if existing is not None:
        return existing
    if period.end > now:
        raise Conflict(
            Message(gettext_noop("The period ends at %(end)s."), end=period.end.isoformat()), code="period_not_over"
        )
    if not usage_is_complete(tenant, period):
        raise Conflict(
            gettext_noop("Not all usage of the period is read yet; try again in some minutes."), code="usage_incomplete"
        )
    try:
        inputs = inputs_of(tenant, period)
        bill = inputs.rated()
        late = list(adjustments_of(tenant))
    except NoPrice as missing:
        raise Conflict(str(missing), code="no_price") from None
    lines = [*bill.lines, *(each.line for each in late)]
    if not lines:
        return None
    invoice = _create(
        tenant, period, InvoiceKind.INVOICE, lines, late, tax_percent=inputs.agreement.tax_percent,
        currency=bill.currency, now=now, inputs=to_json(inputs),
    )  # fmt: skip
    audit.record(acting, "invoice.issued", invoice, None, _audited(invoice), tenant=tenant)
    publish(tenant, WebhookEvent.INVOICE_ISSUED, _audited(invoice) | {"id": invoice.pk}, now)
    transaction.on_commit(partial(mailing.send_issued, invoice))
    return invoice


@transaction.atomic
def credit(*, acting: Actor, invoice: Invoice, amount: Decimal, note: str, now: datetime) -> Invoice:
    """A credit note over `amount` before tax, at the tax of the invoice it corrects.

    Raises:
        Invalid: not an amount, or more than is left of the invoice.
    """
    access.require(acting, Scope.OPERATOR)
    locked = Invoice.objects.select_for_update().get(pk=invoice.pk)
    credited = locked.credit_notes.aggregate(sum=Sum("subtotal"))["sum"] or Decimal(0)
    left = locked.subtotal + credited
    if amount != rounded(amount) or not 0 < amount <= left:
        raise Invalid.at(
            "/amount",
            Message(gettext_noop("Between 0.01 and what is left of the invoice, %(left)s."), left=left),
            code="out_of_range",
        )
    if not note.strip():
        raise Invalid.at("/note", gettext_noop("Say what it is for."), code="required")
    line = RatedLine(
        kind="credit", instance_id="", plan="", meter="", start=locked.period_start, end=locked.period_end,
        quantity=Decimal(1), unit="", unit_price=-amount, amount=-amount,
    )  # fmt: skip
    period = Period(start=locked.period_start, end=locked.period_end)
    made = _create(
        locked.tenant, period, InvoiceKind.CREDIT_NOTE, [line], [], tax_percent=locked.tax_percent,
        currency=locked.currency, now=now, corrects=locked, note=note.strip()[:200],
    )  # fmt: skip
    audit.record(acting, "invoice.credited", made, None, _audited(made), tenant=locked.tenant)
    payload = _audited(made) | {"id": made.pk, "corrects": locked.number}
    publish(locked.tenant, WebhookEvent.INVOICE_CREDITED, payload, now)
    return made


@transaction.atomic
def close(*, acting: Actor, invoice: Invoice, state: InvoiceState, reference: str, now: datetime) -> Invoice:
    """Paid, or written off; once. The reference says by which payment, or why not.

    Raises:
        Conflict: it is closed already.
        Invalid: no reference.
    """
    access.require(acting, Scope.OPERATOR)
    locked = Invoice.objects.select_for_update().get(pk=invoice.pk)
    if locked.state != InvoiceState.ISSUED:
        raise Conflict(Message(gettext_noop("Invoice %(number)s is closed already."), number=locked.number))
    if not 0 < len(reference.strip()) <= REFERENCE_CHARS_MAX:
        raise Invalid.at("/reference", gettext_noop("Say by which payment, or why not."), code="required")
    locked.state, locked.closed_at, locked.reference = state, now, reference.strip()
    locked.save(update_fields=["state", "closed_at", "reference"])
    after = {"state": state, "reference": locked.reference}
    audit.record(acting, CLOSED[state], locked, {"state": InvoiceState.ISSUED}, after, tenant=locked.tenant)
    publish(locked.tenant, CLOSED_EVENTS[state], _audited(locked) | {"id": locked.pk}, now)
    dunning.resume_if_paid(locked.tenant, now)
    return locked


def has_seller() -> bool:
    """Whether somebody said who issues invoices; until then it is Penstock."""
    return Seller.objects.filter(pk=ONLY_SELLER).exists()


def usage_is_complete(tenant: Tenant, period: Period) -> bool:
    """Whether every broker of every cluster the tenant is placed on was read past the end of the period."""
    clusters = set(Placement.objects.filter(instance__tenant=tenant).values_list("cluster_id", flat=True))
    read = dict(
        UsageOffset.objects.filter(cluster_id__in=clusters)
        .values("cluster_id")
        .annotate(until=Min("updated_at"))
        .values_list("cluster_id", "until")
    )
    late = timedelta(milliseconds=USAGE_INTERVAL_MS)
    return all(read.get(cluster, NEVER) - late >= period.end for cluster in clusters)


def _create(
    tenant: Tenant,
    period: Period,
    kind: InvoiceKind,
    lines: Sequence[RatedLine],
    late: Sequence[Adjustment],
    *,
    tax_percent: Decimal,
    currency: str,
    now: datetime,
    inputs: dict[str, Any] | None = None,
    corrects: Invoice | None = None,
    note: str = "",
) -> Invoice:
    seller = Seller.objects.filter(pk=ONLY_SELLER).first() or Seller()
    profile = prices.profile_of(tenant)
    subtotal = sum((line.amount for line in lines), Decimal(0))
    tax = rounded(subtotal * tax_percent / HUNDRED, currency)
    invoice = Invoice.objects.create(
        tenant=tenant,
        kind=kind,
        number=_next_number(seller, kind, now),
        corrects=corrects,
        period_start=period.start,
        period_end=period.end,
        currency=currency,
        subtotal=subtotal,
        tax_percent=tax_percent,
        tax=tax,
        total=subtotal + tax,
        seller={"name": seller.name, "address": seller.address, "tax_id": seller.tax_id},
        buyer=_buyer(tenant, profile),
        note=note or (REVERSE_CHARGE_NOTE if profile.reverse_charge else ""),
        inputs=inputs or {},
        issued_at=now,
        due_at=now + timedelta(days=seller.payment_days),
    )
    corrected = {id(each.line): each.corrects for each in late}
    InvoiceLine.objects.bulk_create(
        InvoiceLine(
            invoice=invoice, position=position, kind=line.kind, corrects=corrected.get(id(line)) or corrects,
            instance_id=line.instance_id, plan=line.plan, meter=line.meter, start=line.start, end=line.end,
            quantity=line.quantity, unit=line.unit, unit_price=line.unit_price, amount=line.amount,
            hours=line.hours,
        )
        for position, line in enumerate(lines, start=1)
    )  # fmt: skip
    return invoice


def _next_number(seller: Seller, kind: InvoiceKind, now: datetime) -> str:
    """Without gaps: taken in the transaction that issues, whose end frees the series."""
    letter = "C" if kind == InvoiceKind.CREDIT_NOTE else ""
    prefix = f"{seller.number_prefix}{letter}-{now.year}"
    InvoiceSeries.objects.get_or_create(prefix=prefix)
    series = InvoiceSeries.objects.select_for_update().get(prefix=prefix)
    series.last_number += 1
    series.save(update_fields=["last_number"])
    return f"{prefix}-{series.last_number:05d}"


def _buyer(tenant: Tenant, profile: BillingProfile) -> dict[str, str]:
    return {
        "name": profile.legal_name or tenant.name,
        "address": profile.address,
        "tax_id": profile.tax_id,
        "email": profile.email,
        "tenant": tenant.slug,
    }


def _audited(invoice: Invoice) -> dict[str, Any]:
    return {"number": invoice.number, "total": str(invoice.total), "currency": invoice.currency}
