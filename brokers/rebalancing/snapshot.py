"""Snapshot of a cluster for plans: partitions as a broker reports them, their sizes, and the ports of instances."""

from __future__ import annotations

from collections import defaultdict

import structlog

from brokers.choices import WantedState
from brokers.contract.own_topics import LED_BY_EACH_BROKER
from brokers.contract.partitions import NO_LEADER, PartitionKey
from brokers.dataplane.cluster import ClusterAdminClient, ClusterView
from brokers.models import Broker, Cluster, PortLease
from brokers.rebalancing.model import BrokerCapacity, Fleet, PartitionReplicas
from instances import naming
from tenants.errors import Unavailable

log = structlog.get_logger(__name__)


def take_snapshot(cluster: Cluster, admin_client: ClusterAdminClient, *, sizes: bool = True) -> Fleet:
    """Returns a snapshot of the whole cluster. Without `sizes` one broker is queried, otherwise every broker.

    Raises `Unavailable` if no broker answers.
    """
    view = admin_client.view()
    rows = list(Broker.objects.filter(cluster=cluster, removed_at=None).select_related("host").order_by("number"))
    sizes_by_partition = _query_sizes(admin_client, view) if sizes else {}
    partitions = []
    for key, placement in sorted(view.partitions.items()):
        owner, _ = naming.split_internal(key[0])
        partitions.append(
            PartitionReplicas(
                topic=key[0],
                index=key[1],
                replicas=placement.replicas,
                owner=owner,
                size_bytes=max(sizes_by_partition.get(key, {}).values(), default=0),
                sizes=sizes_by_partition.get(key, {}),
                leader=placement.leader,
                pinned=key[0] in LED_BY_EACH_BROKER,
                topic_id=view.topic_ids.get(key[0], ""),
                is_led=placement.leader != NO_LEADER,
                isr=placement.isr,
            )
        )
    return Fleet(
        brokers={row.number: _capacity_of(row, view) for row in rows},
        partitions=partitions,
        placements=placements_by_instance(cluster),
        placements_min=cluster.brokers_per_instance_min,
        sold={
            placement.instance_id: (placement.bandwidth_mb_s, placement.storage_gb)
            for placement in cluster.placements.all()
        },
    )


def _capacity_of(row: Broker, view: ClusterView) -> BrokerCapacity:
    can_sell = (row.bandwidth_mb_s, row.storage_gb)
    return BrokerCapacity(
        id=row.number, rack=row.effective_rack, accepts_replicas=_accepts_replicas(row, view), can_sell=can_sell
    )


def brokers_that_accept(cluster: Cluster, view: ClusterView) -> frozenset[int]:
    """Returns the numbers of the brokers that may get replicas: live, not stopped, and not drained."""
    brokers = Broker.objects.filter(cluster=cluster, removed_at=None)
    return frozenset(row.number for row in brokers if _accepts_replicas(row, view))


def _accepts_replicas(broker: Broker, view: ClusterView) -> bool:
    return broker.number in view.brokers and broker.wanted == WantedState.RUNNING and broker.accepts_instances


def placements_by_instance(cluster: Cluster) -> dict[str, frozenset[int]]:
    """Returns the brokers on which each instance stays, by instance id."""
    result: dict[str, set[int]] = defaultdict(set)
    rows = PortLease.objects.filter(broker__cluster=cluster, is_leaving=False)
    for instance_id, number in rows.values_list("instance_id", "broker__number"):
        result[instance_id].add(number)
    return {instance_id: frozenset(numbers) for instance_id, numbers in result.items()}


def _query_sizes(admin_client: ClusterAdminClient, view: ClusterView) -> dict[PartitionKey, dict[int, int]]:
    """Returns the sizes of each partition's replicas by broker, without brokers that do not answer."""
    result: dict[PartitionKey, dict[int, int]] = defaultdict(dict)
    for number in sorted(view.brokers):
        try:
            replicas = admin_client.replica_sizes(number)
        except Unavailable:
            log.warning("plan.sizes_not_known", broker=number)
            continue
        for key, size in replicas.items():
            result[key][number] = size.size_bytes
    return dict(result)
