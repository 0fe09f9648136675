"""Choice of the free hosts on which a cluster for one instance is formed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeHost:
    """A host without brokers whose agent is alive; a capacity of None is no limit."""

    id: str
    zone: str
    capacity_mb_s: int | None = None
    capacity_gb: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """The host of each broker, in the order of their numbers, and the capacity of each broker."""

    host_ids: tuple[str, ...]
    bandwidth_mb_s: int
    storage_gb: int


def plan_cluster(
    hosts: Sequence[FreeHost],
    *,
    bandwidth_mb_s: int,
    storage_gb: int,
    brokers_min: int,
    brokers_max: int,
    broker_mb_s: int,
    broker_gb: int,
) -> ClusterPlan | None:
    """Returns the fewest hosts that carry the instance, in as many zones as possible, with at least `brokers_min`
    brokers of the usual size `broker_mb_s` and `broker_gb`. None if all hosts together are too few.
    """
    spread_hosts = _zones_in_turn(hosts)
    for count in range(1, len(spread_hosts) + 1):
        chosen = spread_hosts[:count]
        brokers = max(brokers_min, count, -(-bandwidth_mb_s // broker_mb_s), -(-storage_gb // broker_gb))
        brokers = -(-brokers // count) * count  # equally many on each host
        if brokers > brokers_max:
            continue
        per_host = brokers // count
        mb_s = min(
            [broker_mb_s, *(host.capacity_mb_s // per_host for host in chosen if host.capacity_mb_s is not None)]
        )
        gb = min([broker_gb, *(host.capacity_gb // per_host for host in chosen if host.capacity_gb is not None)])
        is_spread = count == len(spread_hosts) or count >= min(brokers_min, len({host.zone for host in spread_hosts}))
        if is_spread and mb_s * brokers >= bandwidth_mb_s and gb * brokers >= storage_gb and mb_s and gb:
            return ClusterPlan(
                host_ids=tuple(host.id for _ in range(per_host) for host in chosen), bandwidth_mb_s=mb_s, storage_gb=gb
            )
    return None


def _zones_in_turn(hosts: Sequence[FreeHost]) -> list[FreeHost]:
    """Returns one host of each zone, then the second ones: any prefix is in as many zones as possible."""
    by_zone: dict[str, list[FreeHost]] = {}
    for host in sorted(hosts, key=lambda host: host.id):
        by_zone.setdefault(host.zone, []).append(host)
    ranked = [(index, zone, host) for zone, members in by_zone.items() for index, host in enumerate(members)]
    return [host for _, _, host in sorted(ranked, key=lambda entry: entry[:2])]
