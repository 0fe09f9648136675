"""Restarts brokers that run Python modules after compiled ones were built (decision 86).

Brokers report which modules they run, and the build on their host. The restart is an ordinary rolling restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from brokers.choices import WantedState
from brokers.limits import BROKER_LATE_S
from brokers.models import Broker, Cluster, RollingRestart
from brokers.native.notes import Build
from brokers.operations import rolling_restart
from tenants.actors import system_actor
from tenants.containment import contained
from tenants.errors import Conflict

log = structlog.get_logger(__name__)

ACTOR = "compiled modules"


def complete_since_ms(status: Mapping[str, Any]) -> int | None:
    """Returns the time since when a restart would load compiled modules; None if a restart changes nothing. Pure.

    A broker that was started after the build, and still runs Python modules, would do so again.
    """
    if status.get("compiled") is not False:
        return None
    build = status.get("build") or {}
    since_ms = int(build.get("since_ms", 0))
    if build.get("build") != Build.COMPLETE or since_ms <= int(status.get("started_at_ms", 0)):
        return None
    return since_ms


def brokers_to_restart(statuses: Iterable[tuple[int, Mapping[str, Any]]]) -> tuple[list[int], int]:
    """Returns the brokers to restart, and the time of the last of their builds. Pure."""
    since_ms_by_number = {
        number: since_ms for number, status in statuses if (since_ms := complete_since_ms(status)) is not None
    }
    return sorted(since_ms_by_number), max(since_ms_by_number.values(), default=0)


def start_due_restarts(now: datetime) -> int:
    """Begins a rolling restart in each cluster where one is due, once per build regardless of its outcome; returns
    their number.
    """
    started = 0
    for cluster in Cluster.objects.active().order_by("pk"):
        with contained("uptake.cluster_failed", cluster_id=cluster.pk):
            started += _start_if_due(cluster, now)
    return started


def _start_if_due(cluster: Cluster, now: datetime) -> bool:
    """Starts a rolling restart of the brokers that need it; True if one was started."""
    running_brokers = Broker.objects.filter(
        cluster=cluster, removed_at=None, wanted=WantedState.RUNNING,
        observed_at__gte=now - timedelta(seconds=BROKER_LATE_S),
    )  # fmt: skip
    numbers, since_ms = brokers_to_restart((row.number, row.observed or {}) for row in running_brokers)
    since = datetime.fromtimestamp(since_ms / 1_000, UTC)
    if not numbers or RollingRestart.objects.filter(cluster=cluster, asked_by=ACTOR, created_at__gte=since).exists():
        return False
    try:
        rolling_restart.start(acting=system_actor(ACTOR), cluster=cluster, only=frozenset(numbers))
    except Conflict as refusal:
        log.info("uptake.postponed", cluster_id=cluster.pk, reason=refusal.detail)
        return False
    return True
