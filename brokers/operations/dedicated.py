"""Automatic formation of a dedicated cluster on free hosts, for an instance that waits for one."""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from django.db import transaction

from brokers import selectors
from brokers.agent.check_rules import has_failed
from brokers.choices import ClusterKind, ClusterState
from brokers.limits import (
    BROKER_BANDWIDTH_MB_S,
    BROKER_STORAGE_GB,
    BROKERS_PER_CLUSTER_MAX,
    BROKERS_PER_INSTANCE_MIN,
    DEDICATED_CLUSTERS_PER_TENANT_MAX,
)
from brokers.models import Cluster, FleetOperation, Host
from brokers.operations import fleet_operations
from brokers.operations.clusters import add_cluster
from brokers.operations.hosts import locked_hosts
from brokers.placement.dedicated import ClusterPlan, FreeHost, plan_cluster
from instances.choices import ClusterType
from instances.models import Instance
from tenants import selectors as tenant_selectors
from tenants.actors import system_actor
from tenants.errors import Conflict

log = structlog.get_logger(__name__)

ACTOR = "fleet"


@transaction.atomic
def ensure_cluster(instance: Instance) -> FleetOperation | None:
    """Returns the operation that forms a cluster for a dedicated instance, begun now or before; None if there are no
    free hosts, or the instance must not get a cluster.
    """
    if instance.cluster_type != ClusterType.DEDICATED:
        return None
    hosts = locked_hosts()
    forming = Cluster.objects.filter(reserved_for=instance, state=ClusterState.FORMING).first()
    if forming is not None:
        return fleet_operations.open_operation(forming)
    plan = plan_for(instance, hosts)
    if plan is None:
        return None
    host_by_id = {host.pk: host for host in hosts}
    try:
        with transaction.atomic():
            return add_cluster(
                acting=system_actor(ACTOR),
                name=f"dedicated-{instance.pk}",
                kind=ClusterKind.DEDICATED,
                hosts=[host_by_id[host_id] for host_id in plan.host_ids],
                bandwidth_mb_s=plan.bandwidth_mb_s,
                storage_gb=plan.storage_gb,
                reserved_for=instance,
            )
    except Conflict as error:
        log.warning("cluster.not_formed", instance_id=instance.pk, reason=error.detail)
        return None


def plan_for(instance: Instance, hosts: Sequence[Host]) -> ClusterPlan | None:
    """Returns the plan of a cluster for an instance; None without enough free hosts, for a tenant whose owner has no
    verified email address, and for a tenant with `DEDICATED_CLUSTERS_PER_TENANT_MAX` clusters, which waits for an
    operator.
    """
    if not tenant_selectors.is_verified(instance.tenant):
        return None
    tenant_clusters = Cluster.objects.active().filter(
        kind=ClusterKind.DEDICATED, placements__instance__tenant=instance.tenant
    )
    reserved = Cluster.objects.active().filter(reserved_for__tenant=instance.tenant).exclude(reserved_for=instance)
    if tenant_clusters.count() + reserved.count() >= DEDICATED_CLUSTERS_PER_TENANT_MAX:
        return None
    used_host_ids = set(selectors.brokers().values_list("host_id", flat=True))
    free_hosts = [
        FreeHost(id=host.pk, zone=host.zone, capacity_mb_s=host.capacity_mb_s, capacity_gb=host.capacity_gb)
        for host in hosts
        if host.pk not in used_host_ids and selectors.agent_is_alive(host) and not has_failed(host.checks)
    ]
    # Topics cannot be placed over brokers of which only some have a zone.
    zoned = [host for host in free_hosts if host.zone]
    without_zone = [host for host in free_hosts if not host.zone]
    return _plan_on_hosts(instance, zoned) or _plan_on_hosts(instance, without_zone)


def _plan_on_hosts(instance: Instance, hosts: Sequence[FreeHost]) -> ClusterPlan | None:
    return plan_cluster(
        hosts,
        bandwidth_mb_s=instance.bandwidth_mb_s,
        storage_gb=instance.storage_gb,
        brokers_min=BROKERS_PER_INSTANCE_MIN,
        brokers_max=BROKERS_PER_CLUSTER_MAX,
        broker_mb_s=BROKER_BANDWIDTH_MB_S,
        broker_gb=BROKER_STORAGE_GB,
    )
