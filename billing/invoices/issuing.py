"""Issues invoices, closes them as paid or written off, and issues credit notes; for operators and the system only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Min
from django.utils.translation import gettext_noop

from billing import action_items, prices
from billing.invoices import mailing
from billing.invoices.adjustments import Adjustment, late_usage, store_usage_states, usage_states
from billing.invoices.charging import inputs_of
from billing.invoices.notes import REVERSE_CHARGE_NOTE
from billing.invoices.snapshot import to_json
from billing.ledger import posting
from billing.ledger import services as ledger
from billing.ledger.services import FinalState, invoice_summary
from billing.models import (
    NEVER,
    ActionKind,
    BillingProfile,
    Invoice,
    InvoiceKind,
    InvoiceLine,
    InvoiceSeries,
    InvoiceState,
    LedgerKind,
    Seller,
    UsageOffset,
)
from billing.models.agreements import ONLY_SELLER
from billing.models.invoices import NOTE_CHARS_MAX, REFERENCE_CHARS_MAX
from billing.rating.hours import NoPrice
from billing.rating.taxes import split_credit, tax_sums
from billing.rating.terms import Period, RatedLine, TaxSum
from brokers.contract.usage import USAGE_INTERVAL_MS
from brokers.models import Placement
from notifications.models import WebhookEvent
from notifications.webhooks.services import publish
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.currencies import fits, minor_unit
from tenants.errors import Conflict, Invalid, Message
from tenants.models import Tenant


@transaction.atomic
def issue(*, acting: Actor, tenant: Tenant, period: Period, now: datetime) -> Invoice | None:
    """Issues the invoice of a past period, or returns the existing one; None if there is nothing to charge or correct.

    Raises:
        Conflict: the period is not over, its usage is not complete, or a plan has no price.
    """
    access.require(acting, Scope.OPERATOR)
    # Serialised per tenant: a task that runs twice finds the invoice that the first run created.
    posting.lock(tenant)
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
    # Read before the usage, so that usage arriving meanwhile counts as late.
    state = usage_states(tenant, [period])[period.start]
    try:
        inputs = inputs_of(tenant, period)
        bill = inputs.compute_bill()
    except NoPrice as error:
        raise Conflict(str(error), code="no_price") from None
    late = late_usage(tenant)
    store_usage_states(late.compared_states, now)
    if late.failed_numbers:
        action_items.record(tenant, ActionKind.LATE_USAGE, ", ".join(late.failed_numbers), now)
    else:
        action_items.clear(tenant, ActionKind.LATE_USAGE)
    adjustments = late.adjustments
    lines = [*bill.lines, *(adjustment.line for adjustment in adjustments)]
    if not lines:
        return None
    invoice = _create(
        tenant, period, InvoiceKind.INVOICE, lines, adjustments, taxes=tax_sums(lines, bill.currency),
        currency=bill.currency, now=now, inputs=to_json(inputs),
    )  # fmt: skip
    store_usage_states({invoice.pk: state}, now)
    audit.record(acting, "invoice.issued", invoice, None, invoice_summary(invoice), tenant=tenant)
    payload = {"id": invoice.pk, "from_balance": str(invoice.from_balance)}
    publish(tenant, WebhookEvent.INVOICE_ISSUED, invoice_summary(invoice) | payload, now)
    posting.post(
        tenant, invoice.currency, LedgerKind.INVOICE, invoice.total, now=now, invoice=invoice, document=invoice
    )
    ledger.apply_credit(acting=acting, tenant=tenant, currency=invoice.currency, now=now)
    invoice.refresh_from_db(fields=["state", "closed_at", "reference"])
    mailing.after_commit(mailing.send_issued, invoice)
    return invoice


@transaction.atomic
def credit(*, acting: Actor, invoice: Invoice, amount: Decimal, note: str, now: datetime) -> Invoice:
    """Issues a credit note over `amount` before tax, at the tax rates of the corrected invoice.

    The credit notes of an invoice sum to at most its amount, in net and in tax of each rate. The part that exceeds its
    open amount becomes credit.

    Raises:
        Invalid: the amount is not positive, or larger than the amount of the invoice without earlier credit notes.
    """
    access.require(acting, Scope.OPERATOR)
    posting.lock(invoice.tenant)
    locked = Invoice.objects.select_for_update().get(pk=invoice.pk)
    remaining = amounts_to_credit(locked)
    if not fits(amount, invoice.currency) or not 0 < amount <= remaining.net:
        raise Invalid.at(
            "/amount",
            Message(
                gettext_noop("Between %(least)s and what is left of the invoice, %(left)s."),
                least=minor_unit(invoice.currency),
                left=remaining.net,
            ),
            code="out_of_range",
        )
    if not note.strip():
        raise Invalid.at("/note", gettext_noop("Say what it is for."), code="required")
    parts = split_credit(amount, remaining.by_rate, locked.currency)
    lines = [
        RatedLine(
            kind="credit", instance_id="", plan="", meter="", start=locked.period_start, end=locked.period_end,
            quantity=Decimal(1), unit="", unit_price=-part.net, amount=-part.net, tax_percent=part.percent,
        )
        for part in parts
    ]  # fmt: skip
    period = Period(start=locked.period_start, end=locked.period_end)
    credit_note = _create(
        locked.tenant, period, InvoiceKind.CREDIT_NOTE, lines, [], currency=locked.currency, now=now, corrects=locked,
        note=note.strip()[:NOTE_CHARS_MAX],
        taxes=[TaxSum(percent=part.percent, base=-part.net, tax=-part.tax) for part in parts],
    )  # fmt: skip
    audit.record(acting, "invoice.credited", credit_note, None, invoice_summary(credit_note), tenant=locked.tenant)
    payload = invoice_summary(credit_note) | {"id": credit_note.pk, "corrects": locked.number}
    publish(locked.tenant, WebhookEvent.INVOICE_CREDITED, payload, now)
    ledger.reverse_write_off(locked, -credit_note.total, now)
    posting.post(
        locked.tenant,
        locked.currency,
        LedgerKind.CREDIT_NOTE,
        credit_note.total,
        now=now,
        invoice=locked,
        document=credit_note,
    )
    ledger.apply_credit(acting=acting, tenant=locked.tenant, currency=locked.currency, now=now)
    return credit_note


class Creditable(NamedTuple):
    """Net amount and tax of an invoice that no credit note covers yet, in total and by tax rate."""

    net: Decimal
    tax: Decimal
    by_rate: Sequence[TaxSum]


def amounts_to_credit(invoice: Invoice) -> Creditable:
    """Returns the largest amounts that a credit note of the invoice can have."""
    remaining = {tax_sum.percent: tax_sum for tax_sum in invoice.tax_sums()}
    for note in invoice.credit_notes.defer("inputs"):
        for credited_sum in note.tax_sums():
            rate_sum = remaining[credited_sum.percent]
            remaining[credited_sum.percent] = replace(
                rate_sum, base=rate_sum.base + credited_sum.base, tax=rate_sum.tax + credited_sum.tax
            )
    by_rate = list(remaining.values())
    columns = zip(*((tax_sum.base, tax_sum.tax) for tax_sum in by_rate), strict=True)
    net, tax = (sum(amounts, Decimal(0)) for amounts in columns)
    return Creditable(net, tax, by_rate)


@transaction.atomic
def close(*, acting: Actor, invoice: Invoice, state: InvoiceState, reference: str, now: datetime) -> Invoice:
    """Closes an open invoice as paid or written off. The reference names the payment or the reason.

    Raises:
        Conflict: the invoice is closed already, or is a credit note.
        Invalid: no reference.
    """
    access.require(acting, Scope.OPERATOR)
    posting.lock(invoice.tenant)
    locked = Invoice.objects.select_for_update().get(pk=invoice.pk)
    if locked.kind != InvoiceKind.INVOICE:
        raise Conflict(gettext_noop("A credit note is neither paid nor written off."), code="credit_note")
    if locked.state != InvoiceState.ISSUED:
        raise Conflict(Message(gettext_noop("Invoice %(number)s is closed already."), number=locked.number))
    reference = reference.strip()
    if not 0 < len(reference) <= REFERENCE_CHARS_MAX:
        raise Invalid.at("/reference", gettext_noop("Say by which payment, or why not."), code="required")
    if (open_amount := posting.open_amount(locked)) > 0:
        kind = LedgerKind.PAYMENT if state == InvoiceState.PAID else LedgerKind.WRITE_OFF
        posting.post(locked.tenant, locked.currency, kind, -open_amount, now=now, invoice=locked, reference=reference)
    ledger.mark_closed(acting, locked, FinalState(state, reference), now)
    ledger.apply_credit(acting=acting, tenant=locked.tenant, currency=locked.currency, now=now)
    return locked


def has_seller() -> bool:
    """True if a seller is configured; until then invoices are issued by Penstock."""
    return Seller.objects.filter(pk=ONLY_SELLER).exists()


def usage_is_complete(tenant: Tenant, period: Period) -> bool:
    """True if the usage of each cluster with an instance of the tenant was read past the end of the period."""
    clusters = set(Placement.objects.filter(instance__tenant=tenant).values_list("cluster_id", flat=True))
    read_until = dict(
        UsageOffset.objects.filter(cluster_id__in=clusters)
        .values("cluster_id")
        .annotate(until=Min("updated_at"))
        .values_list("cluster_id", "until")
    )
    interval = timedelta(milliseconds=USAGE_INTERVAL_MS)
    return all(read_until.get(cluster, NEVER) - interval >= period.end for cluster in clusters)


def _create(
    tenant: Tenant,
    period: Period,
    kind: InvoiceKind,
    lines: Sequence[RatedLine],
    adjustments: Sequence[Adjustment],
    *,
    taxes: Sequence[TaxSum],
    currency: str,
    now: datetime,
    inputs: dict[str, Any] | None = None,
    corrects: Invoice | None = None,
    note: str = "",
) -> Invoice:
    """Creates an invoice or a credit note with its lines. `lines` includes the lines of `adjustments`."""
    seller = Seller.objects.filter(pk=ONLY_SELLER).first() or Seller()
    profile = prices.profile_of(tenant)
    subtotal = sum((line.amount for line in lines), Decimal(0))
    tax = sum((tax_sum.tax for tax_sum in taxes), Decimal(0))
    total = subtotal + tax
    owes_tax = profile.reverse_charge and any(not tax_sum.percent for tax_sum in taxes)
    from_balance = Decimal(0) if corrects else max(Decimal(0), min(posting.credit_balance(tenant, currency), total))
    invoice = Invoice.objects.create(
        tenant=tenant,
        kind=kind,
        number=_next_number(seller, kind, now),
        corrects=corrects,
        period_start=period.start,
        period_end=period.end,
        currency=currency,
        subtotal=subtotal,
        tax_percent=taxes[0].percent if len(taxes) == 1 else None,
        tax=tax,
        taxes=[
            {"percent": str(tax_sum.percent), "base": str(tax_sum.base), "tax": str(tax_sum.tax)} for tax_sum in taxes
        ],
        total=total,
        from_balance=from_balance,
        seller=_seller_fields(seller),
        buyer=_buyer_fields(tenant, profile),
        note=note or (REVERSE_CHARGE_NOTE if owes_tax else ""),
        inputs=inputs or {},
        issued_at=now,
        due_at=now + timedelta(days=seller.payment_days),
    )
    corrected = {id(adjustment.line): adjustment.corrects for adjustment in adjustments}
    InvoiceLine.objects.bulk_create(
        InvoiceLine(
            invoice=invoice, position=position, kind=line.kind, corrects=corrected.get(id(line)) or corrects,
            instance_id=line.instance_id, plan=line.plan, meter=line.meter, start=line.start, end=line.end,
            quantity=line.quantity, unit=line.unit, unit_price=line.unit_price, amount=line.amount,
            hours=line.hours, tax_percent=line.tax_percent,
        )
        for position, line in enumerate(lines, start=1)
    )  # fmt: skip
    return invoice


def _next_number(seller: Seller, kind: InvoiceKind, now: datetime) -> str:
    """Returns the next number without gaps: the series stays locked until the issuing transaction ends."""
    letter = "C" if kind == InvoiceKind.CREDIT_NOTE else ""
    prefix = f"{seller.number_prefix}{letter}-{now.year}"
    InvoiceSeries.objects.get_or_create(prefix=prefix)
    series = InvoiceSeries.objects.select_for_update().get(prefix=prefix)
    series.last_number += 1
    series.save(update_fields=["last_number"])
    return f"{prefix}-{series.last_number:05d}"


def _seller_fields(seller: Seller) -> dict[str, str]:
    return {
        "name": seller.name,
        "address": seller.address,
        "country": seller.country,
        "tax_id": seller.tax_id,
        "bank_name": seller.bank_name,
        "bank_account": seller.bank_account,
        "bank_code": seller.bank_code,
    }


def _buyer_fields(tenant: Tenant, profile: BillingProfile) -> dict[str, str]:
    return {
        "name": profile.legal_name or tenant.name,
        "address": profile.address,
        "country": profile.country,
        "tax_id": profile.tax_id,
        "email": profile.email,
        "purchase_order": profile.purchase_order,
        "tenant": tenant.slug,
    }
