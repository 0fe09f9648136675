"""Changes of an instance's size, settings, name and protection. Callers lock it by `access.instance(lock=True)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.utils.translation import gettext_noop

from instances import interfaces
from instances.access import require_changeable
from instances.choices import OperationType, StorageWhenFull
from instances.lifecycle import operations
from instances.lifecycle.phases import Phase
from instances.limits import OPERATIONS_OPEN_PER_INSTANCE_MAX
from instances.models import Instance, Operation, stored_settings
from instances.services.common import bump_generation, reconcile_on_commit, set_phase
from instances.services.creating import audited_fields, name_taken_meanwhile, require_instance_name_free
from instances.services.sizes import (
    GROWTH_SETTINGS,
    require_deleted_storage_quota,
    require_valid_growth,
    require_within_plan,
    require_within_unverified_limits,
    terms_for,
)
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict


@transaction.atomic
def resize_instance(
    *,
    acting: Actor,
    instance: Instance,
    plan: str | None = None,
    bandwidth_mb_s: int | None = None,
    storage_gb: int | None = None,
    dry_run: bool = False,
) -> Operation | None:
    """Changes plan or size, up or down; returns None if nothing differs.

    With another plan, omitted sizes become those that the plan includes. Raises `QuotaExceeded` (beyond the plan, or
    storage grows while deleted instances occupy too much) and `Conflict` (no capacity in the cluster, or a phase in
    which an instance cannot change).
    """
    access.require(acting, Scope.INSTANCES_WRITE)
    require_changeable(instance)
    before = audited_fields(instance)
    terms = terms_for(
        plan or instance.plan, bandwidth_mb_s=None, storage_gb=None, current_plan=instance.plan,
        currency=instance.tenant.currency,
    )  # fmt: skip
    changes_plan = terms.code != instance.plan
    bandwidth = bandwidth_mb_s or (terms.bandwidth_mb_s if changes_plan else instance.bandwidth_mb_s)
    storage = storage_gb or (terms.storage_gb if changes_plan else instance.storage_gb)
    require_within_plan(terms, bandwidth_mb_s=bandwidth, storage_gb=storage)
    if not changes_plan and (bandwidth, storage) == (instance.bandwidth_mb_s, instance.storage_gb):
        return None
    if storage > instance.storage_gb:
        require_deleted_storage_quota(instance.tenant)
    require_within_unverified_limits(instance.tenant, bandwidth_mb_s=bandwidth, storage_gb=storage, resized=instance)
    interfaces.capacity.implementation.reserve(instance, bandwidth_mb_s=bandwidth, storage_gb=storage)
    instance.plan, instance.partitions_max = terms.code, terms.partitions_max
    instance.bandwidth_mb_s, instance.storage_gb = bandwidth, storage
    fields = ["plan", "partitions_max", "bandwidth_mb_s", "storage_gb"]
    changes = audit.difference(before, audited_fields(instance))
    return publish_change(
        acting, instance, OperationType.RESIZE, "instance.resized", changes, fields=fields, dry_run=dry_run
    )


@transaction.atomic
def configure_instance(
    *, acting: Actor, instance: Instance, settings: Mapping[str, Any], dry_run: bool = False
) -> Operation | None:
    """Changes settings of brokers and of storage growth; returns None if nothing differs.

    Raises `Invalid` for inconsistent growth settings, and `Conflict` for early retention on a Kafka cluster.
    """
    access.require(acting, Scope.INSTANCES_WRITE)
    require_changeable(instance)
    before = audited_fields(instance)
    changed_settings = instance.settings | stored_settings(settings)
    if changed_settings == instance.settings:
        return None
    shrinks = settings.get("storage_when_full") == StorageWhenFull.SHRINK_RETENTION
    if shrinks and interfaces.is_on_kafka.implementation(instance.pk):
        detail = gettext_noop("On a Kafka cluster no records are deleted early: choose to stop produce at the limit.")
        raise Conflict(detail, code="not_on_kafka_cluster")
    if any(changed_settings.get(name) != instance.settings.get(name) for name in GROWTH_SETTINGS):
        terms = terms_for(instance.plan, bandwidth_mb_s=None, storage_gb=None, current_plan=instance.plan)
        require_valid_growth(terms, changed_settings, storage_gb=instance.storage_gb)
    instance.settings = changed_settings
    changes = audit.difference(before, audited_fields(instance))
    return publish_change(
        acting, instance, OperationType.CONFIGURE, "instance.configured", changes, fields=["settings"], dry_run=dry_run
    )


@transaction.atomic
def rename_instance(*, acting: Actor, instance: Instance, name: str) -> Instance:
    """Renames an instance; its id, address and data stay. Raises `Conflict` if the name is taken."""
    access.require(acting, Scope.INSTANCES_WRITE)
    if name == instance.name:
        return instance
    require_instance_name_free(instance.tenant, name)
    before = {"name": instance.name}
    instance.name = name
    try:
        with name_taken_meanwhile():
            instance.save_changes(["name"])
    except Conflict:
        instance.refresh_from_db(fields=("name", "version"))  # the refusing page shows the unchanged name
        raise
    audit.record(acting, "instance.renamed", instance, before, {"name": name})
    return instance


@transaction.atomic
def protect_instance(*, acting: Actor, instance: Instance, protected: bool) -> Instance:
    """Protects an instance from deletion, or ends its protection."""
    access.require(acting, Scope.INSTANCES_WRITE)
    if protected == instance.protected:
        return instance
    instance.protected = protected
    instance.save_changes(["protected"])
    action = "instance.protected" if protected else "instance.unprotected"
    audit.record(acting, action, instance, {"protected": not protected}, {"protected": protected})
    return instance


def publish_change(
    acting: Actor,
    instance: Instance,
    type_: OperationType,
    action: str,
    changes: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None],
    *,
    fields: Sequence[str] = (),
    dry_run: bool,
) -> Operation:
    """Publishes a change to brokers: another generation, an operation, an audit row with `changes` (before, after), and
    the reconciler on commit. Raises `Conflict` if too many operations are open.
    """
    if len(operations.open_operations(instance)) >= OPERATIONS_OPEN_PER_INSTANCE_MAX:
        detail = "Too many changes of this instance are under way."
        raise Conflict(detail, code="operation_in_progress", retry_after_s=1)
    changed_fields = [*fields, *bump_generation(instance)]
    if instance.current_phase is not Phase.SUSPENDED:
        changed_fields += set_phase(instance, Phase.UPDATING)
    instance.save_changes(changed_fields)
    operation = operations.begin(acting, instance, type_)
    audit.record(acting, action, instance, *changes)
    reconcile_on_commit(instance, dry_run=dry_run)
    return operation
