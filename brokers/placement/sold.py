"""Bandwidth and storage that each broker has sold, added up by the database for many clusters at once.

The size of an instance is divided equally among the brokers on which it has ports to stay. Sums of whole sizes are
grouped by the number of brokers, so that shares stay exact fractions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from fractions import Fraction
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import Count, Q, Sum

from brokers.choices import RebalanceState
from brokers.models import Broker, Cluster, Placement, PortLease, Rebalance
from instances.models import Instance

# One row for each broker and each number of brokers that instances are divided among.
_SOLD_BY_BROKER_SQL = """
SELECT pair.broker_id, coalesce(staying.brokers, 1), sum(placement.bandwidth_mb_s), sum(placement.storage_gb)
FROM (
    SELECT DISTINCT lease.instance_id, lease.broker_id, broker.cluster_id
    FROM brokers_portlease lease JOIN brokers_broker broker ON broker.id = lease.broker_id
    WHERE broker.cluster_id = ANY(%(clusters)s) AND lease.instance_id <> %(besides)s
) pair
JOIN brokers_placement placement
    ON placement.instance_id = pair.instance_id AND placement.cluster_id = pair.cluster_id
LEFT JOIN (
    SELECT lease.instance_id, broker.cluster_id, count(DISTINCT lease.broker_id) AS brokers
    FROM brokers_portlease lease JOIN brokers_broker broker ON broker.id = lease.broker_id
    WHERE broker.cluster_id = ANY(%(clusters)s) AND NOT lease.is_leaving
    GROUP BY lease.instance_id, broker.cluster_id
) staying ON staying.instance_id = pair.instance_id AND staying.cluster_id = pair.cluster_id
GROUP BY pair.broker_id, coalesce(staying.brokers, 1)
"""


class SoldCapacity(NamedTuple):
    """Capacity that a broker has sold; a broker that an instance leaves keeps its share until the port is released."""

    mb_s: Fraction = Fraction()
    gb: Fraction = Fraction()

    def add_share(self, mb_s: int, gb: int, brokers: int) -> SoldCapacity:
        """Returns the sum with a share of these sizes."""
        return SoldCapacity(self.mb_s + Fraction(mb_s, brokers), self.gb + Fraction(gb, brokers))


class ClusterSales(NamedTuple):
    """Capacity that a cluster has sold, and the number of instances there of one tenant."""

    mb_s: int = 0
    gb: int = 0
    partitions: int = 0
    own_instances: int = 0


def sold_by_broker(clusters: Collection[Cluster], excluded: Instance | None) -> dict[str, SoldCapacity]:
    """Returns the sold capacity by broker id, without the instance `excluded`."""
    values: dict[str, Any] = {
        "clusters": [cluster.pk for cluster in clusters],
        "besides": "" if excluded is None else excluded.pk,
    }
    result: dict[str, SoldCapacity] = defaultdict(SoldCapacity)
    with connection.cursor() as cursor:
        cursor.execute(_SOLD_BY_BROKER_SQL, values)
        for broker_id, brokers, mb_s, gb in cursor.fetchall():
            result[broker_id] = result[broker_id].add_share(int(mb_s), int(gb), brokers)
    for row, broker_id, brokers in _arriving_placements(clusters):
        if excluded is None or row.instance_id != excluded.pk:
            result[broker_id] = result[broker_id].add_share(row.bandwidth_mb_s, row.storage_gb, brokers)
    return result


def sold_by_cluster(
    clusters: Collection[Cluster], excluded: Instance | None, tenant_id: str
) -> dict[str, ClusterSales]:
    """Returns the sold capacity by cluster id, without the instance `excluded`."""
    rows = Placement.objects.filter(cluster__in=clusters).order_by()
    if excluded is not None:
        rows = rows.exclude(instance=excluded)
    sums = rows.values_list("cluster_id").annotate(
        Sum("bandwidth_mb_s"),
        Sum("storage_gb"),
        Sum("instance__partitions_max"),
        own=Count("instance_id", filter=Q(instance__tenant_id=tenant_id)),
    )
    return {cluster_id: ClusterSales(*values) for cluster_id, *values in sums}


def promised_placements(clusters: Iterable[Cluster]) -> set[tuple[str, str]]:
    """Returns pairs (instance id, broker id) of placements that rebalances in progress will create."""
    arriving_states = dict.fromkeys((RebalanceState.RUNNING.value, RebalanceState.PAUSED.value), "arriving")
    directions = arriving_states | {RebalanceState.UNDOING.value: "leaving"}
    rebalances = Rebalance.objects.filter(cluster__in=list(clusters), state__in=directions)
    rows = list(rebalances.values_list("cluster_id", "state", "placements"))
    under_way = {cluster_id for cluster_id, _state, _placements in rows}
    broker_rows = Broker.objects.filter(cluster__in=under_way).values_list("cluster_id", "number", "pk") if rows else ()
    ids = {(cluster_id, number): pk for cluster_id, number, pk in broker_rows}
    return {
        (placement["owner"], ids[cluster_id, number])
        for cluster_id, state, placements in rows
        for placement in placements
        for number in placement[directions[state]]
    }


def _arriving_placements(clusters: Collection[Cluster]) -> Iterable[tuple[Placement, str, int]]:
    """Yields (placement, broker id, number of brokers) for brokers to which a rebalance moves instances that have no
    ports there yet. The number is that of the brokers among which the instance is divided.
    """
    pairs = promised_placements(clusters)
    if not pairs:
        return
    owners = {instance_id for instance_id, _broker_id in pairs}
    leases = PortLease.objects.filter(instance__in=owners)
    pairs -= set(leases.values_list("instance_id", "broker_id"))
    remaining_leases: Any = leases.filter(is_leaving=False).order_by().values_list("instance_id")
    broker_count_by_instance = dict(remaining_leases.annotate(Count("broker", distinct=True)))
    placement_by_instance = {
        row.instance_id: row for row in Placement.objects.filter(instance__in=owners, cluster__in=clusters)
    }
    for instance_id, broker_id in sorted(pairs):
        if instance_id in placement_by_instance:
            yield placement_by_instance[instance_id], broker_id, broker_count_by_instance.get(instance_id, 1)
