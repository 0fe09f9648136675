"""Usage that came in after an invoice was issued: the difference is a line of the next one. Nothing issued changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

from billing import consumption
from billing.invoices.snapshot import Inputs, from_json
from billing.models import Invoice, InvoiceKind, InvoiceLine
from billing.rating.terms import Meter, RatedLine
from tenants.models import Tenant

# How many invoices back are looked at.
INVOICES_LOOKED_AT = 3
Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjustment:
    """What the lines of one meter of an earlier invoice lack (or have too much), and what they charge so far."""

    corrects: Invoice
    charged: Decimal
    line: RatedLine


def adjustments_of(tenant: Tenant) -> Iterator[Adjustment]:
    """Of the latest invoices, at the prices and the agreement they were made with. What was adjusted already is not
    adjusted again.
    """
    earlier = Invoice.objects.filter(tenant=tenant, kind=InvoiceKind.INVOICE).order_by("-period_start")
    for invoice in earlier[:INVOICES_LOOKED_AT]:
        yield from missing(invoice, as_known_now(invoice, from_json(invoice.inputs)))


def as_known_now(invoice: Invoice, inputs: Inputs) -> Inputs:
    """With the usage that is known now."""
    has_rates = any(each.meter is Meter.BANDWIDTH_P95 for one in inputs.prices for each in one.components)
    return replace(inputs, usage=consumption.of_tenant(invoice.tenant, inputs.period, with_rates=has_rates))


def missing(invoice: Invoice, inputs: Inputs) -> Iterator[Adjustment]:
    """What is due for these inputs beyond what the invoice and later corrections of it charge."""
    charged: dict[Key, Decimal] = defaultdict(Decimal)
    for each in _charged_lines(invoice):
        charged[each.instance_id, each.plan, each.meter] += each.amount
    due: dict[Key, Decimal] = defaultdict(Decimal)
    for rated in inputs.rated().lines:
        due[rated.instance_id, rated.plan, rated.meter] += rated.amount
    for key in sorted({*due, *charged}):
        amount = due[key] - charged[key]
        if amount:
            instance_id, plan, meter = key
            line = RatedLine(
                kind="adjustment", instance_id=instance_id, plan=plan, meter=meter, start=inputs.period.start,
                end=inputs.period.end, quantity=Decimal(1), unit="", unit_price=amount, amount=amount,
            )  # fmt: skip
            yield Adjustment(corrects=invoice, charged=charged[key], line=line)


def _charged_lines(invoice: Invoice) -> list[InvoiceLine]:
    """Its own, and what later invoices corrected; its own corrections are of others."""
    own = InvoiceLine.objects.filter(invoice=invoice).exclude(kind="adjustment")
    later = InvoiceLine.objects.filter(corrects=invoice, kind="adjustment")
    return [*own, *later]
