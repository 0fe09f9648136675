"""Runs operators' long-running work: rebalances, rolling restarts, and clusters that are formed or retired."""

from __future__ import annotations

import structlog

from brokers.choices import FleetOperationType, RestartState
from brokers.infra import zookeeper
from brokers.infra.locks import Busy, exclusive_lock
from brokers.limits import FLEET_OPERATIONS_PER_ROUND_MAX
from brokers.models import UNDER_WAY, FleetOperation, Rebalance, RollingRestart
from brokers.operations import fleet_operations, forming, retiring, rolling_restart
from brokers.rebalancing import executor
from tenants.containment import contained
from tenants.errors import DomainError

log = structlog.get_logger(__name__)

EXTERNAL_ERRORS = (DomainError, *zookeeper.ERRORS)


def reconcile_once(*, measure: bool = True) -> int:
    """Runs one round over the rebalances in progress and the running rolling restarts; returns their number. With
    `measure`, brokers are also queried for the progress of copies.
    """
    rebalances = Rebalance.objects.filter(state__in=UNDER_WAY).select_related("cluster", "broker").order_by("pk")
    restarts = RollingRestart.objects.filter(state=RestartState.RUNNING).select_related("cluster").order_by("pk")
    rows: list[Rebalance | RollingRestart] = [*rebalances, *restarts]
    for row in rows:
        with contained("work.failed", work_id=row.pk, cluster_id=row.cluster_id):
            _run_locked(row, measure=measure)
    return len(rows)


def _run_locked(row: Rebalance | RollingRestart, *, measure: bool) -> None:
    try:
        with exclusive_lock(row.pk):
            row.refresh_from_db()  # another holder of the lock may have continued it meanwhile
            if row.is_under_way:
                _reconcile(row, measure=measure)
    except Busy:
        return
    except EXTERNAL_ERRORS as error:
        detail = error.detail if isinstance(error, DomainError) else "ZooKeeper does not answer."
        log.warning("work.postponed", work_id=row.pk, reason=detail)
        type(row)._default_manager.filter(pk=row.pk).update(trouble=detail)


def _reconcile(row: Rebalance | RollingRestart, *, measure: bool) -> None:
    if isinstance(row, Rebalance):
        executor.reconcile_once(row, measure=measure)
    else:
        rolling_restart.reconcile_once(row)


def reconcile_clusters() -> int:
    """Runs one round over every cluster that is being formed or retired; returns their number."""
    operations = FleetOperation.objects.filter(state__in=fleet_operations.OPEN_STATES).select_related("cluster")
    rows = list(operations.order_by("created_at", "pk")[:FLEET_OPERATIONS_PER_ROUND_MAX])
    for row in rows:
        with contained("work.failed", work_id=row.pk, cluster_id=row.cluster_id):
            _reconcile_cluster(row)
    return len(rows)


def _reconcile_cluster(row: FleetOperation) -> None:
    try:
        with exclusive_lock(row.pk):
            row.refresh_from_db()
            if row.is_open:
                work = forming if row.type == FleetOperationType.FORM else retiring
                work.reconcile_once(row)
    except Busy:
        return
    except EXTERNAL_ERRORS as error:
        detail = error.detail if isinstance(error, DomainError) else "ZooKeeper does not answer."
        log.warning("work.postponed", work_id=row.pk, reason=detail)
        fleet_operations.record_failure_reason(row, detail)
