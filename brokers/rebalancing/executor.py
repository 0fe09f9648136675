"""Executes a rebalance: compares the plan with the actual state, and performs the next steps.

Each run works from the current state alone, and may crash at any point: a move that was begun and not recorded is begun
again, which the brokers accept. Undoing is the same procedure towards the previous replicas.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import structlog
from django.db import transaction
from django.db.models import Max
from django.utils import timezone
from django.utils.translation import gettext_noop

from brokers import services
from brokers.choices import ProcessState, ReassignmentState, RebalanceKind, RebalanceState, RebalanceStep, WantedState
from brokers.contract.partitions import PartitionKey
from brokers.dataplane.cluster import ClusterAdminClient, ClusterView, OngoingReassignment
from brokers.limits import MOVES_BEGUN_AT_ONCE
from brokers.models import Broker, PartitionReassignment, Rebalance
from brokers.operations import membership
from brokers.placement import instance_placement, port_leases
from brokers.rebalancing import abort, lost_broker, snapshot, throttle
from brokers.rebalancing.model import AT_PARTITION, Reassignment, RebalancePlan, next_reassignments
from brokers.rebalancing.planner import drain_plan, release_plan
from brokers.rebalancing.services import reassignments_of
from tenants import audit
from tenants.actors import system_actor
from tenants.errors import Message

log = structlog.get_logger(__name__)

# Number of waiting moves to choose from: enough that no broker is idle while another one is busy.
WAITING_EXAMINED_MAX = 1_000
ACTOR = "rebalancer"


def reconcile_once(row: Rebalance, *, measure: bool = True) -> None:
    """Performs the next steps. With `measure`, brokers are also queried for the progress of the copies. Raises
    `DomainError` if no broker answers.
    """
    if row.state == RebalanceState.ABANDONING:
        abort.reconcile_once(row, ClusterAdminClient(row.cluster))
        return
    if row.state == RebalanceState.PAUSED and row.step != RebalanceStep.MOVES:
        return
    while _perform_step(row, measure=measure):
        pass


def _perform_step(row: Rebalance, *, measure: bool) -> bool:
    """Performs one step; True if it is complete and the next one follows."""
    match row.step:
        case RebalanceStep.HOMES:
            return _lease_ports(row)
        case RebalanceStep.MOVES:
            return _move_partitions(row, measure=measure)
        case RebalanceStep.LEAVING:
            return _release_ports(row)
        case RebalanceStep.STOPPING:
            return _await_stop(row)
        case RebalanceStep.RELEASING:
            return _release_broker(row)
    raise AssertionError(row.step)


def is_undoing(row: Rebalance) -> bool:
    """True if the rebalance is being undone."""
    return row.state == RebalanceState.UNDOING


def record_progress(row: Rebalance, *, reason: str = "", step: RebalanceStep | None = None) -> bool:
    """Records the step and the reason for waiting, if they changed.

    Returns False if an operator changed the state meanwhile, so that the next step must not be performed.
    """
    fields: dict[str, str] = {}
    if row.trouble != reason:
        fields["trouble"] = row.trouble = reason
    if step is not None and row.step != step:
        fields["step"] = row.step = step
    return not fields or bool(Rebalance.objects.filter(pk=row.pk, state=row.state).update(**fields))


# --- ports of instances -----------------------------------------------------------------------------------------------


def _broker_changes(row: Rebalance) -> dict[str, tuple[list[int], list[int]]]:
    """Returns, by instance id, the arriving and the leaving brokers of the instance in the current direction of the
    rebalance.
    """
    changes = {
        placement["owner"]: (list(placement["arriving"]), list(placement["leaving"])) for placement in row.placements
    }
    return (
        {owner: (leaving, arriving) for owner, (arriving, leaving) in changes.items()} if is_undoing(row) else changes
    )


def _lease_ports(row: Rebalance) -> bool:
    """Leases ports on arriving brokers. Returns True when instances have opened them."""
    try:
        is_complete = instance_placement.lease_ports(row.cluster, _broker_changes(row))
    except port_leases.PoolEmpty as error:
        record_progress(row, reason=Message(gettext_noop("No port is left: %(why)s."), why=str(error)))
        return False
    if not is_complete:
        record_progress(row, reason="Instances open their ports on other brokers.")
        return False
    return record_progress(row, step=RebalanceStep.MOVES)


def _release_ports(row: Rebalance) -> bool:
    """Releases the ports on leaving brokers; appends moves and returns to step `HOMES` if there are late replicas."""
    plans = _plans_for_late_replicas(row)
    obstacle = next((obstacle for plan in plans for obstacle in plan.obstacles), None)
    if obstacle is not None:
        record_progress(row, reason=obstacle.sentence)
        return False
    further_plans = [plan for plan in plans if plan.moves or plan.placement_changes]
    if further_plans:
        return all(_append_moves(row, plan) for plan in further_plans)
    if not instance_placement.release_ports(
        row.cluster, {owner: leaving for owner, (_, leaving) in _broker_changes(row).items()}
    ):
        record_progress(row, reason="Instances close their ports on brokers they have left.")
        return False
    if row.removes and not is_undoing(row):
        return record_progress(row, step=RebalanceStep.STOPPING)
    return _finish(row)


def _plans_for_late_replicas(row: Rebalance) -> list[RebalancePlan]:
    """Returns plans for replicas created on a broker before it was marked as leaving: further moves, after which the
    procedure starts again.
    """
    fleet = snapshot.take_snapshot(row.cluster, ClusterAdminClient(row.cluster), sizes=False)
    plans: list[RebalancePlan] = []
    if row.kind == RebalanceKind.LOSS:
        plans.append(lost_broker.plan_remaining(fleet, row))
    elif row.kind == RebalanceKind.DRAIN and row.broker is not None and not is_undoing(row):
        plans.append(drain_plan(fleet, row.broker.number))
    else:
        owners_by_broker: dict[int, set[str]] = {}
        for owner, (_, leaving) in _broker_changes(row).items():
            for number in leaving:
                owners_by_broker.setdefault(number, set()).add(owner)
        for number, owners in sorted(owners_by_broker.items()):
            partitions = [partition for partition in fleet.partitions if partition.owner in owners]
            placements = {owner: fleet.placements[owner] for owner in owners if owner in fleet.placements}
            plans.append(drain_plan(replace(fleet, partitions=partitions, placements=placements), number))
    return plans


@transaction.atomic
def _append_moves(row: Rebalance, plan: RebalancePlan) -> bool:
    """Appends further moves, after which the procedure starts again; False if an operator changed the state
    meanwhile.
    """
    if is_undoing(row):  # undoing means moving to `before`
        plan = replace(plan, moves=tuple(reassignment.reversed() for reassignment in plan.moves))
    else:
        changes_by_owner = {change["owner"]: change for change in row.placements}
        for change in plan.placement_changes:
            placement = changes_by_owner.setdefault(
                change.owner, {"owner": change.owner, "arriving": [], "leaving": []}
            )
            placement["arriving"] = sorted({*placement["arriving"], *change.arriving})
            placement["leaving"] = sorted({*placement["leaving"], *change.leaving})
        row.placements = list(changes_by_owner.values())
    row.step = RebalanceStep.HOMES
    if not Rebalance.objects.filter(pk=row.pk, state=row.state).update(placements=row.placements, step=row.step):
        return False
    last_position = row.moves.aggregate(last=Max("position"))["last"]
    for new_move in reassignments_of(row, plan, first=0 if last_position is None else last_position + 1):
        new_move.state = ReassignmentState.DONE if is_undoing(row) else ReassignmentState.WAITING
        defaults = {
            "position": new_move.position,
            "before": new_move.before,
            "target": new_move.target,
            "state": new_move.state,
        }
        defaults |= {
            "loses": new_move.loses,
            "copies": new_move.copies,
            "copies_back": new_move.copies_back,
            "topic_id": new_move.topic_id,
        }
        PartitionReassignment.objects.update_or_create(
            rebalance=row, topic=new_move.topic, partition=new_move.partition, defaults=defaults
        )
    log.info("rebalance.extended", rebalance_id=row.pk, moves=len(plan.moves))
    return True


# --- moves ------------------------------------------------------------------------------------------------------------


def _target_replicas(row: Rebalance, reassignment: PartitionReassignment) -> tuple[int, ...]:
    return tuple(reassignment.before if is_undoing(row) else reassignment.target)


def _as_reassignment(row: Rebalance, reassignment: PartitionReassignment) -> Reassignment:
    result = Reassignment(
        topic=reassignment.topic,
        index=reassignment.partition,
        before=tuple(reassignment.before),
        target=tuple(reassignment.target),
        size_bytes=reassignment.size_bytes,
    )
    return result.reversed() if is_undoing(row) else result


def _move_partitions(row: Rebalance, *, measure: bool) -> bool:
    """Records ended moves and begins further ones. Returns True when all have ended."""
    admin_client = ClusterAdminClient(row.cluster)
    ongoing = admin_client.reassignments()
    waiting_state = ReassignmentState.DONE if is_undoing(row) else ReassignmentState.WAITING
    running = list(row.moves.filter(state=ReassignmentState.RUNNING))
    waiting = list(row.moves.filter(state=waiting_state).order_by("position")[:WAITING_EXAMINED_MAX])
    view = admin_client.view({reassignment.topic for reassignment in running}) if running else None
    still_running, targets = _record_ended_moves(row, admin_client, running, view, ongoing)
    if measure and still_running:
        _record_copy_progress(row, admin_client, still_running, view)
    startable_moves, waiting_reason = waiting, ""
    if row.kind == RebalanceKind.LOSS:
        startable_moves, waiting_reason = lost_broker.elect_leaders(row, admin_client, still_running, waiting, ongoing)
    moves_to_begin: list[PartitionReassignment] = []
    if row.state != RebalanceState.PAUSED:
        move_by_key = {(reassignment.topic, reassignment.partition): reassignment for reassignment in startable_moves}
        next_moves = next_reassignments(
            [_as_reassignment(row, reassignment) for reassignment in startable_moves],
            [_as_reassignment(row, reassignment) for reassignment in still_running],
            per_broker_max=row.moves_at_once,
            begin_max=MOVES_BEGUN_AT_ONCE,
        )
        moves_to_begin = _without_deleted_topics(
            admin_client, [move_by_key[reassignment.key] for reassignment in next_moves]
        )
    throttle.apply(
        row,
        {
            reassignment.topic
            for reassignment in (*still_running, *moves_to_begin)
            if _as_reassignment(row, reassignment).adding
        },
    )
    _begin_moves(row, admin_client, moves_to_begin, targets, waiting_reason)
    if still_running or waiting or row.state == RebalanceState.PAUSED:
        return False
    throttle.lift(row)
    return record_progress(row, step=RebalanceStep.LEAVING)


def _record_ended_moves(
    row: Rebalance,
    admin_client: ClusterAdminClient,
    running: Iterable[PartitionReassignment],
    view: ClusterView | None,
    ongoing: dict[PartitionKey, OngoingReassignment],
) -> tuple[list[PartitionReassignment], dict[PartitionKey, tuple[int, ...] | None]]:
    """Records ended moves; returns those still running, and the reassignments to request (again)."""
    still_running: list[PartitionReassignment] = []
    to_request: dict[PartitionKey, tuple[int, ...] | None] = {}
    to_elect: list[PartitionKey] = []
    for reassignment in running:
        assert view is not None
        key, target = (reassignment.topic, reassignment.partition), _target_replicas(row, reassignment)
        partition, in_progress = view.partitions.get(key), ongoing.get(key)
        if _is_deleted(reassignment, view):
            _end_move(reassignment, ReassignmentState.SKIPPED)
        elif partition is None:
            still_running.append(reassignment)
        elif in_progress is None and partition.replicas == target:
            _end_move(reassignment, ReassignmentState.UNDONE if is_undoing(row) else ReassignmentState.DONE)
            if partition.leader != target[0] and target[0] in partition.isr:
                to_elect.append(key)
        else:
            still_running.append(reassignment)
            if in_progress is None or in_progress.target_replicas != target:
                is_cancelled = in_progress is not None and in_progress.original_replicas == target
                to_request[key] = None if is_cancelled else target
    admin_client.elect_preferred(to_elect)
    return still_running, to_request


def _without_deleted_topics(
    admin_client: ClusterAdminClient, moves: list[PartitionReassignment]
) -> list[PartitionReassignment]:
    """Returns the moves without those whose topic was deleted while they waited."""
    if not moves:
        return moves
    view = admin_client.view({reassignment.topic for reassignment in moves})
    deleted = [reassignment for reassignment in moves if _is_deleted(reassignment, view)]
    for reassignment in deleted:
        _end_move(reassignment, ReassignmentState.SKIPPED)
    return [reassignment for reassignment in moves if reassignment not in deleted]


def _is_deleted(reassignment: PartitionReassignment, view: ClusterView) -> bool:
    """True if the planned topic is gone. A new topic of the same name has its own replicas."""
    return reassignment.topic in view.missing_topics or reassignment.topic_id not in (
        "",
        view.topic_ids.get(reassignment.topic, reassignment.topic_id),
    )


def _end_move(reassignment: PartitionReassignment, state: ReassignmentState) -> None:
    reassignment.state, reassignment.ended_at, reassignment.note = state, timezone.now(), ""
    if state == ReassignmentState.DONE:
        reassignment.copied_bytes = _total_copied_bytes(reassignment)
    reassignment.save(update_fields=["state", "ended_at", "note", "copied_bytes"])


def _total_copied_bytes(reassignment: PartitionReassignment) -> int:
    return reassignment.size_bytes * reassignment.copies


def _begin_moves(
    row: Rebalance,
    admin_client: ClusterAdminClient,
    moves: Iterable[PartitionReassignment],
    retried_targets: dict[PartitionKey, tuple[int, ...] | None],
    waiting_reason: str,
) -> None:
    """Requests the reassignments, then records the begun moves. A refused move stays waiting, with its reason, and is
    retried.

    `waiting_reason` is the reason why other moves cannot begin.
    """
    requested = {(reassignment.topic, reassignment.partition): reassignment for reassignment in moves}
    refused = admin_client.reassign(
        {**retried_targets, **{key: _target_replicas(row, reassignment) for key, reassignment in requested.items()}}
    )
    now = timezone.now()
    for key, reassignment in requested.items():
        if key in refused:
            reassignment.note = refused[key]
        else:
            reassignment.state, reassignment.began_at, reassignment.ended_at, reassignment.note = (
                ReassignmentState.RUNNING,
                now,
                None,
                "",
            )
            reassignment.copied_bytes = 0
    PartitionReassignment.objects.bulk_update(
        requested.values(), ["state", "began_at", "ended_at", "note", "copied_bytes"]
    )
    if refused:
        (topic, index), reason = next(iter(sorted(refused.items())))
        record_progress(row, reason=Message(AT_PARTITION, partition=f"{topic}/{index}", why=reason))
        log.warning("rebalance.refused", rebalance_id=row.pk, refused=len(refused), topic=topic, reason=reason)
    else:
        record_progress(row, reason=waiting_reason)


def _record_copy_progress(
    row: Rebalance,
    admin_client: ClusterAdminClient,
    still_running: list[PartitionReassignment],
    view: ClusterView | None,
) -> None:
    """Records the progress of each copy, as reported by the receiving brokers; the leader reports the total."""
    assert view is not None
    keys_by_broker: dict[int, set[PartitionKey]] = {}
    for reassignment in still_running:
        key, partition = (
            (reassignment.topic, reassignment.partition),
            view.partitions.get((reassignment.topic, reassignment.partition)),
        )
        arriving = _as_reassignment(row, reassignment).adding
        for broker in (*arriving, *((partition.leader,) if partition is not None and arriving else ())):
            keys_by_broker.setdefault(broker, set()).add(key)
    sizes = {
        broker: admin_client.replica_sizes(broker, keys)
        for broker, keys in keys_by_broker.items()
        if broker in view.brokers
    }
    for reassignment in still_running:
        key, partition = (
            (reassignment.topic, reassignment.partition),
            view.partitions.get((reassignment.topic, reassignment.partition)),
        )
        copies = [sizes.get(broker, {}).get(key) for broker in _as_reassignment(row, reassignment).adding]
        reassignment.copied_bytes = sum(copy.size_bytes for copy in copies if copy is not None)
        leader_size = sizes.get(partition.leader, {}).get(key) if partition is not None else None
        if leader_size is not None:
            reassignment.size_bytes = leader_size.size_bytes
        lag = max((copy.lag for copy in copies if copy is not None), default=0)
        reassignment.note = Message(gettext_noop("%(n)s messages behind"), n=f"{lag:,}") if lag else ""
    PartitionReassignment.objects.bulk_update(still_running, ["copied_bytes", "size_bytes", "note"])


# --- the end ----------------------------------------------------------------------------------------------------------


def _await_stop(row: Rebalance) -> bool:
    """Requests that the broker stops. Returns True when it has stopped."""
    broker = Broker.objects.get(pk=row.broker_id)
    if broker.wanted != WantedState.STOPPED:
        services.set_wanted(acting=system_actor(ACTOR), broker=broker, wanted=WantedState.STOPPED)
        broker.refresh_from_db()
    is_live = broker.number in ClusterAdminClient(row.cluster).view(()).brokers
    # A lost broker cannot be confirmed as stopped, but its agent will not start it.
    is_known = row.kind != RebalanceKind.LOSS
    if is_live or (is_known and broker.process_state not in (ProcessState.STOPPED, ProcessState.UNKNOWN)):
        record_progress(row, reason=Message(gettext_noop("Broker %(id)s is stopping."), id=broker.number))
        return False
    return record_progress(row, step=RebalanceStep.RELEASING)


def _release_broker(row: Rebalance) -> bool:
    """Removes the last replicas of the stopped broker, then the broker itself, which ends the rebalance."""
    broker = Broker.objects.get(pk=row.broker_id)
    admin_client = ClusterAdminClient(row.cluster)
    fleet = snapshot.take_snapshot(row.cluster, admin_client, sizes=False)
    if any(broker.number in partition.replicas for partition in fleet.partitions):
        ongoing = admin_client.reassignments()
        stable_fleet = replace(
            fleet, partitions=[partition for partition in fleet.partitions if partition.key not in ongoing]
        )
        # The broker has the pinned replicas, which it kept to the end, and those created just before it ended.
        if row.kind == RebalanceKind.LOSS:
            further_plan = lost_broker.plan_remaining(stable_fleet, row)
            moves = further_plan.moves
        else:
            further_plan = drain_plan(stable_fleet, broker.number)
            moves = (*release_plan(stable_fleet, broker.number).moves, *further_plan.moves)
        refused = admin_client.reassign({reassignment.key: reassignment.target for reassignment in moves})
        reasons = (
            *refused.values(),
            *(obstacle.sentence for obstacle in further_plan.obstacles),
        )
        record_progress(row, reason=next(iter(reasons), "The other brokers take over what they have copied."))
        return False
    membership.remove_broker(acting=system_actor(ACTOR), broker=broker)
    return _finish(row)


def _finish(row: Rebalance) -> bool:
    """Ends the rebalance. Returns False, because no step follows."""
    final_state = RebalanceState.UNDONE if is_undoing(row) else RebalanceState.DONE
    fields = {"state": final_state, "trouble": "", "ended_at": timezone.now()}
    if not Rebalance.objects.filter(pk=row.pk, state=row.state).update(**fields):
        return False  # an operator changed the state first
    if is_undoing(row):
        # These moves were refused at the time of the undo, and recorded as waiting after it.
        row.moves.filter(state=ReassignmentState.WAITING).update(
            state=ReassignmentState.UNDONE, ended_at=timezone.now()
        )
    row.state = final_state
    audit.record(system_actor(ACTOR), "rebalance.ended", row, None, {"state": final_state.value})
    log.info("rebalance.ended", rebalance_id=row.pk, state=final_state.value)
    return False
