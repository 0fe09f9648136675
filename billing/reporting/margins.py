"""Comparison of sold and used capacity by cluster: capacity of brokers, sizes of instances, and traffic and storage in
the busiest hours of the last thirty days.

Reading thirty days of hours takes seconds with many instances, so a task does it and stores the result for the page.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from django.core.cache import cache as shared_cache
from django.db.models import CharField, Sum
from django.db.models.functions import Cast

from billing.models import Invoice, InvoiceLine, UsageHour
from billing.models.usage import Direction, Gauge
from billing.rating.hours import floor_hour
from brokers import selectors
from brokers.limits import CLUSTERS_MAX
from brokers.models import Cluster, Placement
from brokers.selectors import ClusterCapacity
from instances.limits import BYTES_PER_GB, BYTES_PER_MB
from tenants.cached_values import cacheable

WINDOW_DAYS = 30
PERCENTILE = 95
SECONDS_PER_HOUR = 3_600
# If the cache is lost, the next run of the task fills it again.
CACHE_TTL_S = 2 * 24 * SECONDS_PER_HOUR
CACHE_KEY = "money:margins"
COUNTERS = (Direction.PRODUCE.value, Direction.CONSUME.value, Gauge.STORED.value)


@cacheable
@dataclass(frozen=True, slots=True)
class HourlyUse:
    """Maximum and 95th percentile of hourly averages.

    Bandwidth is that of the larger direction; storage counts every replica.
    """

    peak: float = 0.0
    p95: float = 0.0


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterUse:
    """Use of a cluster in MB/s and GB."""

    bandwidth_mb_s: HourlyUse
    storage_gb: HourlyUse


@cacheable
@dataclass(frozen=True, slots=True)
class KeptUse:
    """Result of the task: the use of each cluster, by cluster id, as of `at`."""

    at: datetime
    use: Mapping[str, ClusterUse]


class CapacityUse(NamedTuple):
    """Capacity, the sold part of it and its use, in one unit."""

    capacity: int
    sold: int
    used: HourlyUse | None

    @property
    def oversold(self) -> float | None:
        """Sold divided by capacity, above 1 if oversold; None without capacity."""
        return self.sold / self.capacity if self.capacity else None

    @property
    def sold_over_used(self) -> float | None:
        """Sold divided by the 95th percentile of use; None if nothing was used or it is unknown."""
        return self.sold / self.used.p95 if self.used is not None and self.used.p95 > 0 else None


class Revenue(NamedTuple):
    """Revenue before tax in one currency, and revenue per sold MB/s."""

    currency: str
    revenue: Decimal
    per_mb_s: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """Row of the page; `cluster` is None for all clusters together."""

    cluster: Cluster | None
    instances: int
    bandwidth: CapacityUse
    storage: CapacityUse
    revenues: tuple[Revenue, ...]


def percentile(values: Iterable[float], count: int, percent: int = PERCENTILE) -> float:
    """Returns the smallest of `count` values that `percent` per cent of them do not exceed; missing values are 0.
    Pure.
    """
    if count <= 0:
        return 0.0
    known = sorted(values)[-count:]
    rank = max(1, math.ceil(Fraction(percent * count, 100)))
    index = rank - 1 - (count - len(known))
    return known[index] if index >= 0 else 0.0


def hourly_use(hours: Sequence[float], count: int) -> HourlyUse:
    """Returns the use in `count` hours; hours without usage are omitted from `hours`. Pure."""
    return HourlyUse(peak=max(hours, default=0.0), p95=percentile(hours, count))


def cluster_use(rows: Iterable[tuple[datetime, str, int]], count: int) -> ClusterUse:
    """Computes the use from `(hour, counter, sum over all instances)` in `count` hours. Pure."""
    sums: dict[str, dict[datetime, int]] = {name: {} for name in COUNTERS}
    for hour, counter, total in rows:
        sums[counter][hour] = total
    produced, consumed = sums[Direction.PRODUCE.value], sums[Direction.CONSUME.value]
    larger = [max(produced.get(hour, 0), consumed.get(hour, 0)) for hour in {*produced, *consumed}]
    return ClusterUse(
        bandwidth_mb_s=hourly_use([bytes_ / SECONDS_PER_HOUR / BYTES_PER_MB for bytes_ in larger], count),
        storage_gb=hourly_use([bytes_ / BYTES_PER_GB for bytes_ in sums[Gauge.STORED.value].values()], count),
    )


def store_use(now: datetime) -> KeptUse:
    """Computes the use of every cluster from its instances' hours, and stores the result for the page."""
    until = floor_hour(now)
    since = until - timedelta(days=WINDOW_DAYS)
    count = WINDOW_DAYS * 24
    use = {
        cluster.pk: cluster_use(_hours(cluster, since, until), count) for cluster in selectors.clusters()[:CLUSTERS_MAX]
    }
    stored = KeptUse(now, use)
    shared_cache.set(CACHE_KEY, stored, CACHE_TTL_S)
    return stored


def _hours(cluster: Cluster, since: datetime, until: datetime) -> Iterable[tuple[datetime, str, int]]:
    placed = Placement.objects.filter(cluster=cluster).annotate(name=Cast("instance_id", CharField()))
    rows = UsageHour.objects.filter(
        instance_id__in=placed.values("name"), hour__gte=since, hour__lt=until, direction__in=COUNTERS
    )
    return rows.order_by().values_list("hour", "direction").annotate(Sum("bytes")).iterator(chunk_size=2_000)


def last_stored() -> KeptUse | None:
    """Returns the last stored result; None before the first run of the task."""
    stored = shared_cache.get(CACHE_KEY)
    return stored if isinstance(stored, KeptUse) else None


def latest_month() -> datetime | None:
    """Returns the latest month with issued invoices."""
    return Invoice.objects.order_by("-period_start").values_list("period_start", flat=True).first()


def revenue_by_cluster(month: datetime) -> dict[tuple[str, str], Decimal]:
    """Returns by cluster and currency the amounts charged in the month for instances placed there.

    Amounts of whole bills and of deleted instances belong to no cluster.
    """
    clusters = dict(Placement.objects.order_by().values_list("instance_id", "cluster_id"))
    rows = (
        InvoiceLine.objects.filter(invoice__period_start=month)
        .exclude(instance_id="")
        .order_by()
        .values_list("instance_id", "invoice__currency")
        .annotate(Sum("amount"))
    )
    result: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for instance_id, currency, amount in rows:
        if instance_id in clusters:
            result[clusters[instance_id], currency] += amount
    return result


def margins(month: datetime | None, stored: KeptUse | None) -> list[Margin]:
    """Returns a row for each cluster by name, and one for all of them if there are several."""
    clusters = list(selectors.clusters()[:CLUSTERS_MAX])
    capacities = selectors.capacities_of(clusters)
    revenue = revenue_by_cluster(month) if month is not None else {}
    rows = [
        margin_of(
            cluster,
            capacities[cluster.pk],
            stored.use.get(cluster.pk) if stored is not None else None,
            {currency: amount for (owner, currency), amount in revenue.items() if owner == cluster.pk},
        )
        for cluster in clusters
    ]
    return [*rows, total_of(rows)] if len(rows) > 1 else rows


def margin_of(
    cluster: Cluster | None, capacity: ClusterCapacity, use: ClusterUse | None, revenue: Mapping[str, Decimal]
) -> Margin:
    """Computes the row of a cluster. Pure."""
    return Margin(
        cluster=cluster,
        instances=capacity.instances,
        bandwidth=CapacityUse(
            capacity.bandwidth_mb_s, capacity.sold_bandwidth_mb_s, use.bandwidth_mb_s if use else None
        ),
        storage=CapacityUse(capacity.storage_gb, capacity.sold_storage_gb, use.storage_gb if use else None),
        revenues=revenues(revenue, capacity.sold_bandwidth_mb_s),
    )


def revenues(revenue: Mapping[str, Decimal], sold_mb_s: int) -> tuple[Revenue, ...]:
    """Returns the revenue by currency. Pure."""
    return tuple(
        Revenue(currency, amount, amount / sold_mb_s if sold_mb_s else None)
        for currency, amount in sorted(revenue.items())
    )


def total_of(rows: Sequence[Margin]) -> Margin:
    """Sums all clusters, without use, because their busiest hours differ. Pure."""
    revenue: dict[str, Decimal] = defaultdict(Decimal)
    for row in rows:
        for revenue_ in row.revenues:
            revenue[revenue_.currency] += revenue_.revenue
    sold = sum(row.bandwidth.sold for row in rows)
    sold_gb = sum(row.storage.sold for row in rows)
    return Margin(
        cluster=None,
        instances=sum(row.instances for row in rows),
        bandwidth=CapacityUse(sum(row.bandwidth.capacity for row in rows), sold, None),
        storage=CapacityUse(sum(row.storage.capacity for row in rows), sold_gb, None),
        revenues=revenues(revenue, sold),
    )
