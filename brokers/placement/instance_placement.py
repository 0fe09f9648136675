"""Changes of the brokers of an instance in a rebalance: its ports on the arriving brokers are leased before the moves,
and those on the leaving brokers are released after them.

Every change is a new generation of the instance's document; the reconciler publishes it and waits for the brokers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from django.db import transaction
from django.db.models import F

from brokers.choices import WantedState
from brokers.models import Broker, Cluster, PortLease
from brokers.placement import addresses, port_leases
from instances.lifecycle.phases import Phase
from instances.models import Instance
from instances.services.common import bump_generation, reconcile_on_commit

PHASES_WITHOUT_PORTS = (Phase.DELETED.value, Phase.FAILED.value)
# Instances changed in one run: each is a transaction, and brokers open ports for each.
CHANGES_PER_RUN_MAX = 50


def lease_ports(cluster: Cluster, brokers_by_instance: Mapping[str, tuple[Collection[int], Collection[int]]]) -> bool:
    """Leases ports on the brokers that an instance uses from now on, and marks those on the brokers that it leaves.

    `brokers_by_instance` has both sets of broker numbers by instance id. Returns True if all ports exist and every
    broker has confirmed them. Raises `port_leases.PoolEmpty` if a host has no port left.
    """
    leases = PortLease.objects.filter(instance_id__in=brokers_by_instance, broker__cluster=cluster)
    is_leaving_by_placement = {
        (instance_id, number): is_leaving
        for instance_id, number, is_leaving in leases.values_list("instance_id", "broker__number", "is_leaving")
    }
    changed = 0
    for instance_id, (staying, leaving) in brokers_by_instance.items():
        is_missing = any(is_leaving_by_placement.get((instance_id, number), True) for number in staying)
        must_leave = any(is_leaving_by_placement.get((instance_id, number)) is False for number in leaving)
        if is_missing or must_leave:
            if changed == CHANGES_PER_RUN_MAX:
                return False
            changed += _change_placement(cluster, instance_id, staying, leaving)
    return not changed and not count_unconfirmed(brokers_by_instance)


def lease_on_all_gateways(cluster: Cluster) -> None:
    """Leases ports on the gateways of a Kafka cluster that were added after its instances were placed. Raises
    `port_leases.PoolEmpty` if a host has no port left.
    """
    running_brokers = Broker.objects.filter(cluster=cluster, removed_at=None, wanted=WantedState.RUNNING)
    numbers = set(running_brokers.values_list("number", flat=True))
    leases = PortLease.objects.filter(broker__cluster=cluster, is_leaving=False)
    numbers_by_instance: dict[str, set[int]] = defaultdict(set)
    for instance_id, number in leases.values_list("instance_id", "broker__number"):
        numbers_by_instance[instance_id].add(number)
    lacking_instances = {
        instance_id: (numbers, ())
        for instance_id, leased_numbers in numbers_by_instance.items()
        if numbers - leased_numbers
    }
    if lacking_instances:
        lease_ports(cluster, lacking_instances)


def release_ports(cluster: Cluster, leaving_by_instance: Mapping[str, Collection[int]]) -> bool:
    """Releases the leaving ports of instances on these brokers; True if none is left and every broker has confirmed."""
    leases = PortLease.objects.filter(instance_id__in=leaving_by_instance, broker__cluster=cluster, is_leaving=True)
    unreleased = sorted(
        {row.instance_id for row in leases.select_related("broker") if _is_leaving_port(row, leaving_by_instance)}
    )
    for instance_id in unreleased[:CHANGES_PER_RUN_MAX]:
        with transaction.atomic():
            instance = Instance.objects.select_for_update(of=("self",)).get(pk=instance_id)
            rows = PortLease.objects.filter(instance=instance, broker__cluster=cluster, is_leaving=True)
            port_leases.release_as_former(rows.filter(broker__number__in=leaving_by_instance[instance_id]))
            _publish_generation(instance)
    return not unreleased and not count_unconfirmed(leaving_by_instance)


def cancel_leaving(cluster: Cluster, owners: Collection[str]) -> bool:
    """Cancels the leaving of all ports of these instances; True when that is done."""
    leases = PortLease.objects.filter(instance_id__in=owners, broker__cluster=cluster, is_leaving=True)
    instance_ids = sorted(set(leases.values_list("instance_id", flat=True)))
    for instance_id in instance_ids[:CHANGES_PER_RUN_MAX]:
        with transaction.atomic():
            instance = Instance.objects.select_for_update(of=("self",)).get(pk=instance_id)
            PortLease.objects.filter(instance=instance, broker__cluster=cluster).update(is_leaving=False)
            _publish_generation(instance)
    return len(instance_ids) <= CHANGES_PER_RUN_MAX


def count_unconfirmed(instance_ids: Collection[str]) -> int:
    """Returns the number of these instances with a generation that not every broker has confirmed."""
    rows = Instance.objects.filter(pk__in=instance_ids, generation__gt=F("observed_generation"))
    return rows.exclude(phase__in=PHASES_WITHOUT_PORTS).count()


def _is_leaving_port(lease: PortLease, leaving_by_instance: Mapping[str, Collection[int]]) -> bool:
    return lease.broker.number in leaving_by_instance[lease.instance_id]


@transaction.atomic
def _change_placement(cluster: Cluster, instance_id: str, staying: Collection[int], leaving: Collection[int]) -> int:
    instance = (
        Instance.objects.select_for_update(of=("self",))
        .filter(pk=instance_id)
        .exclude(phase__in=PHASES_WITHOUT_PORTS)
        .first()
    )
    if instance is None:
        return 0
    leases = PortLease.objects.filter(instance=instance)
    numbers = {*leases.values_list("broker__number", flat=True), *staying}
    brokers = Broker.objects.filter(cluster=cluster, number__in=numbers, removed_at=None).select_related("host")
    port_leases.lease(instance, brokers)
    leases.filter(broker__number__in=staying).update(is_leaving=False)
    leases.filter(broker__number__in=leaving).update(is_leaving=True)
    _publish_generation(instance)
    return 1


def _publish_generation(instance: Instance) -> None:
    """Publishes a new generation of the instance; clients get the addresses of the brokers that do not leave."""
    instance.save_changes([*addresses.write_endpoints(instance), *bump_generation(instance)])
    reconcile_on_commit(instance)
