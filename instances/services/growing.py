"""Automatic growth of instances whose storage is nearly used up, by their owners' settings."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from instances.lifecycle import conditions
from instances.lifecycle.growth import next_storage_gb
from instances.lifecycle.phases import CHANGEABLE
from instances.limits import GROWTH_RETRIED_AFTER
from instances.models import Instance
from instances.services.changing import resize_instance
from instances.services.observing import store_conditions
from tenants.actors import system_actor
from tenants.errors import DomainError


@transaction.atomic
def grow_storage(instance_id: str, used_bytes: int, now: datetime) -> bool:
    """Grows the storage by steps until less than `GROW_FROM_PERCENT` is used; returns True if it grew.

    A refused resize sets a condition and is tried again after `GROWTH_RETRIED_AFTER`. A repeated call changes nothing,
    because the size that the first one set is sufficient.
    """
    rows = Instance.objects.select_for_update(of=("self",), no_key=True).select_related("tenant")
    instance = rows.filter(pk=instance_id).first()
    if instance is None or instance.current_phase not in CHANGEABLE:
        return False
    if instance.is_suspended or instance.tenant.is_suspended:
        return False
    acting = system_actor("storage growth", instance.tenant)
    settings = instance.settings_in_force
    wanted_gb = next_storage_gb(
        instance.storage_gb,
        used_bytes,
        step_gb=settings["storage_grow_step_gb"],
        max_gb=settings["storage_grow_max_gb"],
    )
    refused_at = conditions.growth_refused_at(instance.conditions)
    if wanted_gb is None:
        store_conditions(acting, instance, conditions.after_growth_possible(instance.conditions, now))
        return False
    if refused_at is not None and now - refused_at < GROWTH_RETRIED_AFTER:
        return False
    try:
        resize_instance(acting=acting, instance=instance, storage_gb=wanted_gb)
    except DomainError as error:
        instance.refresh_from_db()
        store_conditions(
            acting, instance, conditions.after_growth_refused(instance.conditions, error.code, error.detail, now)
        )
        return False
    store_conditions(acting, instance, conditions.after_growth_possible(instance.conditions, now))
    return True
