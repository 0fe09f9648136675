"""The health of brokers: their reports, stored with their rows, and the state shown to operators."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.utils.translation import gettext as _

from brokers.choices import Health, ProcessState, WantedState
from brokers.limits import BROKER_LATE_S
from brokers.models import Broker, Cluster
from brokers.monitoring import observe as admin_ports
from brokers.native.notes import Build
from tenants.containment import contained


def store_statuses(now: datetime) -> int:
    """Queries `/v1/status` of every broker, and stores the answers; returns their number."""
    observed_count = 0
    for cluster in Cluster.objects.active().order_by("pk"):
        with contained("health.cluster_failed", cluster_id=cluster.pk):
            answers = admin_ports.query_all(admin_ports.targets_of_cluster(cluster), "/v1/status")
            for number, body in answers.bodies.items():
                with contained("health.broker_failed", cluster_id=cluster.pk, broker_id=number):
                    Broker.objects.filter(cluster=cluster, number=number).update(observed=dict(body), observed_at=now)
                    observed_count += 1
    return observed_count


def health(broker: Broker, now: datetime) -> Health:
    """Returns the health of a broker from its configured state, the agent's view and its last answer."""
    if broker.wanted == WantedState.STOPPED:
        return Health.STOPPED
    if broker.process_state in (ProcessState.BACKING_OFF, ProcessState.STOPPED):
        return Health.DOWN
    is_fresh = broker.observed_at is not None and now - broker.observed_at <= timedelta(seconds=BROKER_LATE_S)
    if is_fresh and upstream_lost_at(broker) is not None:
        return Health.UPSTREAM_LOST
    if is_fresh:
        return Health.DISK_OFFLINE if offline_directories(broker) else Health.HEALTHY
    if broker.process_state == ProcessState.STARTING:
        return Health.STARTING
    return Health.LATE if broker.process_state == ProcessState.RUNNING else Health.DOWN


def upstream_lost_at(broker: Broker) -> datetime | None:
    """Returns the time since when the upstream broker of a gateway does not answer; None if it does."""
    since_ms = (broker.observed or {}).get("upstream_lost_since_ms")
    return None if since_ms is None else datetime.fromtimestamp(since_ms / 1000, UTC)


def offline_directories(broker: Broker) -> dict[str, str]:
    """Returns the log directories that the broker has taken offline, with the reason of each."""
    directories = (broker.observed or {}).get("log_directories", ())
    return {
        str(directory["path"]): str(directory["offline_reason"])
        for directory in directories
        if directory.get("offline_reason")
    }


def modules_of(broker: Broker) -> str:
    """Returns the localized kind of the broker's modules, compiled or plain, with the state of a build; an empty text
    before the broker has answered.
    """
    status = broker.observed or {}
    if "compiled" not in status:
        return ""
    if status["compiled"]:
        return _("compiled")
    build = status.get("build") or {}
    match build.get("build"):
        case Build.PENDING | Build.RUNNING:
            return _("plain, being compiled")
        case Build.COMPLETE:
            return _("plain, compiled from its next start")
        case Build.SWITCHED_OFF | Build.IMPOSSIBLE | Build.FAILED:
            return _("plain: %(reason)s") % {"reason": build.get("reason", "")}
    return _("plain")
