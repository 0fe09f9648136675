"""Services for operators: planning, starting, pausing, undoing and abandoning moves of replicas, which
`brokers.rebalancing.executor` executes.
"""

from __future__ import annotations

from dataclasses import asdict, replace

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from brokers import services
from brokers.choices import ReassignmentState, RebalanceKind, RebalanceState, RebalanceStep, WantedState
from brokers.dataplane.cluster import ClusterAdminClient
from brokers.limits import COPY_MB_S_MAX, MOVES_PER_BROKER, MOVES_PER_PLAN_MAX
from brokers.models import Broker, Cluster, PartitionReassignment, Rebalance, RollingRestart
from brokers.operations import kafka_clusters
from brokers.placement import capacity
from brokers.rebalancing import lost_broker, snapshot
from brokers.rebalancing.data_loss import data_loss_plan
from brokers.rebalancing.model import Fleet, RebalancePlan, shares
from brokers.rebalancing.planner import balance_plan, drain_plan
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, FieldError, Invalid, Message

OBSTACLES_SHOWN_MAX = 20
UNDOABLE = (RebalanceState.RUNNING, RebalanceState.PAUSED, RebalanceState.DONE)
# Partitions cannot be moved back to a broker that has been asked to stop.
POINTS_OF_NO_RETURN = (RebalanceStep.STOPPING, RebalanceStep.RELEASING)


@transaction.atomic
def plan_drain(
    *,
    acting: Actor,
    broker: Broker,
    removes: bool = False,
    moves_at_once: int = MOVES_PER_BROKER,
    copy_mb_s: int | None = None,
) -> Rebalance:
    """Plans the emptying of a broker; nothing moves before `start`.

    Raises `Conflict` with the items that have no possible target, or if the other brokers would be oversold, and
    `Unavailable` if no broker answers.
    """
    access.require(acting, Scope.OPERATOR)
    kafka_clusters.require_penstock(broker.cluster)
    if broker.removed_at is not None:
        raise Conflict("The broker is removed.")
    fleet = snapshot.take_snapshot(broker.cluster, ClusterAdminClient(broker.cluster))
    plan = drain_plan(fleet, broker.number)
    if not plan.obstacles:
        capacity.require_capacity(broker.cluster, [asdict(change) for change in plan.placement_changes])
    return _save_plan(
        acting,
        Rebalance(
            cluster=broker.cluster,
            kind=RebalanceKind.DRAIN,
            broker=broker,
            removes=removes,
            moves_at_once=moves_at_once,
            copy_mb_s=copy_mb_s,
            planned_by=acting.label,
        ),
        fleet,
        plan,
    )


@transaction.atomic
def plan_loss(
    *, acting: Actor, broker: Broker, moves_at_once: int = MOVES_PER_BROKER, copy_mb_s: int | None = None
) -> Rebalance:
    """Plans the removal of a permanently lost broker, with the data that is lost; nothing happens before `start`.

    Raises `Conflict` (`broker_serves`) for a broker that serves or may do so again without intervention, and as
    `plan_drain` does.
    """
    access.require(acting, Scope.OPERATOR)
    kafka_clusters.require_penstock(broker.cluster)
    if broker.removed_at is not None:
        raise Conflict("The broker is removed.")
    admin_client = ClusterAdminClient(broker.cluster)
    lost_broker.require_lost(broker, admin_client.view(()))
    fleet = snapshot.take_snapshot(broker.cluster, admin_client)
    plan = data_loss_plan(fleet, broker.number, lost_broker.given_up_broker_numbers(broker.cluster) | {broker.number})
    return _save_plan(
        acting,
        Rebalance(
            cluster=broker.cluster,
            kind=RebalanceKind.LOSS,
            broker=broker,
            removes=True,
            moves_at_once=moves_at_once,
            copy_mb_s=copy_mb_s,
            planned_by=acting.label,
        ),
        fleet,
        plan,
    )


@transaction.atomic
def plan_balance(
    *, acting: Actor, cluster: Cluster, moves_at_once: int = MOVES_PER_BROKER, copy_mb_s: int | None = None
) -> Rebalance:
    """Plans the balancing of all brokers; nothing moves before `start`.

    Raises `Conflict` if the brokers are balanced (`balanced`), or no broker can sell its new share (`no_room`).
    """
    access.require(acting, Scope.OPERATOR)
    kafka_clusters.require_penstock(cluster)
    fleet = snapshot.take_snapshot(cluster, ClusterAdminClient(cluster))
    plan = balance_plan(fleet, moves_max=MOVES_PER_PLAN_MAX)
    if not plan.moves and balance_plan(replace(fleet, sold={}), moves_max=MOVES_PER_PLAN_MAX).moves:
        raise Conflict("The emptier brokers have no room for what is sold on the others. Add a broker.", code="no_room")
    if not plan.moves:
        raise Conflict("The brokers are even: nothing to move.", code="balanced")
    row = Rebalance(
        cluster=cluster,
        kind=RebalanceKind.BALANCE,
        moves_at_once=moves_at_once,
        copy_mb_s=copy_mb_s,
        planned_by=acting.label,
    )
    return _save_plan(acting, row, fleet, plan)


def _save_plan(acting: Actor, row: Rebalance, fleet: Fleet, plan: RebalancePlan) -> Rebalance:
    if plan.obstacles:
        shown_obstacles = plan.obstacles[:OBSTACLES_SHOWN_MAX]
        raise Conflict(
            "There is no place for everything on that broker. Add a broker, or give topics fewer replicas.",
            code="no_place",
            errors=[
                FieldError(detail=obstacle.sentence, code="no_place", pointer="/broker_id")
                for obstacle in shown_obstacles
            ],
        )
    if len(plan.moves) > MOVES_PER_PLAN_MAX:
        raise Conflict(
            Message(gettext_noop("A plan has at most %(n)s moves."), n=MOVES_PER_PLAN_MAX), code="plan_too_large"
        )
    row.placements = [asdict(change) for change in plan.placement_changes]
    row.shares = {
        name: {str(broker): asdict(share) for broker, share in load.items()}
        for name, load in (
            ("before", shares(fleet.brokers, fleet.partitions)),
            ("after", shares(fleet.brokers, fleet.partitions, plan.moves)),
        )
    }
    row.save(force_insert=True)
    PartitionReassignment.objects.bulk_create(reassignments_of(row, plan))
    after = {"kind": row.kind, "moves": len(plan.moves), "bytes": plan.copied_bytes}
    audit.record(acting, "rebalance.planned", row, None, after | ({"broker": row.broker_id} if row.broker_id else {}))
    return row


def reassignments_of(row: Rebalance, plan: RebalancePlan, *, first: int = 0) -> list[PartitionReassignment]:
    """Returns the unsaved rows of a plan's moves."""
    return [
        PartitionReassignment(
            rebalance=row,
            position=position,
            topic=reassignment.topic,
            topic_id=reassignment.topic_id,
            partition=reassignment.index,
            before=list(reassignment.before),
            target=list(reassignment.target),
            copies=len(reassignment.adding),
            copies_back=len(reassignment.removing),
            loses=reassignment.loses,
            size_bytes=reassignment.size_bytes,
        )
        for position, reassignment in enumerate(plan.moves, first)
    ]


@transaction.atomic
def start(*, acting: Actor, rebalance: Rebalance, confirmed: int | None = None) -> Rebalance:
    """Starts the execution of a plan. One rebalance of a cluster at a time, and none during a rolling restart.

    The removal of a lost broker needs the broker's number as `confirmed`, because it cannot be undone: raises
    `Conflict` (`not_confirmed`) without it.
    """
    access.require(acting, Scope.OPERATOR)
    result = _lock_row(rebalance)
    _require_state(result, RebalanceState.PLANNED)
    _require_fresh(result)
    _require_no_rolling_restart(result.cluster)
    result.state, result.started_at = RebalanceState.RUNNING, timezone.now()
    if result.kind == RebalanceKind.DRAIN:
        capacity.require_capacity(result.cluster, result.placements)
    if result.kind == RebalanceKind.BALANCE:
        _require_unsold_capacity(result)
    if result.broker is not None:
        if result.kind == RebalanceKind.LOSS:
            _give_up(acting, result, result.broker, confirmed)
        Broker.objects.filter(pk=result.broker_id).update(accepts_instances=False)
    return _save_and_audit(acting, result, ["state", "started_at"], "rebalance.started")


def _give_up(acting: Actor, rebalance: Rebalance, broker: Broker, confirmed: int | None) -> None:
    """Gives up the broker: the agent of its host stops it if it returns, and the data named in the plan may be lost."""
    if confirmed != broker.number:
        raise Conflict(
            Message(gettext_noop("Confirm it with the number of the broker, %(id)s."), id=broker.number),
            code="not_confirmed",
        )
    view = ClusterAdminClient(rebalance.cluster).view({reassignment.topic for reassignment in rebalance.moves.all()})
    lost_broker.require_lost(broker, view)
    lost_broker.require_confirmed_losses(rebalance, view)
    services.set_wanted(acting=acting, broker=broker, wanted=WantedState.STOPPED)
    Broker.objects.filter(pk=broker.pk).update(given_up_at=rebalance.started_at)
    partition_losses: dict[str, list[str]] = {"some": [], "all": []}
    for reassignment in rebalance.moves.exclude(loses=""):
        partition_losses[reassignment.loses].append(str(reassignment))
    audit.record(acting, "broker.given_up", broker, None, {"number": broker.number, "lost": partition_losses})


@transaction.atomic
def pause(*, acting: Actor, rebalance: Rebalance) -> Rebalance:
    """Pauses: no further move begins; running moves are completed."""
    access.require(acting, Scope.OPERATOR)
    result = _lock_row(rebalance)
    _require_state(result, RebalanceState.RUNNING)
    result.state = RebalanceState.PAUSED
    return _save_and_audit(acting, result, ["state"], "rebalance.paused")


@transaction.atomic
def resume(*, acting: Actor, rebalance: Rebalance) -> Rebalance:
    """Continues a paused rebalance. Raises `Conflict` during a rolling restart of the cluster."""
    access.require(acting, Scope.OPERATOR)
    result = _lock_row(rebalance)
    _require_state(result, RebalanceState.PAUSED)
    _require_no_rolling_restart(result.cluster)
    result.state = RebalanceState.RUNNING
    return _save_and_audit(acting, result, ["state"], "rebalance.resumed")


@transaction.atomic
def undo(*, acting: Actor, rebalance: Rebalance) -> Rebalance:
    """Cancels running moves and moves back the completed ones. Refused once the broker has been asked to stop, and if
    the capacity that instances have left is sold to others meanwhile.
    """
    access.require(acting, Scope.OPERATOR)
    result = _lock_row(rebalance)
    _require_state(result, *UNDOABLE)
    if result.kind == RebalanceKind.LOSS:
        raise Conflict("A lost broker has nothing to move back to.", code="too_late")
    if result.removes and result.step in POINTS_OF_NO_RETURN:
        raise Conflict("The broker is being removed. Add it again instead.", code="too_late")
    if result.state == RebalanceState.DONE:
        later_rebalances = Rebalance.objects.filter(cluster=result.cluster, started_at__gt=result.started_at)
        if later_rebalances.exists():
            raise Conflict("A later rebalance builds on this one.", code="too_late")
    if result.state != RebalanceState.RUNNING:
        _require_no_rolling_restart(result.cluster)
    if result.step == RebalanceStep.LEAVING or result.state == RebalanceState.DONE:
        _require_room_to_return(result)
    if result.broker is not None:
        # Set now and not at the end: partitions created elsewhere meanwhile may have no other possible target.
        Broker.objects.filter(pk=result.broker_id).update(accepts_instances=True)
    result.state, result.step, result.ended_at, result.trouble = RebalanceState.UNDOING, RebalanceStep.HOMES, None, ""
    PartitionReassignment.objects.filter(rebalance=result, state=ReassignmentState.WAITING).update(
        state=ReassignmentState.UNDONE, ended_at=timezone.now()
    )
    return _save_and_audit(acting, result, ["state", "step", "ended_at", "trouble"], "rebalance.undone")


@transaction.atomic
def abandon(*, acting: Actor, rebalance: Rebalance) -> Rebalance:
    """Aborts the rebalance in either direction: running moves are cancelled, completed moves stay.

    Meant for a rebalance that waits for a broker that does not come back, and thereby blocks every other one.
    """
    access.require(acting, Scope.OPERATOR)
    result = _lock_row(rebalance)
    _require_state(result, RebalanceState.RUNNING, RebalanceState.PAUSED, RebalanceState.UNDOING)
    if result.broker is not None:
        Broker.objects.filter(pk=result.broker_id).update(accepts_instances=True)
    result.state, result.trouble = RebalanceState.ABANDONING, ""
    return _save_and_audit(acting, result, ["state", "trouble"], "rebalance.abandoned")


@transaction.atomic
def limit_copies(*, acting: Actor, rebalance: Rebalance, copy_mb_s: int | None) -> Rebalance:
    """Sets the bandwidth that each broker may use for its copies, None for no limit; also while it runs (QUO-60)."""
    access.require(acting, Scope.OPERATOR)
    result = _lock_row(rebalance)
    _require_state(
        result, RebalanceState.PLANNED, RebalanceState.RUNNING, RebalanceState.PAUSED, RebalanceState.UNDOING
    )
    if copy_mb_s is not None and not 1 <= copy_mb_s <= COPY_MB_S_MAX:
        raise Invalid.at(
            "/copy_mb_s",
            Message(gettext_noop("A whole number from 1 to %(most)s, or nothing."), most=f"{COPY_MB_S_MAX:,}"),
        )
    previous_mb_s = result.copy_mb_s
    if copy_mb_s != previous_mb_s:
        result.copy_mb_s = copy_mb_s
        result.save_changes(["copy_mb_s"])
        audit.record(acting, "rebalance.limited", result, {"copy_mb_s": previous_mb_s}, {"copy_mb_s": copy_mb_s})
    return result


@transaction.atomic
def discard(*, acting: Actor, rebalance: Rebalance) -> Rebalance:
    """Discards a plan that was never started."""
    access.require(acting, Scope.OPERATOR)
    result = _lock_row(rebalance)
    _require_state(result, RebalanceState.PLANNED)
    result.state, result.ended_at = RebalanceState.DISCARDED, timezone.now()
    return _save_and_audit(acting, result, ["state", "ended_at"], "rebalance.discarded")


def _lock_row(rebalance: Rebalance) -> Rebalance:
    rows = Rebalance.objects.select_for_update(of=("self",)).select_related("cluster", "broker")
    return rows.get(pk=rebalance.pk)


def _require_state(rebalance: Rebalance, *states: RebalanceState) -> None:
    if rebalance.state not in states:
        raise Conflict(Message(gettext_noop("The rebalance is %(state)s."), state=rebalance.state), code="wrong_state")


def _require_fresh(rebalance: Rebalance) -> None:
    """Raises `Conflict` if the replicas have changed since the plan was made."""
    moves = list(rebalance.moves.all())
    planned = {(reassignment.topic, reassignment.partition): tuple(reassignment.before) for reassignment in moves}
    view = ClusterAdminClient(rebalance.cluster).view({topic for topic, _ in planned})
    if any(key in view.partitions and view.partitions[key].replicas != before for key, before in planned.items()):
        raise Conflict("Replicas have moved since this was planned. Plan again.", code="stale_plan")
    receiving = {number for reassignment in moves for number in set(reassignment.target) - set(reassignment.before)}
    receiving |= {number for placement in rebalance.placements for number in placement["arriving"]}
    unavailable = sorted(receiving - snapshot.brokers_that_accept(rebalance.cluster, view))
    if unavailable:
        raise Conflict(
            Message(gettext_noop("Broker %(id)s takes no replicas any more. Plan again."), id=unavailable[0]),
            code="stale_plan",
        )


def _require_unsold_capacity(rebalance: Rebalance) -> None:
    """Raises `Conflict` if a balancing plan would oversell a broker because of sales since it was made."""
    try:
        capacity.require_capacity(rebalance.cluster, rebalance.placements)
    except Conflict as error:
        detail = "More is sold by now than when this was planned. Plan again."
        raise Conflict(detail, code="stale_plan", errors=error.errors) from None


def _require_room_to_return(rebalance: Rebalance) -> None:
    """Raises `Conflict` if undoing would oversell a broker because of sales since instances have left it."""
    # Locked as for a sale: of an undoing and a concurrent sale, one sees the other.
    Cluster.objects.select_for_update(no_key=True).get(pk=rebalance.cluster_id)
    reversed_placements = [
        {**placement, "arriving": placement["leaving"], "leaving": placement["arriving"]}
        for placement in rebalance.placements
    ]
    try:
        capacity.require_capacity(rebalance.cluster, reversed_placements)
    except Conflict as error:
        detail = "The capacity that instances have left is sold to others by now."
        raise Conflict(detail, code="no_room", errors=error.errors) from None


def _require_no_rolling_restart(cluster: Cluster) -> None:
    # `rolling_restart.start` checks for rebalances under the same lock: of two concurrent starts, one sees the other.
    Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
    if RollingRestart.objects.filter(cluster=cluster, state__in=("running", "paused")).exists():
        raise Conflict("A rolling restart is under way in this cluster.", code="restart_in_progress")


def _save_and_audit(acting: Actor, rebalance: Rebalance, fields: list[str], action: str) -> Rebalance:
    try:
        with transaction.atomic():
            rebalance.save_changes(fields)
    except IntegrityError:
        raise Conflict("Another rebalance of this cluster is under way.", code="rebalance_in_progress") from None
    audit.record(acting, action, rebalance, None, {"state": rebalance.state})
    return rebalance
