"""What is observed of running instances, written to their rows: an event when it begins, and one when it ends."""

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
    """The conditions of a running instance after a look; the same ones when nothing is new. Writes nothing."""
    mine = frozenset(number for number in seen.silent if str(number) in instance.endpoints)
    return conditions.observed(instance.conditions, replace(seen, silent=mine), bought_bytes=instance.storage_bytes)


@transaction.atomic
def note_health(instance_id: str, seen: Observation) -> bool:
    """Whether anything was written. Of brokers of its cluster only those it has an address on count.

    The version stays: what an owner changes is not contested by a broker that comes and goes.
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
    for item in conditions.changed(instance.conditions, result):
        action = "instance.recovered" if item["status"] else "instance.degraded"
        audit.record(acting, action, instance, None, {"condition": item["type"], "message": item["message"]})
    return True
