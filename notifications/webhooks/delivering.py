"""Sends due deliveries concurrently (`choosing` selects them) and records the results."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime, timedelta

import structlog
from cryptography.fernet import InvalidToken
from django.db import connections, transaction
from django.utils import timezone

from brokers.infra.locks import Busy, exclusive_lock
from notifications.models import DeliveryState, WebhookDelivery, WebhookEndpoint
from notifications.models.webhooks import ANSWER_CHARS_MAX
from notifications.webhooks import choosing, pacing, signing
from tenants import outbound
from tenants.containment import contained
from tenants.limits import OUTBOUND_DEADLINE_S
from tenants.second_factor.adapter import cipher

log = structlog.get_logger(__name__)

LOCK = "webhooks"
# After this time a run takes no delivery to a slow endpoint, and after DRAIN_S more none at all; another run follows.
RUN_S = 5.0
DRAIN_S = OUTBOUND_DEADLINE_S
# Interval at which a run chooses further deliveries, even while all deliveries in progress are slow.
POLL_INTERVAL_S = 0.5
# Lease of a delivery: if the worker is killed, the delivery becomes due again after this time.
LEASE = timedelta(seconds=60)
# An endpoint with a longer response time is slow until it responds faster.
SLOW_RESPONSE_S = 2.0


def deliver(now: datetime) -> int:
    """Sends the deliveries that are due from `now` on until the run ends, and returns the number of attempts.

    Only one run is active at a time, so that slow addresses block only one worker.
    """
    try:
        with exclusive_lock(LOCK):
            return _run(now)
    except Busy:
        return 0


def _run(now: datetime) -> int:
    started_s = time.monotonic()

    def clock() -> datetime:
        return now + timedelta(seconds=time.monotonic() - started_s)

    attempts = 0
    in_flight: dict[Future[None], WebhookEndpoint] = {}
    with ThreadPoolExecutor(choosing.IN_FLIGHT_MAX) as pool:
        while True:
            age_s = time.monotonic() - started_s
            if age_s < RUN_S + DRAIN_S:
                leased = choosing.lease_due(clock(), clock() + LEASE, in_flight.values(), include_slow=age_s < RUN_S)
                for delivery in leased:
                    in_flight[pool.submit(_attempt, delivery, clock)] = delivery.endpoint
                    attempts += 1
            if not in_flight:
                return attempts
            completed_futures, _ = wait(in_flight, timeout=POLL_INTERVAL_S, return_when=FIRST_COMPLETED)
            for future in completed_futures:
                endpoint = in_flight.pop(future)
                with contained("webhook_failed", webhook=endpoint.pk):
                    future.result()


def _attempt(delivery: WebhookDelivery, clock: Callable[[], datetime]) -> None:
    try:
        body = json.dumps(delivery.payload, separators=(",", ":")).encode()
        status, response_text = None, ""
        started_s = time.monotonic()
        try:
            headers = signing.headers(_secrets(delivery.endpoint), delivery.pk, int(time.time()), body)
            response = outbound.post(delivery.endpoint.url, body, headers, bytes_max=ANSWER_CHARS_MAX)
            status, response_text = response.status, response.body.decode("utf-8", "replace").replace("\x00", "\ufffd")
        except outbound.OutboundFailed as failure:
            response_text = str(failure)
        except InvalidToken:
            response_text = "Its secret cannot be read any more. Rotate it."
        _record_pace(delivery.endpoint, time.monotonic() - started_s)
        _record_result(delivery, status, response_text[:ANSWER_CHARS_MAX], clock())
    finally:
        connections.close_all()


def _record_pace(endpoint: WebhookEndpoint, duration_s: float) -> None:
    WebhookEndpoint.objects.filter(pk=endpoint.pk).exclude(is_slow=duration_s > SLOW_RESPONSE_S).update(
        is_slow=duration_s > SLOW_RESPONSE_S
    )


@transaction.atomic
def _record_result(delivery: WebhookDelivery, status: int | None, response_text: str, now: datetime) -> None:
    """Records the result; nothing is recorded if the endpoint was deleted meanwhile."""
    endpoint = WebhookEndpoint.objects.select_for_update().filter(pk=delivery.endpoint_id).first()
    if endpoint is None:
        return
    new_values: dict[str, object] = {"status": status, "answer": response_text}
    failed_in_a_row, is_enabled = endpoint.failed_in_a_row, endpoint.is_enabled
    if status is not None and pacing.is_success(status):
        new_values |= {"state": DeliveryState.DELIVERED, "finished_at": now}
        failed_in_a_row = 0
    elif (delay := pacing.retry_delay(delivery.attempts)) is not None:
        new_values["next_at"] = now + delay
    else:
        new_values |= {"state": DeliveryState.FAILED, "finished_at": now}
        failed_in_a_row += 1
        is_enabled = is_enabled and failed_in_a_row < pacing.FAILED_IN_A_ROW_MAX
    WebhookDelivery.objects.filter(pk=delivery.pk).update(**new_values)
    if (failed_in_a_row, is_enabled) != (endpoint.failed_in_a_row, endpoint.is_enabled):
        if not is_enabled:
            log.warning("webhook_turned_off", webhook=endpoint.pk)
        endpoint.failed_in_a_row, endpoint.is_enabled = failed_in_a_row, is_enabled
        endpoint.save_changes(["failed_in_a_row", "is_enabled"])


def _secrets(endpoint: WebhookEndpoint) -> list[str]:
    encrypted = [endpoint.secret]
    if endpoint.former_secret and endpoint.former_until is not None and endpoint.former_until > timezone.now():
        encrypted.append(endpoint.former_secret)
    return [cipher().decrypt(secret.encode()).decode() for secret in encrypted]
