"""Reads: an invoice with what is printed of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from billing.models import Invoice, InvoiceLine
from billing.rating.hours import HOUR
from instances.models import Instance

# What exceeds it is in the CSV; fifty lines take a tenth of a second.
LINES_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """An invoice, its first `LINES_MAX` lines, how many there are, and the names of their instances by id."""

    invoice: Invoice
    lines: Sequence[InvoiceLine]
    lines_count: int
    names: dict[str, str]

    @property
    def period_hours(self) -> int:
        return period_hours(self.invoice)


def period_hours(invoice: Invoice) -> int:
    """Hours of the billing period, of which lines say how many an instance was on a plan."""
    return (invoice.period_end - invoice.period_start) // HOUR


def as_pdf(invoice: Invoice, language: str) -> bytes:
    """`language` is one of the console's."""
    # Large, and needed by few processes.
    from billing.invoices import pdf

    return pdf.render(_printed(invoice), language)


def as_xml(invoice: Invoice) -> bytes:
    """Returns the invoice by EN 16931.

    Raises:
        Conflict: it lacks what the standard wants, or the standard has no place for it.
    """
    # Large, and needed by few processes.
    from billing.invoices import einvoice

    rows = InvoiceLine.objects.filter(invoice=invoice).order_by("position")
    einvoice.check(invoice, rows.count())
    lines = list(rows.select_related("corrects").defer("corrects__inputs"))
    return einvoice.as_xml(invoice, lines, _names_of(invoice, lines))


def _names_of(invoice: Invoice, lines: Sequence[InvoiceLine]) -> dict[str, str]:
    ids = {line.instance_id for line in lines}
    return dict(Instance.objects.filter(tenant=invoice.tenant, pk__in=ids).values_list("pk", "name"))


def _printed(invoice: Invoice) -> Printed:
    rows = InvoiceLine.objects.filter(invoice=invoice).order_by("position")
    lines = list(rows.select_related("corrects").defer("corrects__inputs")[:LINES_MAX])
    return Printed(
        invoice=invoice,
        lines=lines,
        lines_count=rows.count(),
        names=_names_of(invoice, lines),
    )
