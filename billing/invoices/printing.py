"""Renders an invoice as PDF, or as XML according to EN 16931."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from billing.models import Invoice, InvoiceLine
from billing.rating.hours import HOUR
from instances.models import Instance

# Further lines are only in the CSV; fifty lines take 0.1 s to render.
LINES_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class InvoiceDocument:
    """Invoice with its first `LINES_MAX` lines, the number of all lines and the names of instances by id."""

    invoice: Invoice
    lines: Sequence[InvoiceLine]
    line_count: int
    names: dict[str, str]

    @property
    def period_hours(self) -> int:
        return period_hours(self.invoice)


def period_hours(invoice: Invoice) -> int:
    """Returns the hours of the billing period, which prorated lines refer to."""
    return (invoice.period_end - invoice.period_start) // HOUR


def as_pdf(invoice: Invoice, language: str) -> bytes:
    """Returns the PDF of the invoice in `language`, one of the console's languages."""
    # Imported here because it is large and few processes need it.
    from billing.invoices import pdf

    return pdf.render(_document(invoice), language)


def as_xml(invoice: Invoice) -> bytes:
    """Returns the invoice as XML according to EN 16931.

    Raises:
        Conflict: the invoice lacks a mandatory field of EN 16931, or the standard cannot express it.
    """
    # Imported here because it is large and few processes need it.
    from billing.invoices import einvoice

    rows = InvoiceLine.objects.filter(invoice=invoice).order_by("position")
    einvoice.check(invoice, rows.count())
    lines = list(rows.select_related("corrects").defer("corrects__inputs"))
    return einvoice.as_xml(invoice, lines, _names_of(invoice, lines))


def _names_of(invoice: Invoice, lines: Sequence[InvoiceLine]) -> dict[str, str]:
    ids = {line.instance_id for line in lines}
    return dict(Instance.objects.filter(tenant=invoice.tenant, pk__in=ids).values_list("pk", "name"))


def _document(invoice: Invoice) -> InvoiceDocument:
    rows = InvoiceLine.objects.filter(invoice=invoice).order_by("position")
    lines = list(rows.select_related("corrects").defer("corrects__inputs")[:LINES_MAX])
    return InvoiceDocument(
        invoice=invoice,
        lines=lines,
        line_count=rows.count(),
        names=_names_of(invoice, lines),
    )
