"""Changes of the brokers of an instance in a rebalance: its ports on the arriving brokers are leased before the moves,
and those on the leaving brokers are released after them.

Every change is a new generation of the instance's document; the reconciler publishes it and waits for the brokers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from django.db import transaction
from django.db.models import F

from brokers.models import Broker, Cluster, PortLease
from brokers.placement import addresses, port_leases
from instances.lifecycle.phases import Phase
from instances.models import Instance
from instances.services.common import bump_generation, reconcile_on_commit

OVER = (Phase.DELETED.value, Phase.FAILED.value)
# Instances changed in one run: each is a transaction, and brokers open ports for each.
CHANGED_AT_ONCE = 50


def apply(cluster: Cluster, wanted: Mapping[str, tuple[Collection[int], Collection[int]]]) -> bool:
    """Leases ports on the brokers that an instance uses from now on, and marks those on the brokers that it leaves;
    `wanted` has both sets of broker numbers by instance id. Returns True if all ports exist and every broker has
    confirmed them. Raises `port_leases.PoolEmpty` if a host has no port left.
    """
    leases = PortLease.objects.filter(instance_id__in=wanted, broker__cluster=cluster)
    present = {
        (instance_id, number): is_leaving
        for instance_id, number, is_leaving in leases.values_list("instance_id", "broker__number", "is_leaving")
    }
    changed = 0
    for instance_id, (stays, leaves) in wanted.items():
        lacks = any(present.get((instance_id, number), True) for number in stays)
        lingers = any(present.get((instance_id, number)) is False for number in leaves)
        if lacks or lingers:
            if changed == CHANGED_AT_ONCE:
                return False
            changed += _change_placement(cluster, instance_id, stays, leaves)
    return not changed and not unconfirmed(wanted)


def give_back(cluster: Cluster, wanted: Mapping[str, Collection[int]]) -> bool:
    """Releases the leaving ports of instances on these brokers; True if none is left and every broker has confirmed."""
    leases = PortLease.objects.filter(instance_id__in=wanted, broker__cluster=cluster, is_leaving=True)
    lingering = sorted({row.instance_id for row in leases.select_related("broker") if _is_named(row, wanted)})
    for instance_id in lingering[:CHANGED_AT_ONCE]:
        with transaction.atomic():
            instance = Instance.objects.select_for_update(of=("self",)).get(pk=instance_id)
            rows = PortLease.objects.filter(instance=instance, broker__cluster=cluster, is_leaving=True)
            port_leases.give_back(rows.filter(broker__number__in=wanted[instance_id]))
            _publish(instance)
    return not lingering and not unconfirmed(wanted)


def stay(cluster: Cluster, owners: Collection[str]) -> bool:
    """Cancels the leaving of all ports of these instances; True when that is done."""
    leases = PortLease.objects.filter(instance_id__in=owners, broker__cluster=cluster, is_leaving=True)
    leaving = sorted(set(leases.values_list("instance_id", flat=True)))
    for instance_id in leaving[:CHANGED_AT_ONCE]:
        with transaction.atomic():
            instance = Instance.objects.select_for_update(of=("self",)).get(pk=instance_id)
            PortLease.objects.filter(instance=instance, broker__cluster=cluster).update(is_leaving=False)
            _publish(instance)
    return len(leaving) <= CHANGED_AT_ONCE


def unconfirmed(instance_ids: Collection[str]) -> int:
    """Returns the number of these instances with a generation that not every broker has confirmed."""
    rows = Instance.objects.filter(pk__in=instance_ids, generation__gt=F("observed_generation"))
    return rows.exclude(phase__in=OVER).count()


def _is_named(lease: PortLease, wanted: Mapping[str, Collection[int]]) -> bool:
    return lease.broker.number in wanted[lease.instance_id]


@transaction.atomic
def _change_placement(cluster: Cluster, instance_id: str, stays: Collection[int], leaves: Collection[int]) -> int:
    instance = Instance.objects.select_for_update(of=("self",)).filter(pk=instance_id).exclude(phase__in=OVER).first()
    if instance is None:
        return 0
    own = PortLease.objects.filter(instance=instance)
    numbers = {*own.values_list("broker__number", flat=True), *stays}
    brokers = Broker.objects.filter(cluster=cluster, number__in=numbers, removed_at=None).select_related("host")
    port_leases.lease(instance, brokers)
    own.filter(broker__number__in=stays).update(is_leaving=False)
    own.filter(broker__number__in=leaves).update(is_leaving=True)
    _publish(instance)
    return 1


def _publish(instance: Instance) -> None:
    """Publishes a new generation of the instance; clients get the addresses of the brokers that do not leave."""
    instance.save_changes([*addresses.write(instance), *bump_generation(instance)])
    reconcile_on_commit(instance)
