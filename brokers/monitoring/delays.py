"""Storage of throttle delays: copied from brokers, which retain them for 15 minutes, to rows retained for a month."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.core.cache import cache

from brokers.choices import WantedState
from brokers.models import Broker, Cluster
from brokers.monitoring import observe
from instances import services
from tenants.containment import contained

# Lifetime of the cached time up to which the delays of a cluster are complete.
COMPLETE_UNTIL_KEPT_S = 600


def store_delays(now: datetime) -> int:
    """Queries every broker once; returns the number of stored minutes. Expired rows are deleted."""
    stored = 0
    for cluster in Cluster.objects.active().order_by("pk"):
        with contained("delays.cluster_failed", cluster_id=cluster.pk):
            answers = observe.query_all(observe.targets_of_cluster(cluster), "/v1/delays")
            stored += services.store_delays(longest_delays(answers.bodies.values()))
            if not _is_incomplete(cluster, answers):
                cache.set(_complete_until_key(cluster.pk), now, COMPLETE_UNTIL_KEPT_S)
    services.delete_old_delays(now)
    services.delete_old_throttled_minutes(now)
    return stored


def complete_until_by_cluster(cluster_ids: Iterable[str]) -> dict[str, datetime]:
    """Returns the time up to which the delays of each cluster are complete; a cluster is absent if its last complete
    query is too old.
    """
    keys = {_complete_until_key(cluster_id): cluster_id for cluster_id in cluster_ids}
    return {keys[key]: complete_until for key, complete_until in cache.get_many(list(keys)).items()}


def _is_incomplete(cluster: Cluster, answers: observe.BrokerAnswers) -> bool:
    """True if a broker that should run did not answer."""
    rows = Broker.objects.filter(cluster=cluster, removed_at=None).exclude(wanted=WantedState.STOPPED)
    return not answers.bodies.keys() >= set(rows.values_list("number", flat=True))


def _complete_until_key(cluster_id: str) -> str:
    return f"delays:{cluster_id}:known"


def longest_delays(bodies: Iterable[Mapping[str, Any]]) -> dict[str, dict[int, int]]:
    """Returns the longest delay in ms on any broker, by instance id and minute (ms since 1970). Pure."""
    result: dict[str, dict[int, int]] = {}
    for body in bodies:
        for instance_id, minutes in body["instances"].items():
            instance_minutes = result.setdefault(instance_id, {})
            for at_ms, delay_ms in minutes:
                instance_minutes[int(at_ms)] = max(int(delay_ms), instance_minutes.get(int(at_ms), 0))
    return result
