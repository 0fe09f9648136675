"""Access to a tenant's billing objects; an object of another tenant raises `NotFound`."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from django.db.models import Count, Q, QuerySet, Sum

from billing.invoices.open_amounts import with_open_amount
from billing.models import (
    AlertFiring,
    AlertKind,
    AlertRule,
    Archive,
    ArchiveFile,
    ArchiveState,
    Budget,
    BudgetAlert,
    DeliveryState,
    Discount,
    Invoice,
    InvoiceKind,
    InvoiceLine,
    InvoiceState,
    WebhookDelivery,
    WebhookEndpoint,
)
from instances import access as instances_access
from instances.models import Instance
from tenants import access
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import NotFound
from tenants.models import Tenant


def names_of(tenant: Tenant) -> dict[str, str]:
    """Returns the names of all instances that the tenant ever had, by id."""
    return dict(Instance.objects.filter(tenant=tenant).values_list("pk", "name"))


def names_of_present(tenant: Tenant) -> dict[str, str]:
    """Returns the names of the instances that the tenant has now, by id."""
    return dict(instances_access.instances_of(tenant).order_by("name").values_list("pk", "name"))


def invoices_of(tenant: Tenant) -> QuerySet[Invoice]:
    """Returns the tenant's invoices and credit notes, each with its `open_amount`."""
    return with_open_amount(Invoice.objects.filter(tenant=tenant).defer("inputs"))


def invoices_of_all() -> QuerySet[Invoice]:
    """Returns the invoices of all tenants without credit notes, for operators."""
    return Invoice.objects.filter(kind=InvoiceKind.INVOICE).defer("inputs")


def any_invoice(invoice_id: str) -> Invoice:
    """Returns an invoice or a credit note of any tenant with its `open_amount`, for operators. Raises `NotFound`."""
    found = with_open_amount(Invoice.objects.defer("inputs").select_related("tenant")).filter(pk=invoice_id).first()
    if found is None:
        raise NotFound()
    return found


def open_amount(tenant: Tenant) -> Decimal:
    """Returns the sum that the tenant still owes on invoices that are not closed."""
    found = with_open_amount(Invoice.objects.filter(tenant=tenant, state=InvoiceState.ISSUED))
    return found.aggregate(sum=Sum("open_amount"))["sum"] or Decimal(0)


def discounts_of(tenant: Tenant) -> QuerySet[Discount]:
    """Returns all discounts of the tenant, including expired ones."""
    return Discount.objects.filter(tenant=tenant)


def discounts_in_force(tenant: Tenant, now: datetime) -> QuerySet[Discount]:
    """Returns discounts that apply now or later, in the order in which they are deducted."""
    return discounts_of(tenant).filter(Q(ends_at=None) | Q(ends_at__gt=now)).order_by("pk")


def budgets_of(tenant: Tenant) -> QuerySet[Budget]:
    return Budget.objects.filter(tenant=tenant)


def budget(acting: Actor, budget_id: str, *, lock: bool = False) -> Budget:
    """Returns a budget of the actor's tenant. Raises `NotFound`."""
    return access.fetch(budgets_of(access.tenant_of(acting)), lock=lock, pk=budget_id)


def alerts_of(tenant: Tenant) -> QuerySet[BudgetAlert]:
    return BudgetAlert.objects.filter(tenant=tenant)


def alert_rules_of(acting: Actor) -> QuerySet[AlertRule]:
    """Returns the tenant's alert rules; rules about consumer groups only if the actor may read groups."""
    found = AlertRule.objects.filter(tenant=access.tenant_of(acting))
    return found if access.permits(acting, Scope.GROUPS_READ) else found.exclude(kind=AlertKind.CONSUMER_LAG)


def alert_rule(acting: Actor, rule_id: str, *, lock: bool = False) -> AlertRule:
    """Returns an alert rule that the actor may see. Raises `NotFound`."""
    return access.fetch(alert_rules_of(acting).select_related("instance", "tenant"), lock=lock, pk=rule_id)


def firings_of(acting: Actor) -> QuerySet[AlertFiring]:
    """Returns firings of the tenant's alert rules, including deleted rules."""
    found = AlertFiring.objects.filter(tenant=access.tenant_of(acting))
    return found if access.permits(acting, Scope.GROUPS_READ) else found.exclude(kind=AlertKind.CONSUMER_LAG)


def firings_of_rule(rule: AlertRule) -> QuerySet[AlertFiring]:
    return AlertFiring.objects.filter(rule_id=rule.pk)


def webhooks_of(tenant: Tenant) -> QuerySet[WebhookEndpoint]:
    return WebhookEndpoint.objects.filter(tenant=tenant)


def webhook(acting: Actor, webhook_id: str, *, lock: bool = False) -> WebhookEndpoint:
    """Returns a webhook endpoint of the actor's tenant. Raises `NotFound`."""
    return access.fetch(webhooks_of(access.tenant_of(acting)), lock=lock, pk=webhook_id)


def deliveries_of(found: WebhookEndpoint) -> QuerySet[WebhookDelivery]:
    return WebhookDelivery.objects.filter(endpoint=found)


class DeliveryCounts(NamedTuple):
    pending: int
    over: int


def delivery_counts(found: WebhookEndpoint) -> DeliveryCounts:
    pending = Q(state=DeliveryState.PENDING)
    sums = deliveries_of(found).aggregate(pending=Count("pk", filter=pending), over=Count("pk", filter=~pending))
    return DeliveryCounts(**sums)


def delivery(found: WebhookEndpoint, delivery_id: str) -> WebhookDelivery:
    """Returns a delivery of the webhook endpoint, locked for update. Raises `NotFound`."""
    return access.fetch(deliveries_of(found), lock=True, pk=delivery_id)


def archives_of(tenant: Tenant) -> QuerySet[Archive]:
    """Returns the tenant's archives except those that are being deleted."""
    return Archive.objects.filter(tenant=tenant).exclude(state=ArchiveState.DELETING)


def archive(acting: Actor, archive_id: str, *, lock: bool = False) -> Archive:
    """Returns an archive of the actor's tenant. Raises `NotFound`."""
    return access.fetch(archives_of(access.tenant_of(acting)), lock=lock, pk=archive_id)


def archive_files_of(found: Archive) -> QuerySet[ArchiveFile]:
    return ArchiveFile.objects.filter(archive=found)


def invoice(acting: Actor, invoice_id: str) -> Invoice:
    """Returns an invoice of the actor's tenant. Raises `NotFound`."""
    return access.fetch(invoices_of(access.tenant_of(acting)), pk=invoice_id)


def lines_of(found: Invoice) -> QuerySet[InvoiceLine]:
    """Returns the lines of the invoice by position."""
    return InvoiceLine.objects.filter(invoice=found).select_related("corrects").order_by("position")


def line(found: Invoice, position: int) -> InvoiceLine:
    """Returns a line of the invoice. Raises `NotFound`."""
    return access.fetch(InvoiceLine.objects.filter(invoice=found).select_related("invoice"), position=position)
