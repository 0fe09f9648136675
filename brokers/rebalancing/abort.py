"""Abandons a rebalance: cancels running moves; completed moves stay, and instances keep their ports.

Operators abandon a rebalance that cannot end because it waits for a broker that will not come back. Like
`brokers.rebalancing.executor`, each run works from the current state alone.
"""

from __future__ import annotations

import structlog
from django.utils import timezone

from brokers.choices import ReassignmentState, RebalanceState
from brokers.dataplane.cluster import ClusterAdminClient, OngoingReassignment
from brokers.models import PartitionReassignment, Rebalance
from brokers.placement import instance_placement
from brokers.rebalancing import throttle
from tenants import audit
from tenants.actors import system_actor

log = structlog.get_logger(__name__)

ACTOR = "rebalancer"


def reconcile_once(row: Rebalance, admin_client: ClusterAdminClient) -> None:
    """Performs the next steps. Raises `DomainError` if no broker answers."""
    if not _cancel_moves(row, admin_client):
        return
    throttle.lift(row)
    if not instance_placement.cancel_leaving(row.cluster, [placement["owner"] for placement in row.placements]):
        return
    fields = {"state": RebalanceState.ABANDONED, "trouble": "", "ended_at": timezone.now()}
    if not Rebalance.objects.filter(pk=row.pk, state=row.state).update(**fields):
        return
    row.state = RebalanceState.ABANDONED
    unfinished = row.moves.filter(state__in=(ReassignmentState.WAITING, ReassignmentState.RUNNING))
    left_count = unfinished.update(state=ReassignmentState.LEFT, ended_at=timezone.now())
    audit.record(system_actor(ACTOR), "rebalance.ended", row, None, {"state": row.state.value, "left": left_count})
    log.info("rebalance.ended", rebalance_id=row.pk, state=row.state.value)


def _cancel_moves(row: Rebalance, admin_client: ClusterAdminClient) -> bool:
    """Requests the cancellation of running moves. True if no move is left that can be cancelled.

    A move cannot be cancelled while only its arriving replica is complete.
    """
    running = {
        (reassignment.topic, reassignment.partition): reassignment
        for reassignment in row.moves.filter(state=ReassignmentState.RUNNING)
    }
    ongoing = admin_client.reassignments()
    to_cancel = {
        key: _original_replicas(reassignment, ongoing[key])
        for key, reassignment in sorted(running.items())
        if key in ongoing
    }
    refused = admin_client.reassign(to_cancel)
    for key, reason in refused.items():
        if running[key].note != reason:
            running[key].note = reason
            running[key].save(update_fields=["note"])
    return to_cancel.keys() == refused.keys()


def _original_replicas(reassignment: PartitionReassignment, ongoing: OngoingReassignment) -> tuple[int, ...] | None:
    """Returns the replicas before the running move, with the preferred leader first; None if neither list of the plan
    has these replicas: then the brokers cancel the move in their own order.
    """
    for replicas in (reassignment.before, reassignment.target):
        if set(replicas) == set(ongoing.original_replicas):
            return tuple(replicas)
    return None
