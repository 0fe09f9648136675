"""Deletion of users with undo: a deleted user may not sign in and is not listed, and is purged when it
expires.

Passwords, full access, expiry, access rules and quotas stay; therefore the name stays taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.utils.translation import gettext_noop

from instances.access import require_reachable
from instances.lifecycle.phases import REACHABLE
from instances.limits import (
    DELETED_USERS_KEPT_DAYS,
    DELETED_USERS_MAX,
    PURGE_RETRIED_AFTER_S,
    PURGES_PER_ROUND_MAX,
)
from instances.models import DeletedUser, Instance
from instances.services.common import lock_user, user_ref
from instances.users import selectors
from instances.users.interfaces import UserChange, UserDescription, user_admin_client
from tenants import access, audit
from tenants.actors import Actor, system_actor
from tenants.choices import Scope
from tenants.containment import contained
from tenants.errors import Conflict, DomainError, Message, NotFound

RESTORE_PERIOD = timedelta(days=DELETED_USERS_KEPT_DAYS)


def soft_delete_user(instance: Instance, user: UserDescription, *, now: datetime) -> DeletedUser:
    """Writes the row of a deleted user. The oldest deleted users beyond the limit of the instance expire now."""
    rows = DeletedUser.objects.filter(instance=instance).exclude(name=user.name)
    oldest_first = rows.order_by("deleted_at").values_list("pk", flat=True)
    excess = list(oldest_first[: max(0, rows.count() - DELETED_USERS_MAX + 1)])
    DeletedUser.objects.filter(pk__in=excess).update(expires_at=now)
    values = {
        "created_at_ms": user.created_at_ms,
        "secret_ids": sorted(secret.id for secret in user.secrets),
        "was_disabled": user.disabled,
        "deleted_at": now,
        "expires_at": now + RESTORE_PERIOD,
    }
    return DeletedUser.objects.update_or_create(instance=instance, name=user.name, defaults=values)[0]


def require_user_name_free(instance: Instance, name: str) -> None:
    """Raises `Conflict(recently_deleted)` for the name of a deleted user that can be restored; deletes the row of one
    that cannot.
    """
    row = DeletedUser.objects.filter(instance=instance, name=name).first()
    if row is None:
        return
    if _user_of_row(row) is not None:
        detail = Message(
            gettext_noop(
                "User %(name)s was deleted and can be restored. Restore it, or delete it for good, to use its name."
            ),
            name=name,
        )
        raise Conflict(detail, code="recently_deleted")
    row.delete()


@audit.atomic
def restore_user(*, acting: Actor, instance: Instance, name: str, dry_run: bool = False) -> None:
    """Lets a deleted user sign in again, with its passwords, rights and quotas; a disabled user stays disabled.

    Raises `NotFound` for a user that is not deleted, or whose passwords a Kafka client has changed or
    deleted since.
    """
    access.require(acting, Scope.USERS_WRITE)
    require_reachable(instance)
    lock_user(instance, name)
    row = _deleted_row(instance, name)
    if _user_of_row(row) is None:
        raise NotFound(gettext_noop("A Kafka client has deleted or changed this user since: it cannot be restored."))
    entry = audit.record(acting, "user.restored", user_ref(instance, name), None, {}, tenant=instance.tenant)
    row.delete()
    if not row.was_disabled:
        with audit.in_doubt(entry):
            user_admin_client.implementation.change(
                instance.pk, UserChange(name=name, disabled=False), validate_only=dry_run
            )


@audit.atomic
def purge_deleted_user(*, acting: Actor, instance: Instance, name: str, dry_run: bool = False) -> None:
    """Purges a deleted user. Raises `NotFound` for a user that is not deleted."""
    access.require(acting, Scope.USERS_WRITE)
    require_reachable(instance)
    lock_user(instance, name)
    row = _deleted_row(instance, name)
    exists = _user_of_row(row) is not None
    entry = audit.record(acting, "user.deleted_for_good", user_ref(instance, name), {}, None, tenant=instance.tenant)
    row.delete()
    if exists:
        with audit.in_doubt(entry):
            user_admin_client.implementation.change(
                instance.pk, UserChange(name=name, is_deleted=True), validate_only=dry_run
            )


def purge_expired_users(now: datetime) -> int:
    """Purges expired users, and returns their number; one that fails can be restored until it is tried again."""
    reachable = [phase.value for phase in REACHABLE]
    rows = DeletedUser.objects.filter(expires_at__lte=now, instance__phase__in=reachable)
    purged = 0
    for row in rows.select_related("instance__tenant").order_by("expires_at")[:PURGES_PER_ROUND_MAX]:
        acting = system_actor("deleted users", row.instance.tenant)
        with contained("users.purge_failed", instance_id=row.instance_id):
            purge_deleted_user(acting=acting, instance=row.instance, name=row.name)
            purged += 1
            continue
        DeletedUser.objects.filter(pk=row.pk).update(expires_at=now + timedelta(seconds=PURGE_RETRIED_AFTER_S))
    return purged


def deleted_users(instance: Instance) -> Sequence[DeletedUser]:
    """Returns the deleted users that can be restored, latest first; while brokers do not answer, also those that a
    Kafka client has deleted or changed since.
    """
    rows = list(DeletedUser.objects.filter(instance=instance).order_by("-deleted_at", "name"))
    if not rows or instance.current_phase not in REACHABLE:
        return rows
    try:
        listing = user_admin_client.implementation.users(instance.pk, [row.name for row in rows])
    except DomainError:
        return rows
    users = {user.name: user for user in listing.users}
    return [row for row in rows if row.name in users and selectors.is_deleted(users[row.name], row)]


def _deleted_row(instance: Instance, name: str) -> DeletedUser:
    row = DeletedUser.objects.filter(instance=instance, name=name).first()
    if row is None:
        raise NotFound(gettext_noop("There is no deleted user of this name."))
    row.instance = instance
    return row


def _user_of_row(row: DeletedUser) -> UserDescription | None:
    """Returns the deleted user of a row; None if it does not exist any more, or another user has its name."""
    try:
        user = user_admin_client.implementation.user(row.instance_id, row.name)
    except NotFound:
        return None
    return user if selectors.is_deleted(user, row) else None
