"""Conversion of a broker's audit event to rows of the tenant's audit log. Pure except for the row classes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any, Final

from brokers.contract.audit import DONE, NOBODY, SEVERAL, AuditEvent, AuditItem
from instances.models import Instance
from instances.services.group_common import group_ref
from instances.services.topics import topic_ref
from instances.services.users import user_ref
from tenants.audit import OUTCOME_UNKNOWN
from tenants.choices import ActorKind
from tenants.limits import AUDIT_REF_CHARS_MAX
from tenants.models import AuditEntry

UNKNOWN_USER: Final = "unknown user"
SEVERAL_USERS: Final = "several"
LABEL_CHARS_MAX: Final = 254
ACTION_CHARS_MAX: Final = 64
REQUEST_ID_CHARS_MAX: Final = 64
# PostgreSQL text cannot contain U+0000 or unpaired surrogates.
_NO_NUL: Final = str.maketrans({"\x00": "\N{REPLACEMENT CHARACTER}"})


def audit_entries_of(event: AuditEvent, instance: Instance) -> list[AuditEntry]:
    """Returns one row for each item of the event, and one with the number of items that it does not name."""
    context = _event_context(event)
    rows = [_audit_entry(event, instance, item, context) for item in event.items]
    if event.more and event.items:
        last_item = event.items[-1]
        unnamed_items = AuditItem(action=last_item.action, kind="instance", name="", after={"more": event.more})
        rows.append(_audit_entry(event, instance, unnamed_items, context))
    return rows


def clean(value: Any) -> Any:
    """Returns a value that a JSON column can store."""
    if isinstance(value, str):
        return value.translate(_NO_NUL).encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {clean(name): clean(element) for name, element in value.items()}
    if isinstance(value, list | tuple):
        return [clean(element) for element in value]
    return value


def _audit_entry(event: AuditEvent, instance: Instance, item: AuditItem, context: dict[str, Any]) -> AuditEntry:
    after = item.after
    if item.outcome != DONE:
        after = {**(after or {}), "outcome": OUTCOME_UNKNOWN}
    target_type, target_id = _target_ref(instance, item.kind, clean(item.name))
    user = clean(event.user)
    return AuditEntry(
        time=_datetime_from_ms(event.at_ms),
        tenant_id=instance.tenant_id,
        actor_kind=ActorKind.CLIENT,
        actor_id=f"{instance.pk}/users/{user}"[:AUDIT_REF_CHARS_MAX],
        actor_label=_user_label(user)[:LABEL_CHARS_MAX],
        action=clean(item.action)[:ACTION_CHARS_MAX],
        target_type=target_type[:32],
        target_id=target_id[:AUDIT_REF_CHARS_MAX],
        before=clean(item.before),
        after=clean(after),
        request_id=clean(event.id)[:REQUEST_ID_CHARS_MAX],
        ip=_address_or_none(event.address),
        context=context,
    )


def _user_label(user: str) -> str:
    return {NOBODY: UNKNOWN_USER, SEVERAL: SEVERAL_USERS}.get(user, user)


def _target_ref(instance: Instance, kind: str, name: str) -> tuple[str, str]:
    """Returns the reference that rows about people's actions use for the same object."""
    if not name:
        return "instance", instance.pk
    match kind:
        case "topic":
            return topic_ref(instance, name)
        case "group":
            return group_ref(instance, name)
        case "user":
            return user_ref(instance, name)
        case "acl":
            return kind, f"{instance.pk}/acls/{name}"
    return kind, f"{instance.pk}/{name}"


def _event_context(event: AuditEvent) -> dict[str, Any]:
    context: dict[str, Any] = {"broker": event.broker_id}
    for name, text in (("client_id", event.client_id), ("route", event.route)):
        if text:
            context[name] = clean(text)
    if event.requests > 1:
        context |= {"requests": event.requests, "until": _datetime_from_ms(event.until_ms).isoformat()}
    for name, count in (("more", event.more), ("failed", event.failed)):
        if count:
            context[name] = count
    return context


def _datetime_from_ms(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def _address_or_none(text: str) -> str | None:
    try:
        return str(ip_address(text))
    except ValueError:
        return None
