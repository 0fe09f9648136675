"""Carries the delays that brokers keep for a quarter of an hour to where they are kept for a month."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from brokers.models import Cluster
from brokers.monitoring import observe
from instances import services


def keep(now: datetime) -> int:
    """Ask every broker once; returns how many minutes were kept. What is too old is deleted."""
    kept = 0
    for cluster in Cluster.objects.order_by("pk"):
        answers = observe.ask_all(observe.targets_of_cluster(cluster), "/v1/delays")
        kept += services.keep_delays(merged(answers.bodies.values()))
    services.forget_delays(now)
    services.forget_throttled_minutes(now)
    return kept


def merged(bodies: Iterable[Mapping[str, Any]]) -> dict[str, dict[int, int]]:
    """The longest delay of all brokers, by instance and minute. Pure."""
    result: dict[str, dict[int, int]] = {}
    for body in bodies:
        for instance_id, minutes in body["instances"].items():
            known = result.setdefault(instance_id, {})
            for at_ms, delay_ms in minutes:
                known[int(at_ms)] = max(int(delay_ms), known.get(int(at_ms), 0))
    return result
