"""Payment pages of invoices at a connected payment provider."""

from __future__ import annotations

from urllib.parse import quote

from django.conf import settings

from billing.models import Invoice


def pay_url(invoice: Invoice) -> str:
    """Returns the address at which the open amount is paid; empty if nothing is open or no address is configured.

    The address is no proof of payment: only the payment that the provider reports by its signed webhook counts.
    """
    open_amount = getattr(invoice, "open_amount", None)
    if not settings.PAYMENTS_LINK or not open_amount or open_amount <= 0:
        return ""
    values = {"{invoice}": invoice.number, "{amount}": str(open_amount), "{currency}": invoice.currency}
    result = settings.PAYMENTS_LINK
    for name, value in values.items():
        result = result.replace(name, quote(value, safe=""))
    return str(result)
