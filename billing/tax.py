"""Writes: changes of a tenant's tax rate by operators."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Max, QuerySet
from django.utils.translation import gettext_noop

from billing.models import BillingProfile, Invoice, InvoiceKind, TaxChange
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, Invalid, Message
from tenants.models import Tenant

# Maximum number of changes of one tenant, past and future.
TAX_CHANGES_MAX = 100


def changes_of(tenant: Tenant) -> QuerySet[TaxChange]:
    """Returns all changes of a tenant's tax rate, including future ones."""
    return TaxChange.objects.filter(tenant=tenant)


def check(tenant: Tenant, effective_from: datetime, percent: Decimal) -> None:
    """Raises `Invalid` if the change would affect invoiced hours, duplicates another one or exceeds the limit."""
    _check_not_invoiced(tenant, effective_from)
    if percent and BillingProfile.objects.filter(tenant=tenant, reverse_charge=True).exists():
        message = gettext_noop("The tenant is invoiced by reverse charge, which is without tax.")
        raise Invalid.at("/percent", message, code="reverse_charge")
    if changes_of(tenant).filter(effective_from=effective_from).exists():
        raise Invalid.at("/effective_from", gettext_noop("There is a change at this time already."), code="exists")
    if changes_of(tenant).count() >= TAX_CHANGES_MAX:
        message = Message(gettext_noop("A tenant has at most %(n)s changes of tax."), n=TAX_CHANGES_MAX)
        raise Invalid.at("/effective_from", message, code="too_many")


@transaction.atomic
def add(*, acting: Actor, tenant: Tenant, effective_from: datetime, percent: Decimal) -> TaxChange:
    """Adds a tax rate that is in force from an instant on.

    Raises:
        Invalid: the change affects hours before the end of the tenant's last invoice, there are too many changes, or
            the percentage is invalid.
    """
    access.require(acting, Scope.OPERATOR)
    locked = Tenant.objects.select_for_update().get(pk=tenant.pk)
    check(locked, effective_from, percent)
    change = TaxChange(tenant=locked, effective_from=effective_from, percent=percent)
    try:
        change.clean_fields()
    except ValidationError as error:
        raise Invalid.at("/percent", str(error.messages[0]), code="invalid") from None
    change.save()
    audit.record(acting, "tax_change.added", change, None, _audit_values(change), tenant=locked)
    return change


@transaction.atomic
def remove(*, acting: Actor, change: TaxChange) -> None:
    """Removes a change, as long as none of its hours was invoiced.

    Raises:
        Conflict: some of its hours were invoiced.
    """
    access.require(acting, Scope.OPERATOR)
    locked = Tenant.objects.select_for_update().get(pk=change.tenant_id)
    try:
        _check_not_invoiced(locked, change.effective_from)
    except Invalid as error:
        raise Conflict(error.detail, code="invoiced") from None
    audit.record(acting, "tax_change.removed", change, _audit_values(change), None, tenant=locked)
    change.delete()


def _check_not_invoiced(tenant: Tenant, effective_from: datetime) -> None:
    invoices = Invoice.objects.filter(tenant=tenant, kind=InvoiceKind.INVOICE)
    invoiced_until = invoices.aggregate(until=Max("period_end"))["until"]
    if invoiced_until is not None and effective_from < invoiced_until:
        message = Message(
            gettext_noop("Hours before %(end)s are invoiced, and keep their tax."), end=f"{invoiced_until:%Y-%m-%d}"
        )
        raise Invalid.at("/effective_from", message, code="invoiced")


def _audit_values(change: TaxChange) -> dict[str, str]:
    return {"effective_from": change.effective_from.isoformat(), "percent": str(change.percent)}
