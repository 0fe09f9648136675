"""Has brokers that run plain modules take up compiled ones that were made behind their start (decision 86).

Brokers say themselves what they run and what there is on their host. The restart is the operators' rolling restart.
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
from tenants.errors import Conflict

log = structlog.get_logger(__name__)

ACTOR = "compiled modules"


def complete_since_ms(status: Mapping[str, Any]) -> int | None:
    """Since when there are compiled modules that a start would take up; None when a restart gains nothing. Pure.

    A broker that was started with them in place, and runs plain all the same, would do so again.
    """
    if status.get("compiled") is not False:
        return None
    build = status.get("build") or {}
    since_ms = int(build.get("since_ms", 0))
    if build.get("build") != Build.COMPLETE or since_ms <= int(status.get("started_at_ms", 0)):
        return None
    return since_ms


def due(statuses: Iterable[tuple[int, Mapping[str, Any]]]) -> tuple[list[int], int]:
    """The brokers to restart, and when the last of their builds was complete. Pure."""
    result = {number: since for number, status in statuses if (since := complete_since_ms(status)) is not None}
    return sorted(result), max(result.values(), default=0)


def take_up(now: datetime) -> int:
    """Begin a rolling restart in each cluster where one is due: one for a build, whatever becomes of it. How many."""
    begun = 0
    for cluster in Cluster.objects.active().order_by("pk"):
        rows = Broker.objects.filter(
            cluster=cluster, removed_at=None, wanted=WantedState.RUNNING,
            observed_at__gte=now - timedelta(seconds=BROKER_LATE_S),
        )  # fmt: skip
        numbers, since_ms = due((row.number, row.observed or {}) for row in rows)
        since = datetime.fromtimestamp(since_ms / 1_000, UTC)
        if (
            not numbers
            or RollingRestart.objects.filter(cluster=cluster, asked_by=ACTOR, created_at__gte=since).exists()
        ):
            continue
        try:
            rolling_restart.start(acting=system_actor(ACTOR), cluster=cluster, only=frozenset(numbers))
        except Conflict as refusal:
            log.info("uptake.not_yet", cluster_id=cluster.pk, reason=refusal.detail)
            continue
        begun += 1
    return begun
