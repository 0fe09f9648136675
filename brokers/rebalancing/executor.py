"""Executes a rebalance: compares the plan with the actual state, and performs the next steps. Level-triggered.

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
from brokers.dataplane.cluster import ClusterAdminClient, ClusterView, Ongoing
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
WAITING_LOOKED_AT = 1_000
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
    while _step(row, measure=measure):
        pass


def _step(row: Rebalance, *, measure: bool) -> bool:
    """Performs one step; True if it is complete and the next one follows."""
    match row.step:
        case RebalanceStep.HOMES:
            return _placements(row)
        case RebalanceStep.MOVES:
            return _moves(row, measure=measure)
        case RebalanceStep.LEAVING:
            return _leaving(row)
        case RebalanceStep.STOPPING:
            return _stopping(row)
        case RebalanceStep.RELEASING:
            return _releasing(row)
    raise AssertionError(row.step)


def is_back(row: Rebalance) -> bool:
    """True if the rebalance is being undone."""
    return row.state == RebalanceState.UNDOING


def note(row: Rebalance, *, trouble: str = "", step: RebalanceStep | None = None) -> bool:
    """Records the step and the reason for waiting, if they changed. False if an operator changed the state meanwhile:
    then the next step must not be taken.
    """
    fields: dict[str, str] = {}
    if row.trouble != trouble:
        fields["trouble"] = row.trouble = trouble
    if step is not None and row.step != step:
        fields["step"] = row.step = step
    return not fields or bool(Rebalance.objects.filter(pk=row.pk, state=row.state).update(**fields))


# --- ports of instances -----------------------------------------------------------------------------------------------


def _ways(row: Rebalance) -> dict[str, tuple[list[int], list[int]]]:
    """Returns, by instance id, the arriving and the leaving brokers of the instance in the current direction of the
    rebalance.
    """
    ways = {
        placement["owner"]: (list(placement["arriving"]), list(placement["leaving"])) for placement in row.placements
    }
    return {owner: (leaves, comes) for owner, (comes, leaves) in ways.items()} if is_back(row) else ways


def _placements(row: Rebalance) -> bool:
    try:
        is_complete = instance_placement.apply(row.cluster, _ways(row))
    except port_leases.PoolEmpty as error:
        note(row, trouble=Message(gettext_noop("No port is left: %(why)s."), why=str(error)))
        return False
    if not is_complete:
        note(row, trouble="Instances open their ports on other brokers.")
        return False
    return note(row, step=RebalanceStep.MOVES)


def _leaving(row: Rebalance) -> bool:
    plans = _left_behind(row)
    obstacle = next((item for plan in plans for item in plan.obstacles), None)
    if obstacle is not None:
        note(row, trouble=obstacle.sentence)
        return False
    further = [plan for plan in plans if plan.moves or plan.placement_changes]
    if further:
        return all(_append(row, plan) for plan in further)
    if not instance_placement.give_back(row.cluster, {owner: leaves for owner, (_, leaves) in _ways(row).items()}):
        note(row, trouble="Instances close their ports on brokers they have left.")
        return False
    if row.removes and not is_back(row):
        return note(row, step=RebalanceStep.STOPPING)
    return _finish(row)


def _left_behind(row: Rebalance) -> list[RebalancePlan]:
    """Returns plans for replicas created on a broker before it was marked as leaving: further moves, after which the
    procedure starts again.
    """
    fleet = snapshot.take(row.cluster, ClusterAdminClient(row.cluster), sizes=False)
    plans: list[RebalancePlan] = []
    if row.kind == RebalanceKind.LOSS:
        plans.append(lost_broker.further(fleet, row))
    elif row.kind == RebalanceKind.DRAIN and row.broker is not None and not is_back(row):
        plans.append(drain_plan(fleet, row.broker.number))
    else:
        by_broker: dict[int, set[str]] = {}
        for owner, (_, leaves) in _ways(row).items():
            for number in leaves:
                by_broker.setdefault(number, set()).add(owner)
        for number, owners in sorted(by_broker.items()):
            partitions = [partition for partition in fleet.partitions if partition.owner in owners]
            own = {owner: fleet.placements[owner] for owner in owners if owner in fleet.placements}
            plans.append(drain_plan(replace(fleet, partitions=partitions, placements=own), number))
    return plans


@transaction.atomic
def _append(row: Rebalance, plan: RebalancePlan) -> bool:
    """Appends further moves, after which the procedure starts again; False if an operator changed the state
    meanwhile.
    """
    if is_back(row):  # undoing means moving to `before`
        plan = replace(plan, moves=tuple(reassignment.reversed() for reassignment in plan.moves))
    else:
        merged = {change["owner"]: change for change in row.placements}
        for change in plan.placement_changes:
            known = merged.setdefault(change.owner, {"owner": change.owner, "arriving": [], "leaving": []})
            known["arriving"] = sorted({*known["arriving"], *change.arriving})
            known["leaving"] = sorted({*known["leaving"], *change.leaving})
        row.placements = list(merged.values())
    row.step = RebalanceStep.HOMES
    if not Rebalance.objects.filter(pk=row.pk, state=row.state).update(placements=row.placements, step=row.step):
        return False
    last = row.moves.aggregate(last=Max("position"))["last"]
    for made in reassignments_of(row, plan, first=0 if last is None else last + 1):
        made.state = ReassignmentState.DONE if is_back(row) else ReassignmentState.WAITING
        kept = {"position": made.position, "before": made.before, "target": made.target, "state": made.state}
        kept |= {"loses": made.loses, "copies": made.copies, "copies_back": made.copies_back, "topic_id": made.topic_id}
        PartitionReassignment.objects.update_or_create(
            rebalance=row, topic=made.topic, partition=made.partition, defaults=kept
        )
    log.info("rebalance.extended", rebalance_id=row.pk, moves=len(plan.moves))
    return True


# --- moves ------------------------------------------------------------------------------------------------------------


def _wanted(row: Rebalance, reassignment: PartitionReassignment) -> tuple[int, ...]:
    return tuple(reassignment.before if is_back(row) else reassignment.target)


def _as_reassignment(row: Rebalance, reassignment: PartitionReassignment) -> Reassignment:
    result = Reassignment(
        topic=reassignment.topic,
        index=reassignment.partition,
        before=tuple(reassignment.before),
        target=tuple(reassignment.target),
        size_bytes=reassignment.size_bytes,
    )
    return result.reversed() if is_back(row) else result


def _moves(row: Rebalance, *, measure: bool) -> bool:
    admin_client = ClusterAdminClient(row.cluster)
    ongoing = admin_client.reassignments()
    waits_as = ReassignmentState.DONE if is_back(row) else ReassignmentState.WAITING
    running = list(row.moves.filter(state=ReassignmentState.RUNNING))
    waiting = list(row.moves.filter(state=waits_as).order_by("position")[:WAITING_LOOKED_AT])
    view = admin_client.view({reassignment.topic for reassignment in running}) if running else None
    still, targets = _examine(row, admin_client, running, view, ongoing)
    if measure and still:
        _measure(row, admin_client, still, view)
    ready, awaited = waiting, ""
    if row.kind == RebalanceKind.LOSS:
        ready, awaited = lost_broker.give_leaders(row, admin_client, still, waiting, ongoing)
    chosen: list[PartitionReassignment] = []
    if row.state != RebalanceState.PAUSED:
        by_key = {(reassignment.topic, reassignment.partition): reassignment for reassignment in ready}
        begun = next_reassignments(
            [_as_reassignment(row, reassignment) for reassignment in ready],
            [_as_reassignment(row, reassignment) for reassignment in still],
            per_broker_max=row.moves_at_once,
            begin_max=MOVES_BEGUN_AT_ONCE,
        )
        chosen = _still_there(admin_client, [by_key[reassignment.key] for reassignment in begun])
    throttle.apply(
        row, {reassignment.topic for reassignment in (*still, *chosen) if _as_reassignment(row, reassignment).adding}
    )
    _begin(row, admin_client, chosen, targets, awaited)
    if still or waiting or row.state == RebalanceState.PAUSED:
        return False
    throttle.lift(row)
    return note(row, step=RebalanceStep.LEAVING)


def _examine(
    row: Rebalance,
    admin_client: ClusterAdminClient,
    running: Iterable[PartitionReassignment],
    view: ClusterView | None,
    ongoing: dict[PartitionKey, Ongoing],
) -> tuple[list[PartitionReassignment], dict[PartitionKey, tuple[int, ...] | None]]:
    """Records ended moves; returns those still running, and the reassignments to request (again)."""
    still: list[PartitionReassignment] = []
    again: dict[PartitionKey, tuple[int, ...] | None] = {}
    to_lead: list[PartitionKey] = []
    for reassignment in running:
        assert view is not None
        key, wanted = (reassignment.topic, reassignment.partition), _wanted(row, reassignment)
        now, under_way = view.partitions.get(key), ongoing.get(key)
        if _is_gone(reassignment, view):
            _end(reassignment, ReassignmentState.SKIPPED)
        elif now is None:
            still.append(reassignment)
        elif under_way is None and now.replicas == wanted:
            _end(reassignment, ReassignmentState.UNDONE if is_back(row) else ReassignmentState.DONE)
            if now.leader != wanted[0] and wanted[0] in now.isr:
                to_lead.append(key)
        else:
            still.append(reassignment)
            if under_way is None or under_way.target != wanted:
                calls_off = under_way is not None and under_way.original == wanted
                again[key] = None if calls_off else wanted
    admin_client.elect_preferred(to_lead)
    return still, again


def _still_there(admin_client: ClusterAdminClient, chosen: list[PartitionReassignment]) -> list[PartitionReassignment]:
    """Returns the moves without those whose topic was deleted while they waited."""
    if not chosen:
        return chosen
    view = admin_client.view({reassignment.topic for reassignment in chosen})
    gone = [reassignment for reassignment in chosen if _is_gone(reassignment, view)]
    for reassignment in gone:
        _end(reassignment, ReassignmentState.SKIPPED)
    return [reassignment for reassignment in chosen if reassignment not in gone]


def _is_gone(reassignment: PartitionReassignment, view: ClusterView) -> bool:
    """True if the planned topic is gone. A new topic of the same name has its own replicas."""
    return reassignment.topic in view.gone or reassignment.topic_id not in (
        "",
        view.topic_ids.get(reassignment.topic, reassignment.topic_id),
    )


def _end(reassignment: PartitionReassignment, state: ReassignmentState) -> None:
    reassignment.state, reassignment.ended_at, reassignment.note = state, timezone.now(), ""
    if state == ReassignmentState.DONE:
        reassignment.copied_bytes = _as_copied(reassignment)
    reassignment.save(update_fields=["state", "ended_at", "note", "copied_bytes"])


def _as_copied(reassignment: PartitionReassignment) -> int:
    return reassignment.size_bytes * reassignment.copies


def _begin(
    row: Rebalance,
    admin_client: ClusterAdminClient,
    chosen: Iterable[PartitionReassignment],
    targets: dict[PartitionKey, tuple[int, ...] | None],
    awaited: str,
) -> None:
    """Requests the reassignments, then records the begun moves. A refused move stays waiting, with its reason, and is
    retried.

    `awaited` is the reason why other moves cannot begin.
    """
    begun = {(reassignment.topic, reassignment.partition): reassignment for reassignment in chosen}
    refused = admin_client.reassign(
        {**targets, **{key: _wanted(row, reassignment) for key, reassignment in begun.items()}}
    )
    now = timezone.now()
    for key, reassignment in begun.items():
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
    PartitionReassignment.objects.bulk_update(begun.values(), ["state", "began_at", "ended_at", "note", "copied_bytes"])
    if refused:
        (topic, index), reason = next(iter(sorted(refused.items())))
        note(row, trouble=Message(AT_PARTITION, partition=f"{topic}/{index}", why=reason))
        log.warning("rebalance.refused", rebalance_id=row.pk, refused=len(refused), topic=topic, reason=reason)
    else:
        note(row, trouble=awaited)


def _measure(
    row: Rebalance, admin_client: ClusterAdminClient, still: list[PartitionReassignment], view: ClusterView | None
) -> None:
    """Records the progress of each copy, as reported by the receiving brokers; the leader reports the total."""
    assert view is not None
    asked: dict[int, set[PartitionKey]] = {}
    for reassignment in still:
        key, now = (
            (reassignment.topic, reassignment.partition),
            view.partitions.get((reassignment.topic, reassignment.partition)),
        )
        arriving = _as_reassignment(row, reassignment).adding
        for broker in (*arriving, *((now.leader,) if now is not None and arriving else ())):
            asked.setdefault(broker, set()).add(key)
    sizes = {
        broker: admin_client.replica_sizes(broker, keys) for broker, keys in asked.items() if broker in view.brokers
    }
    for reassignment in still:
        key, now = (
            (reassignment.topic, reassignment.partition),
            view.partitions.get((reassignment.topic, reassignment.partition)),
        )
        copies = [sizes.get(broker, {}).get(key) for broker in _as_reassignment(row, reassignment).adding]
        reassignment.copied_bytes = sum(copy.size_bytes for copy in copies if copy is not None)
        whole = sizes.get(now.leader, {}).get(key) if now is not None else None
        if whole is not None:
            reassignment.size_bytes = whole.size_bytes
        lag = max((copy.lag for copy in copies if copy is not None), default=0)
        reassignment.note = Message(gettext_noop("%(n)s messages behind"), n=f"{lag:,}") if lag else ""
    PartitionReassignment.objects.bulk_update(still, ["copied_bytes", "size_bytes", "note"])


# --- the end ----------------------------------------------------------------------------------------------------------


def _stopping(row: Rebalance) -> bool:
    broker = Broker.objects.get(pk=row.broker_id)
    if broker.wanted != WantedState.STOPPED:
        services.set_wanted(acting=system_actor(ACTOR), broker=broker, wanted=WantedState.STOPPED)
        broker.refresh_from_db()
    is_live = broker.number in ClusterAdminClient(row.cluster).view(()).brokers
    # A lost broker cannot be confirmed as stopped, but its agent will not start it.
    is_known = row.kind != RebalanceKind.LOSS
    if is_live or (is_known and broker.process_state not in (ProcessState.STOPPED, ProcessState.UNKNOWN)):
        note(row, trouble=Message(gettext_noop("Broker %(id)s is stopping."), id=broker.number))
        return False
    return note(row, step=RebalanceStep.RELEASING)


def _releasing(row: Rebalance) -> bool:
    broker = Broker.objects.get(pk=row.broker_id)
    admin_client = ClusterAdminClient(row.cluster)
    fleet = snapshot.take(row.cluster, admin_client, sizes=False)
    if any(broker.number in partition.replicas for partition in fleet.partitions):
        ongoing = admin_client.reassignments()
        stable_fleet = replace(
            fleet, partitions=[partition for partition in fleet.partitions if partition.key not in ongoing]
        )
        # The broker has the pinned replicas, which it kept to the end, and those created just before it ended.
        if row.kind == RebalanceKind.LOSS:
            further = lost_broker.further(stable_fleet, row)
            moves = further.moves
        else:
            further = drain_plan(stable_fleet, broker.number)
            moves = (*release_plan(stable_fleet, broker.number).moves, *further.moves)
        refused = admin_client.reassign({reassignment.key: reassignment.target for reassignment in moves})
        reasons = (
            *refused.values(),
            *(obstacle.sentence for obstacle in further.obstacles),
        )
        note(row, trouble=next(iter(reasons), "The other brokers take over what they have copied."))
        return False
    membership.remove_broker(acting=system_actor(ACTOR), broker=broker)
    return _finish(row)


def _finish(row: Rebalance) -> bool:
    ended = RebalanceState.UNDONE if is_back(row) else RebalanceState.DONE
    fields = {"state": ended, "trouble": "", "ended_at": timezone.now()}
    if not Rebalance.objects.filter(pk=row.pk, state=row.state).update(**fields):
        return False  # an operator changed the state first
    if is_back(row):
        # These moves were refused at the time of the undo, and recorded as waiting after it.
        row.moves.filter(state=ReassignmentState.WAITING).update(
            state=ReassignmentState.UNDONE, ended_at=timezone.now()
        )
    row.state = ended
    audit.record(system_actor(ACTOR), "rebalance.ended", row, None, {"state": ended.value})
    log.info("rebalance.ended", rebalance_id=row.pk, state=ended.value)
    return False
