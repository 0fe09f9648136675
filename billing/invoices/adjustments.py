"""Usage that came in after an invoice was issued: the difference is a line of the next one. Nothing issued changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

from billing import consumption
from billing.invoices.snapshot import from_json
from billing.models import Invoice, InvoiceKind, InvoiceLine
from billing.rating.terms import Meter, RatedLine
from tenants.models import Tenant

# How many invoices back are looked at.
INVOICES_LOOKED_AT = 3
Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjustment:
    """What one line of an earlier invoice lacks (or has too much)."""

    corrects: Invoice
    line: RatedLine


def adjustments_of(tenant: Tenant, before: Invoice | None = None) -> Iterator[Adjustment]:
    """Of the latest invoices, at the prices and the agreement they were made with. What was adjusted already is not
    adjusted again.
    """
    earlier = Invoice.objects.filter(tenant=tenant, kind=InvoiceKind.INVOICE).order_by("-period_start")
    for invoice in earlier[:INVOICES_LOOKED_AT]:
        yield from differences(invoice)


def differences(invoice: Invoice) -> Iterator[Adjustment]:
    """What the invoice's lines differ by from the usage as it is known now."""
    inputs = from_json(invoice.inputs)
    has_rates = any(each.meter is Meter.BANDWIDTH_P95 for one in inputs.prices for each in one.components)
    usage = consumption.of_tenant(invoice.tenant, inputs.period, with_rates=has_rates)
    bill = replace(inputs, usage=usage).rated()
    charged: dict[Key, Decimal] = defaultdict(Decimal)
    for line in _charged_lines(invoice):
        charged[line.instance_id, line.plan, line.meter] += line.amount
    due: dict[Key, Decimal] = defaultdict(Decimal)
    for rated in bill.lines:
        due[rated.instance_id, rated.plan, rated.meter] += rated.amount
    for key in sorted({*due, *charged}):
        missing = due[key] - charged[key]
        if missing:
            instance_id, plan, meter = key
            yield Adjustment(
                corrects=invoice,
                line=RatedLine(
                    kind="adjustment", instance_id=instance_id, plan=plan, meter=meter, start=inputs.period.start,
                    end=inputs.period.end, quantity=Decimal(1), unit="", unit_price=missing, amount=missing,
                ),
            )  # fmt: skip


def _charged_lines(invoice: Invoice) -> list[InvoiceLine]:
    """Its own, and what later invoices corrected; its own corrections are of others."""
    own = InvoiceLine.objects.filter(invoice=invoice).exclude(kind="adjustment")
    later = InvoiceLine.objects.filter(corrects=invoice, kind="adjustment")
    return [*own, *later]
