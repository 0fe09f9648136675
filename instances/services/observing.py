"""Observed conditions of running instances: stored in their rows, with an event for each change."""

from __future__ import annotations

from dataclasses import replace

from django.db import transaction

from instances.lifecycle import conditions
from instances.lifecycle.conditions import Condition, Observation
from instances.lifecycle.phases import REACHABLE
from instances.models import Instance
from tenants import audit
from tenants.actors import system_actor


def observed_conditions(instance: Instance, seen: Observation) -> list[Condition]:
    """Returns the conditions of a running instance after an observation, without writing them."""
    mine = frozenset(number for number in seen.silent if str(number) in instance.endpoints)
    return conditions.observed(instance.conditions, replace(seen, silent=mine), bought_bytes=instance.storage_bytes)


@transaction.atomic
def note_health(instance_id: str, seen: Observation) -> bool:
    """Stores the conditions after an observation; returns True if any changed. Only brokers of the instance count.

    The row's version stays, so that a broker that fails or returns does not make an owner's change fail.
    """
    rows = Instance.objects.select_for_update(of=("self",), no_key=True).select_related("tenant")
    instance = rows.filter(pk=instance_id).first()
    if instance is None or instance.current_phase not in REACHABLE:
        return False
    result = observed_conditions(instance, seen)
    if result == instance.conditions:
        return False
    Instance.objects.filter(pk=instance_id).update(conditions=result)
    acting = system_actor("watcher", instance.tenant)
    for condition in conditions.changed(instance.conditions, result):
        action = "instance.recovered" if condition["status"] else "instance.degraded"
        audit.record(acting, action, instance, None, {"condition": condition["type"], "message": condition["message"]})
    return True
