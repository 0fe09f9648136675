"""The audit log: every change, written in the transaction that makes it.

`audit.record(acting, "topic.created", topic_ref, before=None, after={...})`. Actions are `<thing>.<past participle>`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Model

from tenants.actors import Actor
from tenants.models import AuditEntry, Tenant

HIDDEN = "(hidden)"
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
    """Append one entry. `target` is a model row, or (kind, id) for things without a row, such as a topic.

    `before` and `after` hold only what changed. Values under keys that sound secret are replaced, whatever they are.
    `tenant` defaults to the actor's.
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


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parts of both that differ, ready for `record(..., before, after)`."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {n: before[n] for n in names if n in before}, {n: after[n] for n in names if n in after}


def _plain(values: Mapping[str, Any] | None) -> Any:
    if values is None:
        return None
    return json.loads(json.dumps(_without_secrets(values), cls=DjangoJSONEncoder))


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if any(word in str(name).lower() for word in SECRET_WORDS) else _without_secrets(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_secrets(inner) for inner in value]
    return value
