"""Access to a tenant's billing objects; an object of another tenant raises `NotFound`."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from django.db.models import Q, QuerySet, Sum

from billing.invoices.open_amounts import with_open_amount
from billing.models import Budget, Discount, Invoice, InvoiceKind, InvoiceLine, InvoiceState
from instances.models import Instance
from tenants import access
from tenants.actors import Actor
from tenants.errors import NotFound
from tenants.models import Tenant


def names_of(tenant: Tenant) -> dict[str, str]:
    """Returns the names of all instances that the tenant ever had, by id."""
    return dict(Instance.objects.filter(tenant=tenant).values_list("pk", "name"))


def invoices_of(tenant: Tenant) -> QuerySet[Invoice]:
    """Returns the tenant's invoices and credit notes, each with its `open_amount`."""
    return with_open_amount(Invoice.objects.filter(tenant=tenant).defer("inputs"))


def invoices_of_all() -> QuerySet[Invoice]:
    """Returns the invoices of all tenants without credit notes, for operators."""
    return Invoice.objects.filter(kind=InvoiceKind.INVOICE).defer("inputs")


def any_invoice(invoice_id: str) -> Invoice:
    """Returns an invoice or a credit note of any tenant with its `open_amount`, for operators. Raises `NotFound`."""
    found_invoice = (
        with_open_amount(Invoice.objects.defer("inputs").select_related("tenant")).filter(pk=invoice_id).first()
    )
    if found_invoice is None:
        raise NotFound()
    return found_invoice


def open_amount(tenant: Tenant) -> Decimal:
    """Returns the sum that the tenant still owes on invoices that are not closed."""
    open_invoices = with_open_amount(Invoice.objects.filter(tenant=tenant, state=InvoiceState.ISSUED))
    return open_invoices.aggregate(sum=Sum("open_amount"))["sum"] or Decimal(0)


def discounts_of(tenant: Tenant) -> QuerySet[Discount]:
    """Returns all discounts of the tenant, including expired ones."""
    return Discount.objects.filter(tenant=tenant)


def discounts_in_force(tenant: Tenant, now: datetime) -> QuerySet[Discount]:
    """Returns discounts that apply now or later, in the order in which they are deducted."""
    return discounts_of(tenant).filter(Q(ends_at=None) | Q(ends_at__gt=now)).order_by("pk")


def budgets_of(tenant: Tenant) -> QuerySet[Budget]:
    """Returns the budgets of the tenant."""
    return Budget.objects.filter(tenant=tenant)


def budget(acting: Actor, budget_id: str, *, lock: bool = False) -> Budget:
    """Returns a budget of the actor's tenant. Raises `NotFound`."""
    return access.fetch(budgets_of(access.tenant_of(acting)), lock=lock, pk=budget_id)


def invoice(acting: Actor, invoice_id: str) -> Invoice:
    """Returns an invoice of the actor's tenant. Raises `NotFound`."""
    return access.fetch(invoices_of(access.tenant_of(acting)), pk=invoice_id)


def lines_of(of_invoice: Invoice) -> QuerySet[InvoiceLine]:
    """Returns the lines of the invoice by position."""
    return InvoiceLine.objects.filter(invoice=of_invoice).select_related("corrects").order_by("position")


def line(of_invoice: Invoice, position: int) -> InvoiceLine:
    """Returns a line of the invoice. Raises `NotFound`."""
    return access.fetch(InvoiceLine.objects.filter(invoice=of_invoice).select_related("invoice"), position=position)
