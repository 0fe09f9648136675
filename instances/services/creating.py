"""Creation of an instance, and its retry after a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext_noop

from instances import interfaces
from instances.access import instances_of
from instances.choices import ClusterType, OperationType, Step
from instances.lifecycle import operations
from instances.lifecycle.phases import Phase
from instances.limits import INSTANCES_PER_TENANT_MAX
from instances.models import NAME_CONSTRAINT, Instance, Operation, default_settings, stored_settings
from instances.routes.validation import audited_route_fields, create_routes, default_routes
from instances.services.common import bump_generation, reconcile_on_commit, set_phase
from instances.services.sizes import (
    require_deleted_storage_quota,
    require_valid_growth,
    require_within_plan,
    require_within_unverified_limits,
    terms_for,
)
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, Invalid, Message, QuotaExceeded
from tenants.models import Tenant
from tenants.uniqueness import raise_if_taken


@transaction.atomic
def create_instance(
    *,
    acting: Actor,
    name: str,
    plan: str | None = None,
    bandwidth_mb_s: int | None = None,
    storage_gb: int | None = None,
    cluster_type: str = ClusterType.SHARED,
    settings: Mapping[str, Any] | None = None,
    protected: bool = False,
    routes: Sequence[Mapping[str, Any]] | None = None,
    dry_run: bool = False,
) -> tuple[Instance, Operation]:
    """Creates the row of an instance; the reconciler provisions it.

    Sizes default to those that the plan includes, `routes` (arguments of `instances.services.routes.create_route`) to
    one route with SASL. The instance is closed unless `settings` open it (`allow_everyone_if_no_acl`).

    Raises `Invalid` (unknown plan), `Conflict` (name taken) and `QuotaExceeded` (too many instances, larger than the
    plan, too much storage of deleted instances).
    """
    access.require(acting, Scope.INSTANCES_WRITE)
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=access.tenant_of(acting).pk)
    existing = instances_of(tenant)
    if existing.count() >= INSTANCES_PER_TENANT_MAX:
        raise _too_many_instances(existing)
    require_deleted_storage_quota(tenant)
    require_instance_name_free(tenant, name)
    terms = terms_for(plan, bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb, currency=tenant.currency)
    bandwidth = bandwidth_mb_s or terms.bandwidth_mb_s
    storage = storage_gb or terms.storage_gb
    require_within_plan(terms, bandwidth_mb_s=bandwidth, storage_gb=storage)
    require_within_unverified_limits(tenant, bandwidth_mb_s=bandwidth, storage_gb=storage)
    require_valid_growth(terms, settings or {}, storage_gb=storage)
    with name_taken_meanwhile():
        instance = Instance.objects.create(
            tenant=tenant,
            name=name,
            plan=terms.code,
            bandwidth_mb_s=bandwidth,
            storage_gb=storage,
            partitions_max=terms.partitions_max,
            cluster_type=cluster_type,
            settings=default_settings() | stored_settings(settings or {}),
            protected=protected,
        )
    created_routes = create_routes(instance, default_routes() if routes is None else routes)
    operation = operations.begin(acting, instance, OperationType.CREATE, plan=terms.code)
    after = audited_fields(instance) | {"routes": [audited_route_fields(route) for route in created_routes]}
    audit.record(acting, "instance.created", instance, None, after)
    if dry_run:
        _add_forecast(instance, operation)
    reconcile_on_commit(instance, dry_run=dry_run)
    return instance, operation


@transaction.atomic
def retry_instance(*, acting: Actor, instance: Instance, dry_run: bool = False) -> Operation:
    """Provisions a failed instance again.

    Raises `Conflict` if the instance has not failed, and `QuotaExceeded` like `create_instance`: the size of a failed
    instance is not reserved.
    """
    access.require(acting, Scope.INSTANCES_WRITE)
    if instance.current_phase is not Phase.FAILED:
        text = gettext_noop("The instance is %(phase)s; only a failed one is tried again.")
        raise Conflict(Message(text, phase=instance.phase))
    require_deleted_storage_quota(instance.tenant)
    size = {"bandwidth_mb_s": instance.bandwidth_mb_s, "storage_gb": instance.storage_gb}
    require_within_unverified_limits(instance.tenant, **size, resized=instance)
    fields = [*bump_generation(instance), *set_phase(instance, Phase.REQUESTED)]
    instance.save_changes(fields)
    operation = operations.begin(acting, instance, OperationType.CREATE)
    audit.record(acting, "instance.retried", instance)
    if dry_run:
        _add_forecast(instance, operation)
    reconcile_on_commit(instance, dry_run=dry_run)
    return operation


def _add_forecast(instance: Instance, operation: Operation) -> None:
    """Adds the forecast of the placement to the operation of a dry run."""
    forecast = interfaces.capacity.implementation.forecast(instance)
    operations.forecast_step(operation, Step.PLACED, forecast.fact, forecast.data)


def _too_many_instances(existing: QuerySet[Instance]) -> QuotaExceeded:
    deleted = existing.filter(phase=Phase.DELETING.value).count()
    if not deleted:
        return QuotaExceeded(Message(gettext_noop("A tenant has at most %(n)s instances."), n=INSTANCES_PER_TENANT_MAX))
    text = gettext_noop(
        "A tenant has at most %(n)s instances, and %(deleted)s deleted ones count until they are purged. Purge one."
    )
    return QuotaExceeded(Message(text, n=INSTANCES_PER_TENANT_MAX, deleted=deleted))


def require_instance_name_free(tenant: Tenant, name: str) -> None:
    """Raises `Conflict` if another instance of the tenant has the name."""
    if instances_of(tenant).filter(name=name).exists():
        raise _name_taken()


def name_taken_meanwhile() -> AbstractContextManager[None]:
    """Context manager around the write of a free name: raises `Conflict` if another instance took it meanwhile."""
    return raise_if_taken(NAME_CONSTRAINT, _name_taken())


def _name_taken() -> Conflict:
    detail = "Another of your instances has this name."
    return Conflict(detail, code="name_taken", errors=Invalid.at("/name", detail, code="name_taken").errors)


def audited_fields(instance: Instance) -> dict[str, Any]:
    """Returns the fields of an instance that the audit log records."""
    names = ("name", "plan", "bandwidth_mb_s", "storage_gb", "cluster_type", "settings", "protected")
    return {name: getattr(instance, name) for name in names}
