"""Bandwidth and storage that each broker has sold, added up by the database for many clusters at once.

The size of an instance is divided equally among the brokers on which it has ports to stay. Sums of whole sizes are
grouped by that number, so that shares stay fractions.
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
_SOLD = """
SELECT pair.broker_id, coalesce(kept.brokers, 1), sum(placement.bandwidth_mb_s), sum(placement.storage_gb)
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
) kept ON kept.instance_id = pair.instance_id AND kept.cluster_id = pair.cluster_id
GROUP BY pair.broker_id, coalesce(kept.brokers, 1)
"""


class Sold(NamedTuple):
    """Capacity that a broker has sold; a broker that an instance leaves keeps its share until the port is released."""

    mb_s: Fraction = Fraction()
    gb: Fraction = Fraction()

    def plus(self, mb_s: int, gb: int, brokers: int) -> Sold:
        """Returns the sum with a share of these sizes."""
        return Sold(self.mb_s + Fraction(mb_s, brokers), self.gb + Fraction(gb, brokers))


class SoldByCluster(NamedTuple):
    """Capacity that a cluster has sold, and the number of instances there of one tenant."""

    mb_s: int = 0
    gb: int = 0
    partitions: int = 0
    own_instances: int = 0


def sold_by_broker(clusters: Collection[Cluster], excluded: Instance | None) -> dict[str, Sold]:
    """Returns the sold capacity by broker id, without the instance `excluded`."""
    values: dict[str, Any] = {
        "clusters": [cluster.pk for cluster in clusters],
        "besides": "" if excluded is None else excluded.pk,
    }
    result: dict[str, Sold] = defaultdict(Sold)
    with connection.cursor() as cursor:
        cursor.execute(_SOLD, values)
        for broker_id, brokers, mb_s, gb in cursor.fetchall():
            result[broker_id] = result[broker_id].plus(int(mb_s), int(gb), brokers)
    for row, broker_id, brokers in _arriving(clusters):
        if excluded is None or row.instance_id != excluded.pk:
            result[broker_id] = result[broker_id].plus(row.bandwidth_mb_s, row.storage_gb, brokers)
    return result


def sold_by_cluster(
    clusters: Collection[Cluster], excluded: Instance | None, tenant_id: str
) -> dict[str, SoldByCluster]:
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
    return {cluster_id: SoldByCluster(*values) for cluster_id, *values in sums}


def promised_placements(clusters: Iterable[Cluster]) -> set[tuple[str, str]]:
    """Returns pairs (instance id, broker id) of placements that rebalances in progress will create."""
    arriving_states = dict.fromkeys((RebalanceState.RUNNING.value, RebalanceState.PAUSED.value), "arriving")
    directions = arriving_states | {RebalanceState.UNDOING.value: "leaving"}
    rebalances = Rebalance.objects.filter(cluster__in=list(clusters), state__in=directions)
    rows = list(rebalances.values_list("cluster_id", "state", "placements"))
    under_way = {cluster_id for cluster_id, _state, _placements in rows}
    numbered = Broker.objects.filter(cluster__in=under_way).values_list("cluster_id", "number", "pk") if rows else ()
    ids = {(cluster_id, number): pk for cluster_id, number, pk in numbered}
    return {
        (placement["owner"], ids[cluster_id, number])
        for cluster_id, state, placements in rows
        for placement in placements
        for number in placement[directions[state]]
    }


def _arriving(clusters: Collection[Cluster]) -> Iterable[tuple[Placement, str, int]]:
    """Yields instances with the brokers to which a rebalance moves them, before they have ports there, and the number
    of brokers that they are divided among.
    """
    pairs = promised_placements(clusters)
    if not pairs:
        return
    owners = {instance_id for instance_id, _broker_id in pairs}
    leases = PortLease.objects.filter(instance__in=owners)
    pairs -= set(leases.values_list("instance_id", "broker_id"))
    kept: Any = leases.filter(is_leaving=False).order_by().values_list("instance_id")
    brokers = dict(kept.annotate(Count("broker", distinct=True)))
    placed = {row.instance_id: row for row in Placement.objects.filter(instance__in=owners, cluster__in=clusters)}
    for instance_id, broker_id in sorted(pairs):
        if instance_id in placed:
            yield placed[instance_id], broker_id, brokers.get(instance_id, 1)
