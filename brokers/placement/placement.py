"""Choice of the cluster and the brokers for an instance (CKA-47). Pure and deterministic.

Among the clusters where the instance fits, those with the fewest instances of its tenant are preferred, so that one
failure does not affect all of them; among these, the one with the least bandwidth left over (best fit: large gaps stay
for large instances), then with the least storage left over, then with the lowest id.

In this cluster, the brokers with the most free bandwidth are chosen, in as many zones as possible: at least
`brokers_min` (if the cluster has them), and more if the share of one broker would not fit otherwise. Shares are
fractions, so that the last third of a broker can be sold, too. Brokers that do not answer are used only if the others
are too few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction


class Fit(StrEnum):
    """The reason why a cluster fits an instance, or does not."""

    CHOSEN = "chosen"
    FITS = "fits"
    NO_BROKER = "no_broker"
    SILENT = "silent"
    PARTITIONS = "partitions"
    BANDWIDTH = "bandwidth"
    STORAGE = "storage"
    SAME_BROKERS = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeadroom:
    """The free capacity of one broker; may be negative after an operator lowered its capacity.

    `zone` is the zone of its host; brokers with unknown zone count as zones of their own.
    """

    id: str
    number: int
    free_bandwidth_mb_s: Fraction
    free_storage_gb: Fraction
    is_healthy: bool = True
    zone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHeadroom:
    """A cluster that accepts instances, with its brokers that do. `own_instances` are those of the same tenant.

    `free_partitions`, `unsold_mb_s` and `unsold_gb` are the capacity that the cluster as a whole may still sell
    (CKA-46); None is no limit.
    """

    id: str
    brokers: tuple[BrokerHeadroom, ...]
    brokers_min: int
    free_partitions: int | None = None
    unsold_mb_s: int | None = None
    unsold_gb: int | None = None
    own_instances: int = 0

    @property
    def free_bandwidth_mb_s(self) -> Fraction:
        return sum((max(Fraction(), broker.free_bandwidth_mb_s) for broker in self.brokers), start=Fraction())

    @property
    def free_storage_gb(self) -> Fraction:
        return sum((max(Fraction(), broker.free_storage_gb) for broker in self.brokers), start=Fraction())


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChoice:
    """A cluster and the brokers on it, in the order of their numbers."""

    cluster_id: str
    broker_ids: tuple[str, ...]
    left_bandwidth_mb_s: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFit:
    """The result of one cluster: chosen, would have fitted, or does not fit."""

    cluster_id: str
    fit: Fit
    own_instances: int
    left_bandwidth_mb_s: int
    left_storage_gb: int


def choose_cluster(
    clusters: Sequence[ClusterHeadroom], *, bandwidth_mb_s: int, storage_gb: int, partitions: int = 0
) -> ClusterChoice | None:
    """Returns the best fit, or None if no cluster has the capacity."""
    choices: list[tuple[tuple[int, Fraction, Fraction, str], ClusterChoice]] = []
    for cluster in clusters:
        if cluster.free_partitions is not None and cluster.free_partitions < partitions:
            continue
        brokers = fewest_brokers(cluster, bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb)
        if brokers:
            leftover = cluster.free_bandwidth_mb_s - bandwidth_mb_s
            choice = ClusterChoice(
                cluster_id=cluster.id, broker_ids=tuple(broker.id for broker in brokers), left_bandwidth_mb_s=leftover
            )
            order = (cluster.own_instances, leftover, cluster.free_storage_gb - storage_gb, cluster.id)
            choices.append((order, choice))
    return min(choices, key=lambda choice: choice[0])[1] if choices else None


def cluster_fits(
    clusters: Sequence[ClusterHeadroom], *, bandwidth_mb_s: int, storage_gb: int, partitions: int = 0
) -> tuple[ClusterFit, ...]:
    """Returns the fit of each cluster: the chosen one first, then in the order of preference."""
    size = {"bandwidth_mb_s": bandwidth_mb_s, "storage_gb": storage_gb, "partitions": partitions}
    choice = choose_cluster(clusters, **size)
    fits = []
    for cluster in clusters:
        fit = _fit_of(cluster, **size)
        if choice is not None and cluster.id == choice.cluster_id:
            fit = Fit.CHOSEN
        fits.append(
            ClusterFit(
                cluster_id=cluster.id,
                fit=fit,
                own_instances=cluster.own_instances,
                left_bandwidth_mb_s=int(cluster.free_bandwidth_mb_s),
                left_storage_gb=int(cluster.free_storage_gb),
            )
        )
    rank = {Fit.CHOSEN: 0, Fit.FITS: 1}
    return tuple(
        sorted(
            fits,
            key=lambda fit_row: (
                rank.get(fit_row.fit, 2),
                fit_row.own_instances,
                fit_row.left_bandwidth_mb_s,
                fit_row.cluster_id,
            ),
        )
    )


def _fit_of(cluster: ClusterHeadroom, *, bandwidth_mb_s: int, storage_gb: int, partitions: int) -> Fit:
    if not cluster.brokers:
        return Fit.NO_BROKER
    if not any(broker.is_healthy for broker in cluster.brokers):
        return Fit.SILENT
    if cluster.free_partitions is not None and cluster.free_partitions < partitions:
        return Fit.PARTITIONS
    if fewest_brokers(cluster, bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb):
        return Fit.FITS
    if not fewest_brokers(_without_storage(cluster), bandwidth_mb_s=bandwidth_mb_s, storage_gb=0):
        return Fit.BANDWIDTH
    if not fewest_brokers(_without_bandwidth(cluster), bandwidth_mb_s=0, storage_gb=storage_gb):
        return Fit.STORAGE
    return Fit.SAME_BROKERS


def fewest_brokers(cluster: ClusterHeadroom, *, bandwidth_mb_s: int, storage_gb: int) -> tuple[BrokerHeadroom, ...]:
    """Returns the fewest brokers (not below the minimum) that can each take an equal share of an instance.

    Returns none if all brokers together are too few, if none answers, or if the cluster may not sell that much.
    """
    if exceeds(cluster.unsold_mb_s, bandwidth_mb_s) or exceeds(cluster.unsold_gb, storage_gb):
        return ()
    healthy = [broker for broker in cluster.brokers if broker.is_healthy]
    if not healthy:
        return ()
    count_min = max(1, min(cluster.brokers_min, len(cluster.brokers)))
    for brokers in (healthy, cluster.brokers) if len(healthy) < len(cluster.brokers) else (healthy,):
        candidates = sorted(brokers, key=lambda broker: (-broker.free_bandwidth_mb_s, broker.number))
        for count in range(count_min, len(candidates) + 1):
            selected = _choose_brokers(candidates, count, Fraction(bandwidth_mb_s, count), Fraction(storage_gb, count))
            if len(selected) == count:
                return tuple(sorted(selected, key=lambda broker: broker.number))
    return ()


def exceeds(unsold: int | None, requested: int) -> bool:
    """True if `requested` is larger than the unsold capacity (None: unlimited); never for 0."""
    return unsold is not None and requested > max(unsold, 0)


def has_capacity(broker: BrokerHeadroom, bandwidth_share: Fraction, storage_share: Fraction) -> bool:
    """True if the broker has at least these shares of bandwidth (MB/s) and storage (GB) left."""
    return broker.free_bandwidth_mb_s >= bandwidth_share and broker.free_storage_gb >= storage_share


def _choose_brokers(
    candidates: Sequence[BrokerHeadroom], count: int, bandwidth_share: Fraction, storage_share: Fraction
) -> list[BrokerHeadroom]:
    brokers_with_capacity = [broker for broker in candidates if has_capacity(broker, bandwidth_share, storage_share)]
    return _zones_in_turn(brokers_with_capacity)[:count]


def _zones_in_turn(brokers: Sequence[BrokerHeadroom]) -> list[BrokerHeadroom]:
    """Returns the first broker of each zone, then the second ones, each in their order."""
    counts_by_zone: Counter[str] = Counter()
    rounds = []
    for broker in brokers:
        rounds.append(counts_by_zone[broker.zone] if broker.zone else 0)
        counts_by_zone[broker.zone] += 1
    order = sorted(range(len(brokers)), key=lambda index: (rounds[index], index))
    return [brokers[index] for index in order]


def missing_kinds_of(
    clusters: Sequence[ClusterHeadroom], *, bandwidth_mb_s: int, storage_gb: int, partitions: int = 0
) -> tuple[str, ...]:
    """Returns the kinds of capacity that an unplaced instance lacks.

    They are `cluster` (none accepts instances), `broker` (no broker accepts instances and answers), `partitions`,
    `bandwidth`, `storage`, or `both` (bandwidth and storage are available, but not on the same brokers).
    """
    if not clusters:
        return ("cluster",)
    if not any(broker.is_healthy for cluster in clusters for broker in cluster.brokers):
        return ("broker",)
    if all(cluster.free_partitions is not None and cluster.free_partitions < partitions for cluster in clusters):
        return ("partitions",)
    missing_kinds = []
    if (
        choose_cluster([_without_storage(cluster) for cluster in clusters], bandwidth_mb_s=bandwidth_mb_s, storage_gb=0)
        is None
    ):
        missing_kinds.append("bandwidth")
    if (
        choose_cluster([_without_bandwidth(cluster) for cluster in clusters], bandwidth_mb_s=0, storage_gb=storage_gb)
        is None
    ):
        missing_kinds.append("storage")
    return tuple(missing_kinds) or ("both",)


def _without_storage(cluster: ClusterHeadroom) -> ClusterHeadroom:
    """Returns the cluster with the storage of its brokers ignored."""
    brokers = tuple(replace(broker, free_storage_gb=Fraction()) for broker in cluster.brokers)
    return replace(cluster, brokers=brokers, unsold_gb=None)


def _without_bandwidth(cluster: ClusterHeadroom) -> ClusterHeadroom:
    brokers = tuple(replace(broker, free_bandwidth_mb_s=Fraction()) for broker in cluster.brokers)
    return replace(cluster, brokers=brokers, unsold_mb_s=None)


def largest_bandwidth_mb_s(clusters: Sequence[ClusterHeadroom], *, storage_gb: int) -> int:
    """Returns the largest whole MB/s that would be placed with this storage, for the refusal's text; 0 = nothing."""
    upper_bound = int(max((cluster.free_bandwidth_mb_s for cluster in clusters), default=Fraction()))
    return _largest(
        upper_bound, lambda size: choose_cluster(clusters, bandwidth_mb_s=size, storage_gb=storage_gb) is not None
    )


def largest_storage_gb(clusters: Sequence[ClusterHeadroom], *, bandwidth_mb_s: int) -> int:
    """Returns the largest whole GB that would be placed with this bandwidth; 0 = nothing."""
    free = (sum(max(Fraction(), broker.free_storage_gb) for broker in cluster.brokers) for cluster in clusters)
    upper_bound = int(max(free, default=Fraction()))
    return _largest(
        upper_bound, lambda size: choose_cluster(clusters, bandwidth_mb_s=bandwidth_mb_s, storage_gb=size) is not None
    )


def _largest(upper_bound: int, fits: Callable[[int], bool]) -> int:
    low, high = 0, upper_bound
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
