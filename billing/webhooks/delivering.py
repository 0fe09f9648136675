"""Sending what is due. Of each tenant one delivery is under way at a time: an address that is slow has one place, and
keeps nobody else waiting.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime, timedelta

import structlog
from cryptography.fernet import InvalidToken
from django.db import connections, transaction
from django.db.models import F
from django.utils import timezone

from billing.models import DeliveryState, WebhookDelivery, WebhookEndpoint
from billing.models.webhooks import ANSWER_CHARS_MAX
from billing.webhooks import pacing, signing
from brokers.infra.locks import Busy, only_one
from tenants import outbound
from tenants.second_factor.adapter import cipher

log = structlog.get_logger(__name__)

LOCK = "webhooks"
AT_ONCE_MAX = 16
# A run takes up nothing more after so long.
RUN_S = 5.0
# Whoever takes a delivery has it for so long; a worker that is killed gives it back then.
LEASE = timedelta(seconds=60)


def deliver(now: datetime) -> int:
    """How many tries were made. One run at a time: a slow address holds one worker of ours, not each of them."""
    try:
        with only_one(LOCK):
            return _run(now)
    except Busy:
        return 0


def _run(now: datetime) -> int:
    ends_s = time.monotonic() + RUN_S
    tries = 0
    under_way: dict[Future[None], str] = {}
    with ThreadPoolExecutor(AT_ONCE_MAX) as pool:
        while True:
            room = AT_ONCE_MAX - len(under_way)
            if room and time.monotonic() < ends_s:
                for each in _take(now, room, under_way.values()):
                    under_way[pool.submit(_try, each, now)] = each.endpoint.tenant_id
                    tries += 1
            if not under_way:
                return tries
            done, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                del under_way[future]
                future.result()


@transaction.atomic
def _take(now: datetime, most: int, busy: Collection[str]) -> list[WebhookDelivery]:
    """The oldest due one of each tenant that has none under way."""
    due = WebhookDelivery.objects.filter(state=DeliveryState.PENDING, next_at__lte=now, endpoint__is_enabled=True)
    oldest = (
        due.exclude(endpoint__tenant_id__in=list(busy))
        .order_by("endpoint__tenant_id", "next_at", "pk")
        .distinct("endpoint__tenant_id")
        .values("pk")
    )
    found = list(
        WebhookDelivery.objects.filter(pk__in=oldest, next_at__lte=now)
        .select_for_update(skip_locked=True, of=("self",))
        .select_related("endpoint")
        .order_by("next_at")[:most]
    )
    WebhookDelivery.objects.filter(pk__in=[each.pk for each in found]).update(
        next_at=now + LEASE, attempts=F("attempts") + 1
    )
    for each in found:
        each.attempts += 1
    return found


def _try(delivery: WebhookDelivery, now: datetime) -> None:
    try:
        body = json.dumps(delivery.payload, separators=(",", ":")).encode()
        status, answer = None, ""
        try:
            headers = signing.headers(_secrets(delivery.endpoint), delivery.pk, int(time.time()), body)
            found = outbound.post(delivery.endpoint.url, body, headers, bytes_max=ANSWER_CHARS_MAX)
            status, answer = found.status, found.body.decode("utf-8", "replace").replace("\x00", "\ufffd")
        except outbound.OutboundFailed as failure:
            answer = str(failure)
        except InvalidToken:
            answer = "Its secret cannot be read any more. Rotate it."
        _note(delivery, status, answer[:ANSWER_CHARS_MAX], now)
    finally:
        connections.close_all()


@transaction.atomic
def _note(delivery: WebhookDelivery, status: int | None, answer: str, now: datetime) -> None:
    """Of an endpoint that was deleted meanwhile nothing is kept."""
    endpoint = WebhookEndpoint.objects.select_for_update().filter(pk=delivery.endpoint_id).first()
    if endpoint is None:
        return
    changed: dict[str, object] = {"status": status, "answer": answer}
    failed_in_a_row, is_enabled = endpoint.failed_in_a_row, endpoint.is_enabled
    if status is not None and pacing.is_taken(status):
        changed |= {"state": DeliveryState.DELIVERED, "finished_at": now}
        failed_in_a_row = 0
    elif (pause := pacing.wait_after(delivery.attempts)) is not None:
        changed["next_at"] = now + pause
    else:
        changed |= {"state": DeliveryState.FAILED, "finished_at": now}
        failed_in_a_row += 1
        is_enabled = is_enabled and failed_in_a_row < pacing.FAILED_IN_A_ROW_MAX
    WebhookDelivery.objects.filter(pk=delivery.pk).update(**changed)
    if (failed_in_a_row, is_enabled) != (endpoint.failed_in_a_row, endpoint.is_enabled):
        if not is_enabled:
            log.warning("webhook_turned_off", webhook=endpoint.pk)
        endpoint.failed_in_a_row, endpoint.is_enabled = failed_in_a_row, is_enabled
        endpoint.save_changes(["failed_in_a_row", "is_enabled"])


def _secrets(endpoint: WebhookEndpoint) -> list[str]:
    sealed = [endpoint.secret]
    if endpoint.former_secret and endpoint.former_until is not None and endpoint.former_until > timezone.now():
        sealed.append(endpoint.former_secret)
    return [cipher().decrypt(each.encode()).decode() for each in sealed]
