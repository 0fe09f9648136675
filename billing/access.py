"""How a tenant's invoices are reached: another tenant's are not found."""

from __future__ import annotations

from django.db.models import QuerySet

from billing.models import Invoice, InvoiceLine
from tenants import access
from tenants.actors import Actor
from tenants.models import Tenant


def invoices_of(tenant: Tenant) -> QuerySet[Invoice]:
    return Invoice.objects.filter(tenant=tenant).defer("inputs")


def invoice(acting: Actor, invoice_id: str) -> Invoice:
    """Raises `NotFound`."""
    return access.fetch(Invoice.objects.filter(tenant=access.tenant_of(acting)), pk=invoice_id)


def line(found: Invoice, position: int) -> InvoiceLine:
    """Raises `NotFound`."""
    return access.fetch(InvoiceLine.objects.filter(invoice=found).select_related("invoice"), position=position)
