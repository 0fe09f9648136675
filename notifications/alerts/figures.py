"""Reading of the figures that alert rules evaluate, for many instances at once and without requests to brokers.

Used storage, consumer lags and silent brokers come from samples that other tasks wrote to the cache; minutes in which
clients were delayed come from a table. A figure that is missing or too old is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import connection

from brokers.models import Broker, Cluster, Placement
from brokers.monitoring import cluster_overview, delays
from brokers.monitoring.cluster_overview import ClusterMap
from instances.groups import lag_history
from instances.groups.lag_history import LatestLags
from instances.lifecycle.phases import REACHABLE
from instances.metrics import storage_history
from instances.metrics.storage_use import used_percent
from instances.models import Instance
from notifications.limits import CLUSTER_KNOWN_FOR, DELAYS_KNOWN_FOR, STORAGE_KNOWN_FOR, WINDOW_MINUTES
from notifications.models import AlertKind, AlertRule
from tenants.alert_state import UNKNOWN, Sample

MS_PER_S = 1_000
PERCENT = 100
MINUTE = timedelta(minutes=1)
# Kinds of tenants' rules whose figures depend on the instance's cluster.
TENANTS_CLUSTER_KINDS = (AlertKind.THROTTLED_SHARE, AlertKind.BROKERS_SILENT)

_DELAYED = """
SELECT asked.instance_id, asked.minutes, count(*)
FROM unnest(%s::text[], %s::int[], %s::timestamptz[]) AS asked(instance_id, minutes, until)
JOIN instances_delayedminute kept ON kept.instance_id = asked.instance_id
     AND kept.minute >= asked.until - asked.minutes * interval '1 minute' AND kept.minute < asked.until
GROUP BY asked.instance_id, asked.minutes
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of a batch of rules. A figure whose key is missing in a mapping is unknown.

    Keys are ids of instances; in `delays_known` (the end of the known minutes) and `clusters` they are ids of clusters.
    `lags` are also by group.
    """

    instances: Mapping[str, Instance] = field(default_factory=dict)
    cluster_of: Mapping[str, str] = field(default_factory=dict)
    used_bytes: Mapping[str, int] = field(default_factory=dict)
    lags: Mapping[str, Mapping[str, LatestLags]] = field(default_factory=dict)
    # By instance id and length of the window in minutes.
    delayed_minutes: Mapping[tuple[str, int], int] = field(default_factory=dict)
    delays_known: Mapping[str, datetime] = field(default_factory=dict)
    clusters: Mapping[str, ClusterMap] = field(default_factory=dict)

    def sample_of(self, rule: AlertRule) -> Sample:
        """Returns the figure of a rule; it is unknown for a rule that changed after the batch was read."""
        match rule.kind:
            case AlertKind.CLUSTER_UNDER_REPLICATED:
                cluster = self.clusters.get(str(rule.cluster_id))
                return UNKNOWN if cluster is None else Sample(value=cluster.shown["under_replicated"])
            case AlertKind.CLUSTER_BROKERS_SILENT:
                cluster = self.clusters.get(str(rule.cluster_id))
                return UNKNOWN if cluster is None else Sample(value=len(cluster.silent))
        instance = self.instances.get(str(rule.instance_id))
        if instance is None or instance.current_phase not in REACHABLE:
            return UNKNOWN
        match rule.kind:
            case AlertKind.STORAGE_USED:
                return self._used_storage(instance)
            case AlertKind.CONSUMER_LAG:
                return self._consumer_lag(instance, rule.group_id, rule.topic)
            case AlertKind.THROTTLED_SHARE:
                return self._throttled_share(instance, rule.window_minutes or WINDOW_MINUTES)
            case _:
                return self._silent_brokers(instance)

    def _used_storage(self, instance: Instance) -> Sample:
        used = self.used_bytes.get(instance.pk)
        return UNKNOWN if used is None else Sample(value=used_percent(used, instance.storage_bytes))

    def _consumer_lag(self, instance: Instance, group: str, topic: str) -> Sample:
        lags = self.lags.get(instance.pk, {}).get(group)
        if lags is None or (topic and topic not in lags[1]):
            return UNKNOWN
        return Sample(value=lags[1][topic] if topic else sum(lags[1].values()))

    def _throttled_share(self, instance: Instance, minutes: int) -> Sample:
        """Returns the percentage of minutes with delayed clients; a lower bound if not all brokers have reported."""
        cluster_id = self.cluster_of.get(instance.pk, "")
        minute_count = self.delayed_minutes.get((instance.pk, minutes))
        if minute_count is None:
            return UNKNOWN
        return Sample(value=minute_count * PERCENT // minutes, is_lower_bound=cluster_id not in self.delays_known)

    def _silent_brokers(self, instance: Instance) -> Sample:
        cluster = self.clusters.get(self.cluster_of.get(instance.pk, ""))
        if cluster is None:
            return UNKNOWN
        broker_ids = {int(number) for number in instance.endpoints}
        return Sample(value=sum(broker.broker_id in broker_ids for broker in cluster.silent))


def read(rules: Sequence[AlertRule], now: datetime) -> Figures:
    """Reads all figures that these rules need."""
    now_ms = int(now.timestamp() * MS_PER_S)
    instance_ids_by_kind = {kind: {rule.instance_id or "" for rule in rules if rule.kind == kind} for kind in AlertKind}
    instances = Instance.objects.in_bulk({rule.instance_id for rule in rules if rule.instance_id})
    placed_instances = set().union(*(instance_ids_by_kind[kind] for kind in TENANTS_CLUSTER_KINDS))
    cluster_of = dict(
        Placement.objects.filter(instance_id__in=placed_instances).values_list("instance_id", "cluster_id")
    )
    throttled = instance_ids_by_kind[AlertKind.THROTTLED_SHARE] & cluster_of.keys()
    delays_known = _read_delays_known({cluster_of[instance_id] for instance_id in throttled}, now)
    windows = {
        (rule.instance_id or "", rule.window_minutes or WINDOW_MINUTES)
        for rule in rules
        if rule.kind == AlertKind.THROTTLED_SHARE and rule.instance_id in cluster_of
    }
    ends = {instance_id: delays_known.get(cluster_of[instance_id], now) for instance_id, _minutes in windows}
    cluster_ids = {rule.cluster_id for rule in rules if rule.cluster_id}
    cluster_ids |= {
        cluster_of[instance_id] for instance_id in instance_ids_by_kind[AlertKind.BROKERS_SILENT] & cluster_of.keys()
    }
    return Figures(
        instances=instances,
        cluster_of=cluster_of,
        used_bytes=_used_bytes(instance_ids_by_kind[AlertKind.STORAGE_USED], now_ms),
        lags=_lags(instance_ids_by_kind[AlertKind.CONSUMER_LAG], now_ms),
        delayed_minutes=_count_delayed_minutes(windows, ends),
        delays_known=delays_known,
        clusters=_clusters(cluster_ids, now),
    )


def _used_bytes(instance_ids: set[str], now_ms: int) -> dict[str, int]:
    oldest_ms = now_ms - int(STORAGE_KNOWN_FOR.total_seconds()) * MS_PER_S
    samples = storage_history.latest_samples(instance_ids) if instance_ids else {}
    return {instance_id: used for instance_id, (at_ms, used) in samples.items() if at_ms >= oldest_ms}


def _lags(instance_ids: set[str], now_ms: int) -> dict[str, dict[str, LatestLags]]:
    return lag_history.latest_lags_by_instance(instance_ids, now_ms) if instance_ids else {}


def _read_delays_known(cluster_ids: set[str], now: datetime) -> dict[str, datetime]:
    known_until_by_cluster = delays.complete_until_by_cluster(cluster_ids) if cluster_ids else {}
    return {
        cluster_id: sampled_at
        for cluster_id, sampled_at in known_until_by_cluster.items()
        if now - sampled_at <= DELAYS_KNOWN_FOR
    }


def _count_delayed_minutes(windows: set[tuple[str, int]], ends: Mapping[str, datetime]) -> dict[tuple[str, int], int]:
    """Returns the number of delayed minutes in each window of whole minutes."""
    if not windows:
        return {}
    sorted_windows = sorted(windows)
    instance_ids = [instance_id for instance_id, _minutes in sorted_windows]
    window_ends = [ends[instance_id].replace(second=0, microsecond=0) for instance_id in instance_ids]
    with connection.cursor() as cursor:
        cursor.execute(_DELAYED, (instance_ids, [minutes for _id, minutes in sorted_windows], window_ends))
        counts = {(instance_id, minutes): count for instance_id, minutes, count in cursor.fetchall()}
    return {window: counts.get(window, 0) for window in sorted_windows}


def _clusters(cluster_ids: set[str], now: datetime) -> dict[str, ClusterMap]:
    """Returns the clusters with a recent sample."""
    clusters = Cluster.objects.in_bulk(cluster_ids) if cluster_ids else {}
    result = {}
    for cluster_id, (sampled_at, answers) in (
        cluster_overview.cached_images(clusters.values()).items() if clusters else ()
    ):
        if now - sampled_at <= CLUSTER_KNOWN_FOR:
            rows = list(Broker.objects.filter(cluster_id=cluster_id, removed_at=None).select_related("host"))
            result[cluster_id] = cluster_overview.build_map(clusters[cluster_id], rows, answers)
    return result
