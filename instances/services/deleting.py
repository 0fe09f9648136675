"""Deletion, purge and restore of an instance."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from instances import interfaces
from instances.choices import OperationType, Reason
from instances.lifecycle import operations
from instances.lifecycle.phases import REACHABLE, Phase
from instances.limits import INSTANCE_RESTORE_PERIOD
from instances.models import DeletedTopic, Instance, Operation
from instances.services.common import bump_generation, reconcile_on_commit, set_phase
from instances.services.sizes import require_within_unverified_limits
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, DomainError


@transaction.atomic
def delete_instance(
    *, acting: Actor, instance: Instance, has_no_visible_topic: bool = False, dry_run: bool = False
) -> Operation:
    """Closes an instance to clients at once; data, address and name are kept until `restorable_until`. Its bandwidth is
    released at once, its storage when its files are deleted.

    An instance with nothing to restore is purged at once: `restorable_until` is now. `has_no_visible_topic` is the
    result of the function of this name, called before the row was locked. Raises `Conflict` if it is protected or
    deleted.
    """
    access.require(acting, Scope.INSTANCES_WRITE)
    access.require_confirmed(acting)
    if instance.is_deleted:
        raise Conflict("The instance is being deleted already.")
    if instance.protected:
        raise Conflict("The instance is protected from deletion. Take the protection away first.", code="protected")
    is_permanent = has_nothing_to_restore(instance, has_no_visible_topic=has_no_visible_topic)
    now = timezone.now()
    instance.deleted_at = now
    instance.restorable_until = now if is_permanent else now + INSTANCE_RESTORE_PERIOD
    fields = ["deleted_at", "restorable_until", *bump_generation(instance)]
    fields += set_phase(instance, Phase.DELETING, Reason.DELETED_FOR_GOOD if is_permanent else Reason.DELETED_BY_USER)
    instance.save_changes(fields)
    interfaces.capacity.implementation.release_bandwidth(instance)
    operations.supersede(instance, "superseded", "The instance was deleted.")
    operation = operations.begin(
        acting,
        instance,
        OperationType.DELETE,
        fact=_deletion_fact(acting, instance),
        restorable_until=None if is_permanent else instance.restorable_until.isoformat(),
    )
    audit.record(acting, "instance.deleted", instance, None, {"restorable_until": instance.restorable_until})
    reconcile_on_commit(instance, dry_run=dry_run)
    return operation


def has_nothing_to_restore(instance: Instance, *, has_no_visible_topic: bool) -> bool:
    """True for an instance that never ran, or has no topic: neither one that brokers show to clients, nor a deleted one
    that can be restored, nor a restored one that brokers do not show yet.
    """
    if instance.first_running_at is None:
        return True
    return has_no_visible_topic and not DeletedTopic.objects.filter(instance=instance).exists()


def has_no_visible_topic(instance: Instance) -> bool:
    """True if brokers show no topic of the instance to clients; False if they do not answer.

    Call it before the instance's row is locked, because other transactions would wait for a slow broker. A topic that
    is created afterwards is purged with the instance.
    """
    if instance.current_phase not in REACHABLE:
        return False
    try:
        return not interfaces.data_plane.implementation.topics(instance.pk)
    except DomainError:
        return False


def _deletion_fact(acting: Actor, instance: Instance) -> str:
    if instance.reason == Reason.DELETED_FOR_GOOD:
        return f"Accepted from {acting.label}; there is no topic, so nothing can be restored"
    return f"Accepted from {acting.label}; can be restored until {instance.restorable_until:%Y-%m-%d %H:%M} UTC"


@transaction.atomic
def purge_instance(*, acting: Actor, instance: Instance, dry_run: bool = False) -> Operation:
    """Purges a deleted instance before its time: topics, messages and address are deleted and its storage is released.

    Raises `Conflict` (`not_deleted`) for an instance that is not deleted.
    """
    access.require(acting, Scope.INSTANCES_WRITE)
    access.require_confirmed(acting)
    if not instance.is_deleted:
        raise Conflict("Only a deleted instance can be purged. Delete it first.", code="not_deleted")
    now = timezone.now()
    if instance.restorable_until is None or instance.restorable_until <= now:
        raise Conflict("The instance is being purged already.")
    before = {"restorable_until": instance.restorable_until}
    instance.restorable_until = now
    instance.save_changes(["restorable_until", *set_phase(instance, Phase.DELETING, Reason.DELETED_FOR_GOOD)])
    operation = operations.begin(acting, instance, OperationType.PURGE)
    audit.record(acting, "instance.purge_requested", instance, before, {"restorable_until": now})
    reconcile_on_commit(instance, dry_run=dry_run)
    return operation


@transaction.atomic
def restore_instance(*, acting: Actor, instance: Instance, dry_run: bool = False) -> Operation:
    """Undoes a deletion, with the same address, topics and messages. Its bandwidth is reserved again.

    Raises `Conflict` if there is nothing to restore, and `Conflict(no_room)` with the missing capacity if its bandwidth
    has been sold meanwhile.
    """
    access.require(acting, Scope.INSTANCES_WRITE)
    if not instance.is_deleted:
        raise Conflict("The instance is not being deleted.")
    if instance.restorable_until is None or instance.restorable_until <= timezone.now():
        raise Conflict("The time in which the instance could be restored is over.", code="not_restorable")
    size = {"bandwidth_mb_s": instance.bandwidth_mb_s, "storage_gb": instance.storage_gb}
    require_within_unverified_limits(instance.tenant, **size, resized=instance)
    interfaces.capacity.implementation.reserve(instance, **size)
    instance.deleted_at = instance.restorable_until = None
    restored_phase = Phase.SUSPENDED if instance.is_suspended else Phase.UPDATING
    fields = [
        "deleted_at",
        "restorable_until",
        *bump_generation(instance),
        *set_phase(instance, restored_phase, instance.suspended_for),
    ]
    instance.save_changes(fields)
    operations.supersede(instance, "superseded", "The instance was restored.")
    operation = operations.begin(acting, instance, OperationType.RESTORE)
    audit.record(acting, "instance.restored", instance)
    reconcile_on_commit(instance, dry_run=dry_run)
    return operation
