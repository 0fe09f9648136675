"""Periodic sampling of the used bytes of instances, for storage forecasts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from brokers.models import Cluster
from brokers.monitoring import observe
from instances.metrics import storage_history
from tenants.containment import contained


def sample_all(now_ms: int) -> int:
    """Queries every cluster once; returns the number of sampled instances."""
    sampled = 0
    for cluster in Cluster.objects.active().order_by("pk"):
        with contained("storage.cluster_failed", cluster_id=cluster.pk):
            answers = observe.query_all(observe.targets_of_cluster(cluster), "/v1/storage")
            sampled += storage_history.record_samples(used_bytes_by_instance(answers.bodies.values()), now_ms)
    return sampled


def used_bytes_by_instance(bodies: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Returns the used bytes by instance, as reported by the controller; empty if no answer has them. Pure."""
    for body in bodies:
        if body.get("storage") is not None:
            return {str(instance_id): int(used) for instance_id, used in body["storage"]}
    return {}
