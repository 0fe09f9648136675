"""Idempotency-Key: a repeated POST is executed once.

Everything happens in the request's transaction: an advisory lock (taken or refused immediately) serialises concurrent
requests, and the response is stored together with the changes. Only successful responses are stored: a refused request
has changed nothing, so its key may be used again. Fields shown once (secrets) are stored as null.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from django.db import connection
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.actors import Actor
from tenants.errors import Conflict, FieldError, Invalid, Unprocessable
from tenants.limits import IDEMPOTENCY_HOURS, IDEMPOTENCY_KEY_CHARS_MAX, IDEMPOTENCY_RESPONSE_BYTES_MAX
from tenants.models import IdempotencyRecord

HEADER = "Idempotency-Key"
REPLAYED_HEADER = "Idempotency-Replayed"
STORED_HEADERS = ("Location", "ETag")
RETENTION = timedelta(hours=IDEMPOTENCY_HOURS)
RETRY_AFTER_S = 1


def key_of(request: Request) -> str | None:
    """Returns the key of a request, or None. Raises `Invalid` unless it is 1 to 128 visible ASCII characters."""
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not 1 <= len(key) <= IDEMPOTENCY_KEY_CHARS_MAX or not all("!" <= character <= "~" for character in key):
        detail = f"Use 1 to {IDEMPOTENCY_KEY_CHARS_MAX} visible ASCII characters."
        raise Invalid(detail, errors=[FieldError(header=HEADER, detail=detail)])
    return key


def run_once(
    request: Request, actor: Actor, key: str, handle: Callable[[], Response], secret_fields: Iterable[str] = ()
) -> Response:
    """Runs `handle` unless its response is stored. Must be called in the transaction in which `handle` writes.

    Raises `Conflict` while another request with the key is running and `Unprocessable` if the key was used for a
    different request.
    """
    tenant_id = actor.tenant.pk if actor.tenant else ""
    if not _try_lock(f"{tenant_id}\n{actor.id}\n{key}"):
        raise Conflict(
            "A request with this Idempotency-Key is being carried out.",
            code="idempotency_key_in_use",
            retry_after_s=RETRY_AFTER_S,
        )
    rows = IdempotencyRecord.objects.filter(tenant_id=tenant_id, actor_id=actor.id, key=key)
    rows.filter(created_at__lt=timezone.now() - RETENTION).delete()
    fingerprint = _fingerprint(request)
    record = rows.first()
    if record is not None:
        if record.fingerprint != fingerprint:
            raise Unprocessable("This Idempotency-Key was used for a different request.", code="idempotency_key_reused")
        headers = {**record.headers, REPLAYED_HEADER: "true"}
        return Response(record.body, status=record.status, headers=headers)
    response = handle()
    if response.status_code < 300:
        _store(response, tenant_id, actor.id, key, fingerprint, frozenset(secret_fields))
    return response


def _store(
    response: Response, tenant_id: str, actor_id: str, key: str, fingerprint: str, secret_fields: frozenset[str]
) -> None:
    from rest_framework.utils.encoders import JSONEncoder

    text = json.dumps(response.data, cls=JSONEncoder)
    assert len(text) <= IDEMPOTENCY_RESPONSE_BYTES_MAX, "an answer to a POST outgrew what an idempotency record holds"
    IdempotencyRecord.objects.create(
        tenant_id=tenant_id,
        actor_id=actor_id,
        key=key,
        fingerprint=fingerprint,
        status=response.status_code,
        headers={name: response.headers[name] for name in STORED_HEADERS if name in response.headers},
        body=_with_nulled_secrets(json.loads(text), secret_fields),
    )


def delete_expired(now: Any) -> int:
    """Deletes expired records and returns their number; called by a beat task."""
    return IdempotencyRecord.objects.filter(created_at__lt=now - RETENTION).delete()[0]


def _with_nulled_secrets(value: Any, secret_fields: frozenset[str]) -> Any:
    """Returns a JSON value in which all fields called like a secret field are null."""
    if isinstance(value, dict):
        return {
            name: None if name in secret_fields else _with_nulled_secrets(child, secret_fields)
            for name, child in value.items()
        }
    return [_with_nulled_secrets(child, secret_fields) for child in value] if isinstance(value, list) else value


def _fingerprint(request: Request) -> str:
    http = request._request
    head = f"{http.method} {http.get_full_path()}\n".encode()
    return hashlib.sha256(head + http.body).hexdigest()


def _try_lock(name: str) -> bool:
    """Locks the name until the end of the transaction. Returns False if another transaction has the lock."""
    number = int.from_bytes(hashlib.sha256(f"idempotency\n{name}".encode()).digest()[:8], "big", signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
        return bool(cursor.fetchone()[0])
