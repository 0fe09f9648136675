"""Where an instance goes (CKA-47). Pure: numbers in, a choice out; the same picture always gives the same choice.

The cluster where it fits with the smallest bandwidth left over (best fit: large gaps stay for large instances), ties by
id. On it, the brokers with the most free bandwidth: at least `brokers_min` (where there are so many), more when the
share of one broker would not fit otherwise. Shares are fractions: the last third of a broker can be sold too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRoom:
    """What one broker has left to sell; may be negative where an operator lowered its capacity."""

    id: str
    number: int
    free_bandwidth_mb_s: Fraction
    free_storage_gb: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRoom:
    """A cluster that takes instances, with the brokers that do."""

    id: str
    brokers: tuple[BrokerRoom, ...]
    brokers_min: int

    @property
    def free_bandwidth_mb_s(self) -> Fraction:
        return sum((max(Fraction(), broker.free_bandwidth_mb_s) for broker in self.brokers), start=Fraction())


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A cluster and the brokers on it, in the order of their numbers."""

    cluster_id: str
    broker_ids: tuple[str, ...]
    left_bandwidth_mb_s: Fraction


def choose(clusters: Sequence[ClusterRoom], *, bandwidth_mb_s: int, storage_gb: int) -> Choice | None:
    """The best fit, or None when no cluster has room and a further one is needed."""
    choices: list[Choice] = []
    for cluster in clusters:
        brokers = brokers_for(cluster, bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb)
        if brokers:
            choices.append(
                Choice(
                    cluster_id=cluster.id,
                    broker_ids=tuple(broker.id for broker in brokers),
                    left_bandwidth_mb_s=cluster.free_bandwidth_mb_s - bandwidth_mb_s,
                )
            )
    return min(choices, key=lambda choice: (choice.left_bandwidth_mb_s, choice.cluster_id), default=None)


def brokers_for(cluster: ClusterRoom, *, bandwidth_mb_s: int, storage_gb: int) -> tuple[BrokerRoom, ...]:
    """The fewest brokers (not under the minimum) that each take an equal share; empty when even all are too few."""
    by_room = sorted(cluster.brokers, key=lambda broker: (-broker.free_bandwidth_mb_s, broker.number))
    fewest = min(cluster.brokers_min, len(by_room))
    for count in range(max(1, fewest), len(by_room) + 1):
        chosen = _fitting(by_room, count, Fraction(bandwidth_mb_s, count), Fraction(storage_gb, count))
        if len(chosen) == count:
            return tuple(sorted(chosen, key=lambda broker: broker.number))
    return ()


def accepts_replicas(broker: BrokerRoom, bandwidth_share: Fraction, storage_share: Fraction) -> bool:
    """Whether it has so much left of both."""
    return broker.free_bandwidth_mb_s >= bandwidth_share and broker.free_storage_gb >= storage_share


def _fitting(
    by_room: Sequence[BrokerRoom], count: int, bandwidth_share: Fraction, storage_share: Fraction
) -> list[BrokerRoom]:
    return [broker for broker in by_room if accepts_replicas(broker, bandwidth_share, storage_share)][:count]


def missing(clusters: Sequence[ClusterRoom], *, bandwidth_mb_s: int, storage_gb: int) -> tuple[str, ...]:
    """What an instance that nobody takes lacks: `cluster` (none takes instances), `broker` (those have none that does),
    `bandwidth`, `storage`, or `both`: each is there, but not on the same brokers.
    """
    if not clusters:
        return ("cluster",)
    if not any(cluster.brokers for cluster in clusters):
        return ("broker",)
    lacks = []
    if choose([_without_storage(item) for item in clusters], bandwidth_mb_s=bandwidth_mb_s, storage_gb=0) is None:
        lacks.append("bandwidth")
    if choose([_without_bandwidth(item) for item in clusters], bandwidth_mb_s=0, storage_gb=storage_gb) is None:
        lacks.append("storage")
    return tuple(lacks) or ("both",)


def _without_storage(cluster: ClusterRoom) -> ClusterRoom:
    """As if no storage were to be sold: what is free of it, or sold too much, is no matter."""
    return replace(cluster, brokers=tuple(replace(broker, free_storage_gb=Fraction()) for broker in cluster.brokers))


def _without_bandwidth(cluster: ClusterRoom) -> ClusterRoom:
    return replace(
        cluster, brokers=tuple(replace(broker, free_bandwidth_mb_s=Fraction()) for broker in cluster.brokers)
    )


def largest_bandwidth_mb_s(clusters: Sequence[ClusterRoom], *, storage_gb: int) -> int:
    """The largest whole MB/s that would be placed with this storage, so that a refusal can say it; 0 = nothing."""
    most = int(max((cluster.free_bandwidth_mb_s for cluster in clusters), default=Fraction()))
    return _largest(most, lambda size: choose(clusters, bandwidth_mb_s=size, storage_gb=storage_gb) is not None)


def largest_storage_gb(clusters: Sequence[ClusterRoom], *, bandwidth_mb_s: int) -> int:
    """The largest whole GB that would be placed with this bandwidth; 0 = nothing."""
    free = (sum(max(Fraction(), broker.free_storage_gb) for broker in cluster.brokers) for cluster in clusters)
    most = int(max(free, default=Fraction()))
    return _largest(most, lambda size: choose(clusters, bandwidth_mb_s=bandwidth_mb_s, storage_gb=size) is not None)


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
