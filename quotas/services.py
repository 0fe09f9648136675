"""Changes of client quotas through the admin client of the data plane.

Quotas are stored in ZooKeeper; PostgreSQL stores only the audit row of each change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from django.utils.translation import gettext_noop

from quotas import interfaces, selectors
from quotas.addresses import CONNECTION_CREATION_RATE, CONNECTION_CREATION_RATE_MAX, canonical
from quotas.interfaces import EntityPart, InstanceLike
from quotas.limits import (
    BYTE_RATE_MAX,
    ENTITY_NAME_BYTES_MAX,
    MUTATION_RATE_MAX,
    PERCENTAGE_MAX,
    QUOTAS_PER_INSTANCE_MAX,
)
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import FieldError, Invalid, Message, NotFound, QuotaExceeded

INTEGER_KEYS = frozenset({"producer_byte_rate", "consumer_byte_rate"})
LIMITS_MAX: dict[str, float] = {
    "producer_byte_rate": float(BYTE_RATE_MAX),
    "consumer_byte_rate": float(BYTE_RATE_MAX),
    "request_percentage": PERCENTAGE_MAX,
    "controller_mutation_rate": MUTATION_RATE_MAX,
}


@audit.atomic
def set_quota(
    *,
    acting: Actor,
    instance: InstanceLike,
    user: EntityPart | None,
    client_id: EntityPart | None,
    limits: Mapping[str, float | None],
    dry_run: bool = False,
) -> None:
    """Replaces the limits of one entity; a key that is None or absent is removed (PUT).

    The limits are in force on every broker within a second, also for open connections (QUO-7). Raises `Invalid` for an
    entity without parts, an unknown key, or a value out of range, and `QuotaExceeded` if the instance has too many
    quotas.
    """
    access.require(acting, Scope.QUOTAS_WRITE)
    interfaces.require_reachable.implementation(instance)
    _require_entity(user, client_id)
    _require_short_names(user=user, client_id=client_id)
    _require_limits(limits)
    existing_quotas = selectors.quota_list(instance)
    existing_quota = next(
        (quota for quota in existing_quotas if (quota.user, quota.client_id) == (user, client_id)), None
    )
    if existing_quota is None:
        _require_below_maximum(len(existing_quotas) + len(selectors.address_quota_list(instance)))
    before = dict(existing_quota.limits) if existing_quota else {}
    changes = {key: limits.get(key) for key in LIMITS_MAX if key in before or limits.get(key) is not None}
    after = {key: value for key, value in changes.items() if value is not None}
    if before == after:
        return
    action = "quota.set" if after else "quota.removed"
    ref = quota_ref(instance, user, client_id)
    entry = audit.record(acting, action, ref, before or None, after, tenant=instance.tenant)
    with audit.in_doubt(entry):
        interfaces.client_quotas.implementation.alter(instance.pk, user, client_id, changes, validate_only=dry_run)


@audit.atomic
def delete_quota(
    *,
    acting: Actor,
    instance: InstanceLike,
    user: EntityPart | None,
    client_id: EntityPart | None,
    dry_run: bool = False,
) -> None:
    """Removes all limits of one entity; the next level then applies to its clients.

    Raises `NotFound` if the entity has no limits.
    """
    access.require(acting, Scope.QUOTAS_WRITE)
    interfaces.require_reachable.implementation(instance)
    _require_entity(user, client_id)
    existing_quota = selectors.quota_of(instance, user, client_id)
    if existing_quota is None:
        raise NotFound
    ref = quota_ref(instance, user, client_id)
    entry = audit.record(acting, "quota.removed", ref, dict(existing_quota.limits), None, tenant=instance.tenant)
    removal: dict[str, float | None] = dict.fromkeys(existing_quota.limits)
    with audit.in_doubt(entry):
        interfaces.client_quotas.implementation.alter(instance.pk, user, client_id, removal, validate_only=dry_run)


@audit.atomic
def set_address_quota(
    *,
    acting: Actor,
    instance: InstanceLike,
    address: str | None,
    connections_per_s: int | None,
    dry_run: bool = False,
) -> None:
    """Limits the rate of new connections from one address, or (None) from each address without its own limit (PUT).

    If `connections_per_s` is None, an existing limit is removed. The change is in force on every broker within a
    second, for new connections only. Raises `Invalid` for an invalid address or a value out of range, and
    `QuotaExceeded` if the instance has too many quotas.
    """
    access.require(acting, Scope.QUOTAS_WRITE)
    interfaces.require_reachable.implementation(instance)
    address = _require_address(address)
    if connections_per_s is not None and not 0 <= connections_per_s <= CONNECTION_CREATION_RATE_MAX:
        detail = Message(gettext_noop("Use 0 to %(most)s."), most=str(CONNECTION_CREATION_RATE_MAX))
        pointer = f"/limits/{CONNECTION_CREATION_RATE}"
        raise Invalid(detail, errors=[FieldError(pointer=pointer, detail=detail, code="out_of_range")])
    existing_quotas = selectors.address_quota_list(instance)
    before = next((quota.connections_per_s for quota in existing_quotas if quota.address == address), None)
    if before == connections_per_s:
        return
    if before is None:
        _require_below_maximum(len(existing_quotas) + len(selectors.quota_list(instance)))
    _alter_address(acting, instance, address, before, connections_per_s, dry_run)


@audit.atomic
def delete_address_quota(*, acting: Actor, instance: InstanceLike, address: str | None, dry_run: bool = False) -> None:
    """Removes the limit of one address, or (None) the default limit. Raises `NotFound` if there is none."""
    access.require(acting, Scope.QUOTAS_WRITE)
    interfaces.require_reachable.implementation(instance)
    address = _require_address(address)
    existing_quotas = selectors.address_quota_list(instance)
    before = next((quota.connections_per_s for quota in existing_quotas if quota.address == address), None)
    if before is None:
        raise NotFound
    _alter_address(acting, instance, address, before, None, dry_run)


def _alter_address(
    acting: Actor, instance: InstanceLike, address: str | None, before: int | None, after: int | None, dry_run: bool
) -> None:
    audited_before, audited_after = (
        {CONNECTION_CREATION_RATE: value} if value is not None else None for value in (before, after)
    )
    action = "quota.removed" if after is None else "quota.set"
    ref = _audit_target(instance, selectors.address_name(address))
    entry = audit.record(acting, action, ref, audited_before, audited_after, tenant=instance.tenant)
    with audit.in_doubt(entry):
        interfaces.client_quotas.implementation.alter_address(instance.pk, address, after, validate_only=dry_run)


def quota_ref(instance: InstanceLike, user: EntityPart | None, client_id: EntityPart | None) -> tuple[str, str]:
    """Returns the name of a quota in the audit log: `ins-…/users/alice/clients/<default>`."""
    return _audit_target(instance, selectors.entity_name(user, client_id))


def _audit_target(instance: InstanceLike, name: str) -> tuple[str, str]:
    return "quota", f"{instance.pk}/{name}"[:300]


def _require_below_maximum(count: int) -> None:
    if count >= QUOTAS_PER_INSTANCE_MAX:
        raise QuotaExceeded(
            Message(gettext_noop("An instance has at most %(n)s client quotas."), n=QUOTAS_PER_INSTANCE_MAX)
        )


def _require_address(address: str | None) -> str | None:
    try:
        return None if address is None else canonical(address)
    except ValueError:
        raise Invalid.at("/entity/ip", "Use an IP address, such as 192.0.2.1.", code="not_an_address") from None


def _require_entity(user: EntityPart | None, client_id: EntityPart | None) -> None:
    if user is None and client_id is None:
        raise Invalid.at("/entity", "Name a user, a client id, or both; null means the default.", code="empty_entity")


def _require_short_names(**parts: EntityPart | None) -> None:
    """Raises `Invalid` for a name that is too long. Quotas that already have longer names can still be removed."""
    for kind, part in parts.items():
        if part is not None and len(quote(part.name or "", safe="-_.")) > ENTITY_NAME_BYTES_MAX:
            detail = Message(gettext_noop("Use a name of at most %(n)s bytes."), n=ENTITY_NAME_BYTES_MAX)
            raise Invalid(detail, errors=[FieldError(pointer=f"/entity/{kind}", detail=detail, code="too_long")])


def _require_limits(limits: Mapping[str, Any]) -> None:
    errors = []
    for key, value in limits.items():
        pointer = f"/limits/{key}"
        if key not in LIMITS_MAX:
            errors.append(FieldError(pointer=pointer, detail="There is no such limit.", code="unknown_field"))
        elif value is not None and not 0 <= value <= LIMITS_MAX[key]:
            errors.append(
                FieldError(
                    pointer=pointer,
                    detail=Message(gettext_noop("Use 0 to %(most)s."), most=f"{LIMITS_MAX[key]:.0f}"),
                    code="out_of_range",
                )
            )
        elif value is not None and key in INTEGER_KEYS and value != int(value):
            errors.append(FieldError(pointer=pointer, detail="Use whole bytes per second.", code="not_whole"))
    if errors:
        raise Invalid(errors[0].detail, errors=errors)
