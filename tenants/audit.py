"""Audit log: every change, written in its transaction, and kept if the outcome of the change is unknown.

`audit.record(acting, "topic.created", topic_ref, before=None, after={...})`. Actions are `<thing>.<past participle>`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, ParamSpec, TypeVar

from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection, transaction
from django.db.models import Model

from tenants.actors import Actor
from tenants.choices import ActorKind
from tenants.errors import OutcomeUnknown
from tenants.limits import AUDIT_CLIENT_ROWS_KEPT_DAYS
from tenants.models import AuditEntry, Tenant

P = ParamSpec("P")
T = TypeVar("T")

HIDDEN = "(hidden)"
OUTCOME_UNKNOWN = "unknown"
INSERT_BATCH_SIZE = 500
DELETE_BATCH_SIZE = 5_000
SECRET_WORDS = ("secret", "password", "hash", "credential", "private")


def record(
    acting: Actor,
    action: str,
    target: Model | tuple[str, str],
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    *,
    tenant: Tenant | None = None,
) -> AuditEntry:
    """Appends an entry. `target` is a model row, or (kind, id) for objects without a row, such as a topic.

    `before` and `after` contain only what changed. Values under keys that look secret are replaced. `tenant` defaults
    to the actor's.
    """
    target_type, target_id = target if isinstance(target, tuple) else (target._meta.model_name or "", str(target.pk))
    return AuditEntry.objects.create(
        tenant=tenant or acting.tenant,
        actor_kind=acting.kind,
        actor_id=acting.id,
        actor_label=acting.label,
        action=action,
        target_type=target_type,
        target_id=target_id,
        before=_plain(before),
        after=_plain(after),
        request_id=acting.request_id or "",
        ip=acting.ip,
    )


def append(entries: Sequence[AuditEntry]) -> None:
    """Appends entries about actions of Kafka clients. The caller's transaction ensures that each is appended once."""
    for entry in entries:
        entry.before, entry.after = _plain(entry.before), _plain(entry.after)
    AuditEntry.objects.bulk_create(entries, batch_size=INSERT_BATCH_SIZE)


def delete_expired_client_entries(now: datetime) -> int:
    """Deletes expired entries about Kafka clients, the oldest first, and returns their number."""
    expired = AuditEntry.objects.filter(
        actor_kind=ActorKind.CLIENT, time__lt=now - timedelta(days=AUDIT_CLIENT_ROWS_KEPT_DAYS)
    )
    oldest_ids = list(expired.order_by("time").values_list("pk", flat=True)[:DELETE_BATCH_SIZE])
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM tenants_auditentry WHERE id = ANY(%s)", [oldest_ids])
        return cursor.rowcount


@contextmanager
def in_doubt(entry: AuditEntry) -> Iterator[None]:
    """Wraps the call that performs the change of `entry`: if its outcome is unknown, the row is kept."""
    try:
        yield
    except OutcomeUnknown as error:
        error.audit_entries += (entry,)
        raise


def record_unknown_outcome(error: OutcomeUnknown) -> None:
    """Writes the rows of changes with an unknown outcome after a rollback, with `"outcome": "unknown"`.

    It is called after each rollback: by a service's `atomic`, and by the REST view around its own transaction.
    """
    for entry in error.audit_entries:
        entry.after = {**(entry.after or {}), "outcome": OUTCOME_UNKNOWN}
        entry._state.adding = True
        entry.save(force_insert=True)


def atomic(service: Callable[P, T]) -> Callable[P, T]:
    """Decorates a service that changes state outside the database: runs it in a transaction, and keeps the entries of
    `in_doubt` if the transaction is rolled back.
    """

    @functools.wraps(service)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with transaction.atomic():
                return service(*args, **kwargs)
        except OutcomeUnknown as error:
            record_unknown_outcome(error)
            raise

    return run


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the entries of `before` and of `after` that differ, for `record(..., before, after)`."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {name: before[name] for name in names if name in before}, {
        name: after[name] for name in names if name in after
    }


def _plain(values: Mapping[str, Any] | None) -> Any:
    if values is None:
        return None
    return json.loads(json.dumps(_without_secrets(values), cls=DjangoJSONEncoder))


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if any(word in str(name).lower() for word in SECRET_WORDS) else _without_secrets(child)
            for name, child in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_secrets(child) for child in value]
    return value
