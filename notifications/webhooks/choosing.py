"""Choice of the deliveries to send next: fair by tenant, and limited by tenant, address and endpoint.

Slots limit concurrent deliveries. Endpoints that answered slowly or were never tried may only use a part of them, so
that a slot is always left for fast endpoints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from urllib.parse import urlsplit

from django.db import transaction
from django.db.models import Exists, F, OuterRef
from django.utils import timezone

from notifications import queues
from notifications.models import DeliveryState, Queue, WebhookDelivery, WebhookEndpoint

# Maximum numbers of concurrent deliveries: of all, to slow endpoints, of one tenant, and to one address.
IN_FLIGHT_MAX = 16
SLOW_IN_FLIGHT_MAX = 8
TENANT_IN_FLIGHT_MAX = 2
ADDRESS_IN_FLIGHT_MAX = 4
# Maximum number of endpoints considered at once, least recently tried first.
CANDIDATES_MAX = 1_000


def is_slow(endpoint: WebhookEndpoint) -> bool:
    """True for an endpoint whose last response was slow, and for one that was never tried."""
    return endpoint.is_slow or endpoint.tried_at is None


def address_of(endpoint: WebhookEndpoint) -> str:
    """Returns host and port in lower case; several endpoints, even of different tenants, may share one."""
    return urlsplit(endpoint.url).netloc.lower()


class DeliverySlots:
    """Slots for concurrent deliveries, and the deliveries that occupy them. Pure."""

    def __init__(self, in_flight: Iterable[WebhookEndpoint]) -> None:
        self._endpoints: set[str] = set()
        self._tenants: Counter[str] = Counter()
        self._addresses: Counter[str] = Counter()
        self._slow = 0
        for endpoint in in_flight:
            self._add(endpoint)

    @property
    def is_full(self) -> bool:
        return len(self._endpoints) >= IN_FLIGHT_MAX

    def take(self, endpoint: WebhookEndpoint) -> bool:
        """Takes a slot for a delivery to the endpoint; False if there is none for it."""
        if (
            self.is_full
            or endpoint.pk in self._endpoints
            or self._tenants[endpoint.tenant_id] >= TENANT_IN_FLIGHT_MAX
            or self._addresses[address_of(endpoint)] >= ADDRESS_IN_FLIGHT_MAX
            or (is_slow(endpoint) and self._slow >= SLOW_IN_FLIGHT_MAX)
        ):
            return False
        self._add(endpoint)
        return True

    def _add(self, endpoint: WebhookEndpoint) -> None:
        self._endpoints.add(endpoint.pk)
        self._tenants[endpoint.tenant_id] += 1
        self._addresses[address_of(endpoint)] += 1
        self._slow += is_slow(endpoint)


def round_robin(endpoints: Iterable[WebhookEndpoint], tenants: Iterable[str]) -> Iterator[WebhookEndpoint]:
    """Yields the first endpoint of each tenant in the given order, then the second of each, and so on. Pure."""
    endpoints_by_tenant: dict[str, list[WebhookEndpoint]] = {tenant_id: [] for tenant_id in tenants}
    for endpoint in endpoints:
        endpoints_by_tenant[endpoint.tenant_id].append(endpoint)
    for number in range(max(map(len, endpoints_by_tenant.values()), default=0)):
        for tenant_endpoints in endpoints_by_tenant.values():
            if number < len(tenant_endpoints):
                yield tenant_endpoints[number]


def lease_due(
    now: datetime, lease_until: datetime, in_flight: Collection[WebhookEndpoint], *, include_slow: bool = True
) -> list[WebhookDelivery]:
    """Leases the deliveries to send now until `lease_until`: the oldest of each chosen endpoint that is due at `now`.

    `in_flight` are the endpoints of deliveries in progress. Without `include_slow` no slow endpoint is chosen.
    """
    slots = DeliverySlots(in_flight)
    if slots.is_full:
        return []
    due_deliveries = WebhookDelivery.objects.filter(
        endpoint=OuterRef("pk"), state=DeliveryState.PENDING, next_at__lte=now
    )
    rows = WebhookEndpoint.objects.filter(Exists(due_deliveries), is_enabled=True)
    if not include_slow:
        rows = rows.filter(is_slow=False, tried_at__isnull=False)
    waiting_endpoints = list(rows.order_by(F("tried_at").asc(nulls_first=True), "pk")[:CANDIDATES_MAX])
    tenants = queues.in_service_order(Queue.WEBHOOKS, {endpoint.tenant_id for endpoint in waiting_endpoints})
    chosen_endpoints = [endpoint for endpoint in round_robin(waiting_endpoints, tenants) if slots.take(endpoint)]
    return _lease(chosen_endpoints, now, lease_until) if chosen_endpoints else []


@transaction.atomic
def _lease(endpoints: Iterable[WebhookEndpoint], now: datetime, lease_until: datetime) -> list[WebhookDelivery]:
    leased: list[WebhookDelivery] = []
    for endpoint in endpoints:
        due_deliveries = WebhookDelivery.objects.filter(
            endpoint=endpoint, state=DeliveryState.PENDING, next_at__lte=now
        )
        delivery = due_deliveries.order_by("next_at", "pk").select_for_update(skip_locked=True, of=("self",)).first()
        if delivery is not None:
            delivery.endpoint = endpoint
            delivery.attempts += 1
            leased.append(delivery)
    ids = [delivery.pk for delivery in leased]
    WebhookDelivery.objects.filter(pk__in=ids).update(next_at=lease_until, attempts=F("attempts") + 1)
    tried_ids = [delivery.endpoint_id for delivery in leased]
    WebhookEndpoint.objects.filter(pk__in=tried_ids).update(tried_at=timezone.now())
    queues.record_served(Queue.WEBHOOKS, [delivery.endpoint.tenant_id for delivery in leased])
    return leased
