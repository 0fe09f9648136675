"""First page of the operator panel: the state of each cluster, and action items for operators.

It sends no request to a broker: it reads rows, and the observations that a periodic task caches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _

from brokers import selectors
from brokers.choices import WantedState
from brokers.limits import (
    BROKER_LATE_S,
    CLUSTERS_MAX,
    NEEDS_MAX,
    NEEDS_OF_A_KIND_MAX,
    OPERATION_LATE_S,
    OVERVIEW_CLUSTERS_MAX,
)
from brokers.models import Broker, Cluster
from brokers.monitoring import attention, cluster_overview, incidents, interfaces
from brokers.monitoring.attention import OperatorActionItem
from brokers.monitoring.cluster_overview import ClusterMap
from brokers.operations.fleet_operations import OPEN_STATES
from brokers.operations.waiting import waiting_instances
from brokers.selectors import ClusterCapacity
from instances import selectors as instance_selectors
from instances.choices import Reason
from instances.lifecycle.phases import Phase

MAY_SEE_MONEY = "billing.view_invoice"
# Fields of brokers that this page needs; for a large fleet it reads hundreds of rows.
BROKER_FIELDS = (
    "cluster_id", "number", "wanted", "storage_gb", "process_state", "process_since", "observed", "observed_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSummary:
    """Summary of a cluster. `map` is None without an observation; `as_of` is the observation's time if it is old."""

    cluster: Cluster
    map: ClusterMap | None
    capacity: ClusterCapacity
    running: int
    as_of: datetime | None

    @property
    def under_replicated(self) -> int | None:
        return None if self.map is None else self.map.shown["under_replicated"]

    @property
    def offline(self) -> int | None:
        return None if self.map is None else self.map.shown["offline"]


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Returns the context of the panel's first page."""
    now = timezone.now()
    needs = list(interfaces.money_needs.implementation(now)) if request.user.has_perm(MAY_SEE_MONEY) else []
    summaries: list[ClusterSummary] | None = None
    more_clusters = 0
    if request.user.has_perm("brokers.view_cluster"):
        summaries, of_fleet = overview(
            now,
            with_instances=request.user.has_perm("instances.view_instance"),
            with_usage=request.user.has_perm("billing.view_usageproblem"),
        )
        if len(summaries) == OVERVIEW_CLUSTERS_MAX:
            more_clusters = selectors.active_clusters().count() - len(summaries)
        needs = sorted([*of_fleet, *needs], key=lambda need: not need.is_now)
    elif not needs:
        return context
    return context | {
        "title": _("Overview"),
        "summaries": summaries,
        "more_clusters": more_clusters,
        "needs": needs[:NEEDS_MAX],
        "more_needs": max(0, len(needs) - NEEDS_MAX),
    }


def overview(
    now: datetime, *, with_instances: bool = True, with_usage: bool = True
) -> tuple[list[ClusterSummary], list[OperatorActionItem]]:
    """Returns clusters, and their action items in order of urgency. Clusters with action items come first; those beyond
    the limit are left out. The number of queries does not depend on the number of clusters.
    """
    clusters = list(selectors.clusters()[:CLUSTERS_MAX])
    cluster_by_id = {cluster.pk: cluster for cluster in clusters}
    brokers: dict[str, list[Broker]] = defaultdict(list)
    broker_rows = selectors.brokers().select_related(None).only(*BROKER_FIELDS)
    for broker in broker_rows.filter(cluster__in=clusters):
        broker.cluster = cluster_by_id[broker.cluster_id]
        brokers[broker.cluster_id].append(broker)
    summaries = _summaries(clusters, brokers, now)
    # Items beyond this number are counted, not shown.
    unresponsive_brokers = (
        broker for cluster in clusters for broker in brokers[cluster.pk] if attention.is_silent(broker, now)
    )
    unresponsive = list(islice(unresponsive_brokers, NEEDS_MAX))
    affected_by_incident = incidents.affected_by(clusters, unresponsive) if with_instances else {}
    items: list[OperatorActionItem] = []
    ids_in_need = set()
    for summary in summaries:
        cluster_brokers, item_count_before = brokers[summary.cluster.pk], len(items)
        hanging = sum(
            int(broker.observed.get("transactions_overdue", 0)) for broker in cluster_brokers if _is_fresh(broker, now)
        )
        items += attention.cluster_items(summary.cluster, summary.map, summary.capacity, hanging, affected_by_incident)
        for broker in cluster_brokers:
            items += attention.broker_items(broker, now, affected_by_incident)
        if len(items) > item_count_before:
            ids_in_need.add(summary.cluster.pk)
    if len(summaries) > OVERVIEW_CLUSTERS_MAX:
        summaries.sort(key=lambda summary: summary.cluster.pk not in ids_in_need)
    items += _host_items(now)
    items += _unfinished_work_items()
    if with_usage:
        items += interfaces.usage_needs.implementation(NEEDS_OF_A_KIND_MAX)
    if with_instances:
        items += _instance_items(now)
    return summaries[:OVERVIEW_CLUSTERS_MAX], sorted(items, key=lambda need: not need.is_now)


def _summaries(clusters: Sequence[Cluster], brokers: dict[str, list[Broker]], now: datetime) -> list[ClusterSummary]:
    images, capacities = (
        cluster_overview.cached_images(clusters),
        selectors.capacities_of(clusters, with_partitions=False),
    )
    result = []
    for cluster in clusters:
        cluster_brokers = brokers[cluster.pk]
        observed_at, answers = images.get(cluster.pk, (None, None))
        result.append(
            ClusterSummary(
                cluster=cluster,
                map=None if answers is None else cluster_overview.build_map(cluster, cluster_brokers, answers),
                capacity=capacities[cluster.pk],
                running=sum(row.wanted == WantedState.RUNNING for row in cluster_brokers),
                as_of=observed_at
                if observed_at is not None and now - observed_at > timedelta(seconds=BROKER_LATE_S)
                else None,
            )
        )
    return result


def _is_fresh(broker: Broker, now: datetime) -> bool:
    return broker.observed_at is not None and now - broker.observed_at <= timedelta(seconds=BROKER_LATE_S)


def _host_items(now: datetime) -> Iterable[OperatorActionItem]:
    for host in selectors.hosts_in_need(now)[:NEEDS_OF_A_KIND_MAX]:
        yield from attention.host_items(host, now)


def _unfinished_work_items() -> Iterable[OperatorActionItem]:
    rebalances = selectors.rebalances_under_way()[:OVERVIEW_CLUSTERS_MAX]
    operations = selectors.fleet_operations().filter(state__in=OPEN_STATES)[:OVERVIEW_CLUSTERS_MAX]
    yield from attention.unfinished_work_items(
        rebalances, selectors.rolling_restarts_under_way()[:OVERVIEW_CLUSTERS_MAX]
    )
    yield from attention.fleet_operation_items(operations, timezone.now())


def _instance_items(now: datetime) -> Iterable[OperatorActionItem]:
    yield from (attention.waiting_instance_item(row, now) for row in waiting_instances()[:NEEDS_OF_A_KIND_MAX])
    failed = instance_selectors.failed_instances()[:NEEDS_OF_A_KIND_MAX]
    yield from (attention.failed_instance_item(row) for row in failed)
    overdue_operations = instance_selectors.operations_open_since(now - timedelta(seconds=OPERATION_LATE_S))
    overdue_operations = overdue_operations.exclude(
        instance__phase=Phase.PROVISIONING.value, instance__reason=Reason.NO_ROOM.value
    )
    yield from (attention.operation_item(row, now) for row in overdue_operations[:NEEDS_OF_A_KIND_MAX])
