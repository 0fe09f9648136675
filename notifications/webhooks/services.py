"""Changes webhook endpoints of tenants, and queues deliveries to them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import transaction
from django.db.models import Count
from django.utils import timezone
from django.utils.translation import gettext_noop

from notifications.models import AlertKind, DeliveryState, WebhookDelivery, WebhookEndpoint, WebhookEvent
from notifications.models.webhooks import ABOUT_GROUPS
from notifications.webhooks import signing
from tenants import access, audit, outbound
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, Invalid, Message, QuotaExceeded
from tenants.models import Tenant
from tenants.second_factor.adapter import cipher
from tenants.uniqueness import raise_if_taken

log = structlog.get_logger(__name__)

ENDPOINTS_PER_TENANT_MAX = 10
# Maximum number of pending deliveries of one endpoint; further ones are dropped and logged.
PENDING_PER_ENDPOINT_MAX = 500
ADDRESS_CONSTRAINT = "webhook_once"
FORMER_SECRET_DURATION = timedelta(hours=24)
DELIVERY_RETENTION = timedelta(days=30)
DELETE_BATCH_SIZE = 5_000


@transaction.atomic
def create_endpoint(*, acting: Actor, url: str) -> tuple[WebhookEndpoint, str]:
    """Creates an endpoint; returns it with its secret, to be shown once. Raises `QuotaExceeded`,
    `Conflict`, `Invalid`.
    """
    access.require(acting, Scope.BILLING_WRITE)
    tenant = Tenant.objects.select_for_update().get(pk=access.tenant_of(acting).pk)
    if WebhookEndpoint.objects.filter(tenant=tenant).count() >= ENDPOINTS_PER_TENANT_MAX:
        raise QuotaExceeded(Message(gettext_noop("A tenant has at most %(n)s webhooks."), n=ENDPOINTS_PER_TENANT_MAX))
    _require_allowed_url(url)
    if WebhookEndpoint.objects.filter(tenant=tenant, url=url).exists():
        raise _address_taken()
    secret = signing.new_secret()
    endpoint = WebhookEndpoint.objects.create(
        tenant=tenant, url=url, secret=_encrypted(secret), has_group_alerts=access.permits(acting, Scope.GROUPS_READ)
    )
    audit.record(acting, "webhook.created", endpoint, None, {"url": url})
    return endpoint, secret


@transaction.atomic
def change_endpoint(*, acting: Actor, endpoint: WebhookEndpoint, changes: Mapping[str, Any]) -> WebhookEndpoint:
    """Changes the address of a locked endpoint, or turns it on or off. Raises `Conflict`, `Invalid`.

    Alerts about groups are not sent to an address that an actor without `groups:read` sets.
    """
    access.require(acting, Scope.BILLING_WRITE)
    before = _audit_values(endpoint)
    if changes.get("url", endpoint.url) != endpoint.url:
        _require_allowed_url(changes["url"])
        endpoint.has_group_alerts = access.permits(acting, Scope.GROUPS_READ)
        if not endpoint.has_group_alerts:
            endpoint.deliveries.filter(ABOUT_GROUPS, state=DeliveryState.PENDING).delete()
    endpoint.url = changes.get("url", endpoint.url)
    endpoint.is_enabled = changes.get("is_enabled", endpoint.is_enabled)
    if _audit_values(endpoint) != before:
        endpoint.failed_in_a_row = 0
        with raise_if_taken(ADDRESS_CONSTRAINT, _address_taken()):
            endpoint.save_changes(["url", "is_enabled", "has_group_alerts", "failed_in_a_row"])
        audit.record(acting, "webhook.changed", endpoint, *audit.difference(before, _audit_values(endpoint)))
    return endpoint


@transaction.atomic
def rotate_secret(*, acting: Actor, endpoint: WebhookEndpoint) -> str:
    """Creates a new secret of a locked endpoint. Deliveries are also signed with the former secret for another day."""
    access.require(acting, Scope.BILLING_WRITE)
    secret = signing.new_secret()
    endpoint.former_secret, endpoint.former_until = endpoint.secret, timezone.now() + FORMER_SECRET_DURATION
    endpoint.secret = _encrypted(secret)
    endpoint.save_changes(["secret", "former_secret", "former_until"])
    audit.record(acting, "webhook.rotated", endpoint)
    return secret


@transaction.atomic
def delete_endpoint(*, acting: Actor, endpoint: WebhookEndpoint) -> None:
    """Deletes an endpoint with its deliveries."""
    access.require(acting, Scope.BILLING_WRITE)
    audit.record(acting, "webhook.deleted", endpoint, _audit_values(endpoint), None)
    endpoint.delete()


@transaction.atomic
def send_test(*, acting: Actor, endpoint: WebhookEndpoint) -> WebhookDelivery:
    """Creates a test delivery. Raises `Conflict` if the endpoint is turned off or has too many pending deliveries."""
    access.require(acting, Scope.BILLING_WRITE)
    _require_capacity(endpoint)
    delivery = _delivery(endpoint, WebhookEvent.TEST, {"message": "This is a test."}, timezone.now())
    delivery.save()
    return delivery


@transaction.atomic
def resend(*, acting: Actor, delivery: WebhookDelivery) -> WebhookDelivery:
    """Sends a finished delivery again under the same id.

    Raises `Conflict` if it is pending, for the reasons of `send_test`, and for an alert about a group if the address
    gets no such alerts.
    """
    access.require(acting, Scope.BILLING_WRITE)
    if delivery.state == DeliveryState.PENDING:
        raise Conflict(gettext_noop("The delivery waits for its next try already."))
    endpoint = delivery.endpoint
    if not endpoint.has_group_alerts and endpoint.deliveries.filter(ABOUT_GROUPS, pk=delivery.pk).exists():
        raise Conflict(
            gettext_noop("The webhook gets no alerts about consumer groups: who set its address may not see groups."),
            code="no_group_alerts",
        )
    _require_capacity(endpoint)
    delivery.state, delivery.attempts, delivery.next_at, delivery.finished_at = (
        DeliveryState.PENDING, 0, timezone.now(), None,
    )  # fmt: skip
    delivery.save(update_fields=["state", "attempts", "next_at", "finished_at"])
    return delivery


@dataclass(frozen=True, slots=True)
class OutgoingEvent:
    """Event to be sent to the endpoints of one tenant."""

    tenant: Tenant
    event: WebhookEvent
    payload: Mapping[str, Any]

    @property
    def is_about_a_group(self) -> bool:
        """True for an event whose delivery is one of `ABOUT_GROUPS`."""
        is_alert = self.event in (WebhookEvent.ALERT_FIRING, WebhookEvent.ALERT_RESOLVED)
        return is_alert and self.payload["kind"] == AlertKind.CONSUMER_LAG


def publish(tenant: Tenant, event: WebhookEvent, payload: Mapping[str, Any], now: datetime) -> int:
    """Queues an event for every enabled endpoint of the tenant that may have it, in the caller's transaction.

    Returns the number of new deliveries.
    """
    return publish_all([OutgoingEvent(tenant, event, payload)], now)


def publish_all(events: Sequence[OutgoingEvent], now: datetime) -> int:
    """Queues events in order with three queries in total; returns the number of new deliveries."""
    tenants = {event.tenant.pk for event in events}
    endpoints_of: dict[str, list[WebhookEndpoint]] = defaultdict(list)
    for endpoint in WebhookEndpoint.objects.filter(tenant__in=tenants, is_enabled=True).order_by("pk"):
        endpoints_of[endpoint.tenant_id].append(endpoint)
    free_capacity = _free_capacity([endpoint for endpoints in endpoints_of.values() for endpoint in endpoints])
    dropped: Counter[str] = Counter()
    queued = []
    for event in events:
        for endpoint in endpoints_of[event.tenant.pk]:
            if event.is_about_a_group and not endpoint.has_group_alerts:
                continue
            if free_capacity[endpoint.pk] > 0:
                free_capacity[endpoint.pk] -= 1
                queued.append(_delivery(endpoint, event.event, event.payload, now))
            else:
                dropped[endpoint.pk] += 1
    WebhookDelivery.objects.bulk_create(queued)
    for id, deliveries in dropped.items():
        log.warning("webhook_queue_full", webhook=id, dropped=deliveries)
    return len(queued)


def delete_old_deliveries(now: datetime) -> int:
    """Deletes old finished deliveries and returns their number."""
    expired = WebhookDelivery.objects.exclude(state=DeliveryState.PENDING).filter(
        created_at__lt=now - DELIVERY_RETENTION
    )
    ids = list(expired.values_list("pk", flat=True)[:DELETE_BATCH_SIZE])
    return WebhookDelivery.objects.filter(pk__in=ids).delete()[0]


def _require_capacity(endpoint: WebhookEndpoint) -> None:
    if not endpoint.is_enabled:
        raise Conflict(gettext_noop("The webhook is turned off. Turn it on first."), code="disabled")
    if _free_capacity([endpoint])[endpoint.pk] <= 0:
        raise Conflict(gettext_noop("Too many deliveries wait for this webhook."), code="too_many")


def _free_capacity(endpoints: Sequence[WebhookEndpoint]) -> dict[str, int]:
    """Returns the number of further deliveries that may wait for each endpoint."""
    waiting = WebhookDelivery.objects.filter(endpoint__in=endpoints, state=DeliveryState.PENDING)
    counts = dict(waiting.order_by().values_list("endpoint").annotate(Count("pk"))) if endpoints else {}
    return {endpoint.pk: PENDING_PER_ENDPOINT_MAX - counts.get(endpoint.pk, 0) for endpoint in endpoints}


def _delivery(
    endpoint: WebhookEndpoint, event: WebhookEvent, payload: Mapping[str, Any], now: datetime
) -> WebhookDelivery:
    document = {"type": str(event), "timestamp": now.isoformat(), "data": dict(payload)}
    return WebhookDelivery(endpoint=endpoint, event=event, payload=document, next_at=now)


def _encrypted(secret: str) -> str:
    return cipher().encrypt(secret.encode()).decode()


def _address_taken() -> Conflict:
    return Conflict(gettext_noop("There is a webhook with this address."), code="name_taken")


def _require_allowed_url(url: str) -> None:
    try:
        outbound.target_of(url)
    except outbound.OutboundFailed as refusal:
        raise Invalid.at("/url", refusal.detail, code="not_askable") from None


def _audit_values(endpoint: WebhookEndpoint) -> dict[str, Any]:
    return {"url": endpoint.url, "is_enabled": endpoint.is_enabled}
