"""Addresses at which an invoice is paid, where a payment provider is connected that has such a page."""

from __future__ import annotations

from urllib.parse import quote

from django.conf import settings

from billing.models import Invoice


def pay_url(invoice: Invoice) -> str:
    """Address at which the open amount of an invoice is paid; empty where nothing is open, or no address is set.

    The address proves nothing: what counts is the payment that the provider reports by its signed webhook.
    """
    open_amount = getattr(invoice, "open_amount", None)
    if not settings.PAYMENTS_LINK or not open_amount or open_amount <= 0:
        return ""
    values = {"{invoice}": invoice.number, "{amount}": str(open_amount), "{currency}": invoice.currency}
    result = settings.PAYMENTS_LINK
    for name, value in values.items():
        result = result.replace(name, quote(value, safe=""))
    return str(result)
