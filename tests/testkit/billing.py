"""What bills are made of, as the services and the pipeline write it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db.models import F

from billing.ledger import posting
from billing.models import Invoice, InvoiceKind, LedgerKind, UsageDay, UsageHour, UsageMinute
from instances.choices import OperationState, OperationType
from instances.models import Instance, Operation
from tenants.models import Tenant

DUE = datetime(2026, 10, 15, tzinfo=UTC)


def ran(instance: Instance, since: datetime, until: datetime | None = None) -> None:
    """The operations of an instance that ran since then, and was deleted at `until`."""

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


def used(
    instance_id: str,
    minute: datetime,
    *,
    produce: int = 0,
    consume: int = 0,
    topic: str = "t",
    user: str = "u",
    client_id: str = "c",
) -> None:
    """A minute row for each direction, and the sums of its hour and its day."""
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
