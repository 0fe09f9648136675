"""Access to a tenant's alerts, their rules and webhooks; an object of another tenant raises `NotFound`."""

from __future__ import annotations

from typing import NamedTuple

from django.db.models import Count, Q, QuerySet

from notifications.models import (
    AlertFiring,
    AlertKind,
    AlertRule,
    BudgetAlert,
    DeliveryState,
    WebhookDelivery,
    WebhookEndpoint,
)
from notifications.models.webhooks import ABOUT_GROUPS
from tenants import access
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.models import Tenant


def budget_alerts_of(tenant: Tenant) -> QuerySet[BudgetAlert]:
    return BudgetAlert.objects.filter(tenant=tenant)


def alert_rules_of(acting: Actor) -> QuerySet[AlertRule]:
    """Returns the tenant's alert rules; rules about consumer groups only if the actor may read groups."""
    rules = AlertRule.objects.filter(tenant=access.tenant_of(acting))
    return rules if access.permits(acting, Scope.GROUPS_READ) else rules.exclude(kind=AlertKind.CONSUMER_LAG)


def alert_rule(acting: Actor, rule_id: str, *, lock: bool = False) -> AlertRule:
    """Returns an alert rule that the actor may see. Raises `NotFound`."""
    return access.fetch(alert_rules_of(acting).select_related("instance", "tenant"), lock=lock, pk=rule_id)


def firings_of(acting: Actor) -> QuerySet[AlertFiring]:
    """Returns firings of the tenant's alert rules, including deleted rules; about groups only as `alert_rules_of`."""
    firings = AlertFiring.objects.filter(tenant=access.tenant_of(acting))
    return firings if access.permits(acting, Scope.GROUPS_READ) else firings.exclude(kind=AlertKind.CONSUMER_LAG)


def firings_of_rule(rule: AlertRule) -> QuerySet[AlertFiring]:
    return AlertFiring.objects.filter(rule_id=rule.pk)


def webhooks_of(tenant: Tenant) -> QuerySet[WebhookEndpoint]:
    return WebhookEndpoint.objects.filter(tenant=tenant)


def webhook(acting: Actor, webhook_id: str, *, lock: bool = False) -> WebhookEndpoint:
    """Returns a webhook endpoint of the actor's tenant. Raises `NotFound`."""
    return access.fetch(webhooks_of(access.tenant_of(acting)), lock=lock, pk=webhook_id)


def deliveries_of(acting: Actor, endpoint: WebhookEndpoint) -> QuerySet[WebhookDelivery]:
    """Returns deliveries of the webhook endpoint; about groups only as `alert_rules_of`."""
    deliveries = WebhookDelivery.objects.filter(endpoint=endpoint)
    return deliveries if access.permits(acting, Scope.GROUPS_READ) else deliveries.exclude(ABOUT_GROUPS)


class DeliveryCounts(NamedTuple):
    pending: int
    finished: int


def delivery_counts(endpoint: WebhookEndpoint) -> DeliveryCounts:
    pending = Q(state=DeliveryState.PENDING)
    sums = WebhookDelivery.objects.filter(endpoint=endpoint).aggregate(
        pending=Count("pk", filter=pending), finished=Count("pk", filter=~pending)
    )
    return DeliveryCounts(**sums)


def delivery(acting: Actor, endpoint: WebhookEndpoint, delivery_id: str) -> WebhookDelivery:
    """Returns a delivery of the webhook endpoint that the actor may see, locked for update. Raises `NotFound`."""
    return access.fetch(deliveries_of(acting, endpoint), lock=True, pk=delivery_id)
