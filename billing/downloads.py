"""HTTP responses with an invoice as a file."""

from __future__ import annotations

from django.http import HttpResponse

from billing import call_limits
from billing.invoices import printing
from billing.models import Invoice

PDF = "application/pdf"
XML = "application/xml"


def invoice_pdf(invoice: Invoice, language: str) -> HttpResponse:
    """Returns the invoice as a PDF file named by its number.

    Raises:
        RateLimited: the tenant requested too many documents in this minute.
    """
    call_limits.charge_pdf(invoice.tenant)
    response = HttpResponse(printing.as_pdf(invoice, language), content_type=PDF)
    response.headers["Content-Disposition"] = f'attachment; filename="{invoice.number}.pdf"'
    return response


def invoice_xml(invoice: Invoice) -> HttpResponse:
    """Returns the invoice by EN 16931 as an XML file named by its number.

    Raises:
        Conflict: the invoice lacks a mandatory field of EN 16931, or the standard cannot express it.
        RateLimited: the tenant requested too many documents in this minute.
    """
    call_limits.charge_pdf(invoice.tenant)
    response = HttpResponse(printing.as_xml(invoice), content_type=XML)
    response.headers["Content-Disposition"] = f'attachment; filename="{invoice.number}.xml"'
    return response
