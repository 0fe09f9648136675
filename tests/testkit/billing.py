"""Builders of the rows that bills are computed from, as services and the pipeline write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db.models import F, Sum

from billing.invoices import issuing
from billing.ledger import posting
from billing.models import (
    Invoice,
    InvoiceKind,
    InvoiceState,
    LedgerEntry,
    LedgerKind,
    Payment,
    UsageDay,
    UsageHour,
    UsageMinute,
)
from instances.choices import OperationState, OperationType
from instances.models import Instance, Operation
from tenants.models import Tenant

DUE = datetime(2026, 10, 15, tzinfo=UTC)


def create_operations(instance: Instance, since: datetime, until: datetime | None = None) -> None:
    """Creates the operations of an instance that ran from one instant, and was deleted at `until`."""

    def operation(type_: OperationType, at: datetime) -> None:
        Operation.objects.create(
            tenant=instance.tenant, instance=instance, type=type_, state=OperationState.SUCCEEDED, generation=1,
            plan=instance.plan, bandwidth_mb_s=instance.bandwidth_mb_s, storage_gb=instance.storage_gb,
            is_suspended=instance.is_suspended, asked_by="test", created_at=at, finished_at=at,
        )  # fmt: skip

    Instance.objects.filter(pk=instance.pk, created_at__gt=since).update(created_at=since)
    operation(OperationType.CREATE, since)
    if until is not None:
        operation(OperationType.DELETE, until)


def create_usage(
    instance_id: str,
    minute: datetime,
    *,
    produce: int = 0,
    consume: int = 0,
    topic: str = "t",
    user: str = "u",
    client_id: str = "c",
) -> None:
    """Creates a minute row for each direction, and the sums of its hour and day."""
    for direction, count in (("produce", produce), ("consume", consume)):
        if count:
            UsageMinute.objects.create(
                instance_id=instance_id, minute=minute, topic=topic, user=user, client_id=client_id,
                direction=direction, bytes=count, requests=1,
            )  # fmt: skip
            day, _ = UsageDay.objects.get_or_create(
                instance_id=instance_id, day=minute.astimezone(UTC).date(), topic=topic, user=user, client_id=client_id,
                direction=direction, defaults={"bytes": 0, "requests": 0},
            )  # fmt: skip
            UsageDay.objects.filter(pk=day.pk).update(bytes=F("bytes") + count, requests=F("requests") + 1)
            hour, _ = UsageHour.objects.get_or_create(
                instance_id=instance_id, hour=minute.replace(minute=0, second=0, microsecond=0), direction=direction,
                defaults={"bytes": 0, "requests": 0},
            )  # fmt: skip
            UsageHour.objects.filter(pk=hour.pk).update(bytes=F("bytes") + count, requests=F("requests") + 1)


def invoice_of(tenant: Tenant, number: str = "PS-1", due: datetime = DUE, total: str = "10.00", **more: Any) -> Invoice:
    """Returns an invoice as it is stored once it was issued, with its ledger entry and without lines."""
    invoice = Invoice.objects.create(
        **{"kind": InvoiceKind.INVOICE, "period_start": due - timedelta(days=44), "currency": "EUR", **more},
        tenant=tenant, number=number, period_end=due - timedelta(days=14), subtotal=Decimal(total),
        tax_percent=0, tax=0, total=Decimal(total), seller={"name": "S", "address": "", "tax_id": ""},
        buyer={"name": "B", "address": "", "tax_id": "", "email": "bills@acme.example", "tenant": tenant.slug},
        issued_at=due - timedelta(days=14), due_at=due,
    )  # fmt: skip
    posting.post(
        tenant, invoice.currency, LedgerKind(invoice.kind), invoice.total, now=invoice.issued_at,
        invoice=invoice.corrects or invoice, document=invoice,
    )  # fmt: skip
    return invoice


def assert_ledger_is_right(tenant: Tenant, currency: str = "EUR") -> None:
    """Asserts the properties that hold after every act, from documents and payments alone where they state it."""
    invoices = Invoice.objects.filter(tenant=tenant)
    entries = LedgerEntry.objects.filter(tenant=tenant, currency=currency)
    balance = posting.balance(tenant, currency)
    running = Decimal(0)
    for entry in entries.order_by("pk"):
        running += entry.amount
        assert entry.balance == running
    opened = {invoice.pk: posting.open_amount(invoice) for invoice in invoices}
    assert all(amount >= 0 for amount in opened.values())
    credit_balance = posting.credit_balance(tenant, currency)
    assert credit_balance >= 0 and balance == running == sum(opened.values()) - credit_balance
    for invoice in invoices.filter(kind=InvoiceKind.INVOICE):
        _assert_notes_are_within(invoice)
        assert (invoice.state == InvoiceState.ISSUED) is (opened[invoice.pk] > 0)
    issued = invoices.aggregate(sum=Sum("total"))["sum"] or Decimal(0)
    payments = Payment.objects.filter(invoice__tenant=tenant, currency=currency)
    paid = payments.aggregate(sum=Sum("amount"))["sum"] or Decimal(0)
    by_hand = entries.filter(kind=LedgerKind.PAYMENT, payment=None).aggregate(sum=Sum("amount"))["sum"] or Decimal(0)
    refunds = entries.filter(kind=LedgerKind.REFUND).aggregate(sum=Sum("amount"))["sum"] or Decimal(0)
    written_off = entries.filter(kind=LedgerKind.WRITE_OFF).aggregate(sum=Sum("amount"))["sum"] or Decimal(0)
    assert balance == issued - paid + by_hand + refunds + written_off


def _assert_notes_are_within(invoice: Invoice) -> None:
    """Asserts that no note credits more than the invoice, in net and in tax of each rate."""
    creditable = {tax_sum.percent: tax_sum for tax_sum in issuing.amounts_to_credit(invoice).by_rate}
    for tax_sum in invoice.tax_sums():
        creditable_sum = creditable[tax_sum.percent]
        assert min(Decimal(0), tax_sum.base) <= creditable_sum.base <= max(Decimal(0), tax_sum.base)
        assert min(Decimal(0), tax_sum.tax) <= creditable_sum.tax <= max(Decimal(0), tax_sum.tax)
