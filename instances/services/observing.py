"""Storage of the observed conditions of running instances, with a notice of each change."""

from __future__ import annotations

from dataclasses import replace

from django.db import transaction

from instances import interfaces
from instances.lifecycle import conditions
from instances.lifecycle.conditions import Condition, Observation
from instances.lifecycle.phases import REACHABLE
from instances.models import Instance
from tenants.actors import Actor, system_actor


def observed_conditions(instance: Instance, observation: Observation) -> list[Condition]:
    """Returns the conditions of a running instance after an observation, without writing them."""
    unresponsive = frozenset(number for number in observation.silent if str(number) in instance.endpoints)
    return conditions.after_observation(
        instance.conditions, replace(observation, silent=unresponsive), bought_bytes=instance.storage_bytes
    )


@transaction.atomic
def record_health(instance_id: str, observation: Observation) -> bool:
    """Stores the conditions after an observation; returns True if any changed. Only brokers of the instance count."""
    rows = Instance.objects.select_for_update(of=("self",), no_key=True).select_related("tenant")
    instance = rows.filter(pk=instance_id).first()
    if instance is None or instance.current_phase not in REACHABLE:
        return False
    after = observed_conditions(instance, observation)
    return store_conditions(system_actor("watcher", instance.tenant), instance, after)


def store_conditions(acting: Actor, instance: Instance, after: list[Condition]) -> bool:
    """Stores the conditions of a locked instance and sends notices of changes; returns True if any changed.

    The row's version does not change, so that an observation does not make an owner's change fail.
    """
    before = instance.conditions
    if after == before:
        return False
    Instance.objects.filter(pk=instance.pk).update(conditions=after)
    interfaces.notify_conditions.implementation(acting, instance, conditions.transitions_between(before, after))
    return True
