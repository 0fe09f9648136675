"""Periodic check of all clusters: updates the conditions of instances, and grows the storage of those that may grow.

Conditions are: brokers do not answer, partitions have no leader, storage runs out, and retention is shortened.

One run queries every broker of a cluster for its counts, and one of them for the partitions without a leader, if there
are any. Restarts are not reported: a broker must have been unresponsive for a while and must not be restarting, and an
instance must have partitions without a leader in two runs in a row.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from django.core.cache import cache as shared_cache
from django.db.models import Q
from redis import RedisError

from brokers.choices import ProcessState
from brokers.limits import (
    LEADERLESS_LISTED_MAX,
    LEADERLESS_PAGE,
    OBSERVE_EVERY_S,
    RESTART_LASTS_S,
    SILENCE_REPORTED_AFTER_S,
    WATCH_EVERY_S,
)
from brokers.models import Broker, Cluster, Placement
from brokers.monitoring import cluster_overview
from instances import services
from instances.choices import ConditionType
from instances.lifecycle.conditions import (
    PARTITIONS_NAMED_MAX,
    LeaderlessPartitions,
    Observation,
    ShortenedRetention,
    StorageUsed,
)
from instances.lifecycle.phases import REACHABLE
from instances.models import Instance
from tenants.alert_state import FACT_TERMS, Sample, advance, pending_alert
from tenants.containment import contained
from tenants.errors import Unavailable

logger = logging.getLogger(__name__)

RUNS_CACHED = 3
TRUE = Sample(value=1)


def check_clusters(now: datetime) -> int:
    """Checks every cluster; returns the number of instances whose conditions changed.

    A cluster or an instance that cannot be checked is logged, and does not prevent the checks of others.
    """
    changed = 0
    for cluster in Cluster.objects.active().order_by("pk"):
        with contained("watch.cluster_failed", cluster_id=cluster.pk):
            changed += _check_cluster(cluster, now)
    return changed


def _check_cluster(cluster: Cluster, now: datetime) -> int:
    cluster_map = cluster_overview.cluster_map(cluster)
    silent = _brokers_to_report(cluster, cluster_map, now)
    leaderless = _leaderless_in_two_runs(cluster, _query_leaderless_partitions(cluster, cluster_map), now)
    changed = 0
    ids_filling_up = {*(cluster_map.storage or {}), *cluster_map.shortened}
    for instance in _instances_to_check(
        cluster, has_no_problem=not silent and not leaderless, ids_filling_up=ids_filling_up
    ):
        with contained("watch.instance_failed", instance_id=instance.pk):
            own_leaderless = None if leaderless is None else leaderless.get(instance.pk, LeaderlessPartitions())
            storage_used = None if cluster_map.storage is None else cluster_map.storage.get(instance.pk, StorageUsed())
            shortened = cluster_map.shortened.get(instance.pk) or (None if cluster_map.silent else ShortenedRetention())
            observation = Observation(
                silent=frozenset(silent), leaderless=own_leaderless, storage=storage_used, shortened=shortened, at=now
            )
            conditions = services.observed_conditions(instance, observation)
            if conditions != instance.conditions:  # an outage may last for hours: rows are locked for changes only
                changed += services.record_health(instance.pk, observation)
    if cluster_map.storage is not None:
        _grow_storage(cluster, cluster_map.storage, now)
    return changed


def _grow_storage(cluster: Cluster, storage: Mapping[str, StorageUsed], now: datetime) -> None:
    """Grows the storage of nearly full instances that may grow, and retries instances whose last growth failed."""
    rows = Placement.objects.filter(cluster=cluster).filter(
        Q(instance_id__in=list(storage), instance__settings__storage_grow_step_gb__gte=1)
        | _has_false_condition(ConditionType.STORAGE_GROWS)
    )
    for instance_id in rows.order_by("instance_id").values_list("instance_id", flat=True):
        with contained("watch.growth_failed", instance_id=instance_id):
            services.grow_storage(instance_id, storage.get(instance_id, StorageUsed()).used_bytes, now)


def _brokers_to_report(cluster: Cluster, cluster_map: cluster_overview.ClusterMap, now: datetime) -> set[int]:
    """Returns the numbers of brokers that are reported as unresponsive."""
    unresponsive = {broker.broker_id for broker in cluster_map.silent}
    last_answers = _update_last_answers(
        cluster, [broker.number for broker in cluster_map.brokers if broker.number not in unresponsive], now
    )
    result = set()
    for broker in cluster_map.brokers:
        last_answer_at = last_answers.get(broker.number)
        if last_answer_at is None and broker.row.observed_at is not None:
            # The broker was queried by another task, which was about to query again.
            last_answer_at = broker.row.observed_at + timedelta(seconds=OBSERVE_EVERY_S)
        if broker.number in unresponsive and is_reported_silent(broker.row, last_answer_at, now):
            result.add(broker.number)
    return result


def is_reported_silent(row: Broker, last_answer_at: datetime | None, now: datetime) -> bool:
    """Returns True if a broker that does not answer has been unresponsive for too long to be merely slow or restarting.
    `last_answer_at` is the time of its last answer, None if it never answered. Pure.

    A broker that has never answered is still being created: nothing depends on it yet.
    """
    if last_answer_at is None:
        return False
    is_restart_requested = row.restart_generation != row.process_restart_generation
    is_changing = row.process_state in (ProcessState.STARTING, ProcessState.STOPPING)
    is_new = row.process_since is not None and now - row.process_since < timedelta(seconds=RESTART_LASTS_S)
    is_restarting = is_restart_requested or is_changing or (is_new and row.process_state == ProcessState.RUNNING)
    reported_after_s = max(RESTART_LASTS_S, SILENCE_REPORTED_AFTER_S) if is_restarting else SILENCE_REPORTED_AFTER_S
    return advance(
        pending_alert(last_answer_at), replace(FACT_TERMS, fires_after=timedelta(seconds=reported_after_s)), TRUE, now
    ).fires


def _update_last_answers(cluster: Cluster, answering_numbers: Collection[int], now: datetime) -> dict[int, datetime]:
    """Caches `now` for the brokers that answered, and returns the time of each broker's last answer.

    Returns nothing if the shared cache fails.
    """
    key = f"watch:{cluster.pk}:answered"
    try:
        result: dict[int, datetime] = {**(shared_cache.get(key) or {}), **dict.fromkeys(answering_numbers, now)}
        shared_cache.set(key, result, RUNS_CACHED * RESTART_LASTS_S)
    except (RedisError, OSError) as error:
        logger.warning("the cache does not answer: %s", type(error).__name__)
        return {}
    return result


def _query_leaderless_partitions(
    cluster: Cluster, cluster_map: cluster_overview.ClusterMap
) -> dict[str, LeaderlessPartitions] | None:
    """Returns the leaderless partitions by instance; None if no broker has an image of the cluster."""
    if not cluster_map.is_known:
        return None
    result: dict[str, list[str]] = {}
    after = ""
    for _page in range(LEADERLESS_LISTED_MAX // LEADERLESS_PAGE if cluster_map.counts["offline"] else 0):
        try:
            partitions, after = cluster_overview.partition_page(
                cluster, state="offline", after=after, limit=LEADERLESS_PAGE
            )
        except Unavailable:
            return None
        for partition in partitions:
            if partition["instance_id"]:
                result.setdefault(partition["instance_id"], []).append(
                    f"{partition['user_name']}/{partition['partition']}"
                )
        if not after:
            break
    return {
        instance_id: LeaderlessPartitions(count=len(names), names=tuple(names[:PARTITIONS_NAMED_MAX]))
        for instance_id, names in result.items()
    }


def _leaderless_in_two_runs(
    cluster: Cluster, leaderless_now: dict[str, LeaderlessPartitions] | None, now: datetime
) -> dict[str, LeaderlessPartitions] | None:
    """Returns those of `leaderless_now` that had leaderless partitions in the previous run, too.

    Returns all of them if the shared cache fails.
    """
    if leaderless_now is None:
        return None
    key = f"watch:{cluster.pk}:leaderless_since"
    try:
        previous_since: Mapping[str, datetime] = shared_cache.get(key) or {}
        since = {instance_id: previous_since.get(instance_id, now) for instance_id in leaderless_now}
        shared_cache.set(key, since, RUNS_CACHED * WATCH_EVERY_S)
    except (RedisError, OSError) as error:
        logger.warning("the cache does not answer: %s", type(error).__name__)
        return leaderless_now
    return {
        instance_id: instance_leaderless
        for instance_id, instance_leaderless in leaderless_now.items()
        if advance(pending_alert(since[instance_id]), FACT_TERMS, TRUE, now).fires
    }


def _instances_to_check(cluster: Cluster, *, has_no_problem: bool, ids_filling_up: Collection[str]) -> list[Instance]:
    """Returns all running instances of the cluster while there is a problem, otherwise those with an open condition or
    whose storage may run out.
    """
    rows = Placement.objects.filter(cluster=cluster, instance__phase__in=[phase.value for phase in REACHABLE])
    if has_no_problem:
        rows = rows.filter(
            _has_false_condition(ConditionType.BROKERS_ANSWER)
            | _has_false_condition(ConditionType.PARTITIONS_LED)
            | _has_false_condition(ConditionType.STORAGE_AVAILABLE)
            | _has_false_condition(ConditionType.RETENTION_KEPT)
            | Q(instance_id__in=list(ids_filling_up))
        )
    return [row.instance for row in rows.select_related("instance").order_by("instance_id")]


def _has_false_condition(kind: ConditionType) -> Q:
    condition: Mapping[str, object] = {"type": kind.value, "status": False}
    return Q(instance__conditions__contains=[condition])
