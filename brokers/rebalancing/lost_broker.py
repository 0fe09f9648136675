"""Steps of the removal of a lost broker: checks that it is lost, and elects leaders for partitions that lose data.

Only partitions whose loss the operator has confirmed with the plan (`brokers.rebalancing.data_loss`) get a leader by
unclean election. Brokers prefer a live in-sync replica, so that a broker that returns meanwhile becomes leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from brokers.auditing import reader as audit_reader
from brokers.choices import DataLoss, ProcessState, WantedState
from brokers.contract.audit import AUDIT_TOPIC
from brokers.contract.partitions import NO_LEADER, PartitionKey
from brokers.contract.usage import USAGE_TOPIC
from brokers.dataplane.cluster import ClusterAdminClient, ClusterView, OngoingReassignment, PartitionView
from brokers.limits import BROKER_LOST_AFTER_S
from brokers.models import Broker, Cluster, PartitionReassignment, Rebalance
from brokers.rebalancing.data_loss import data_loss_plan, loss_of
from brokers.rebalancing.interfaces import usage_begins_anew
from brokers.rebalancing.model import AT_PARTITION, Fleet, Obstacle, RebalancePlan
from instances.models import Instance
from instances.naming import split_internal
from tenants import audit
from tenants.actors import system_actor
from tenants.errors import Conflict, Message
from tenants.models import AuditEntry

log = structlog.get_logger(__name__)

ACTOR = "rebalancer"
GIVEN_UP = "partitions.given_up"
LOSS_NOT_CONFIRMED = Message(
    gettext_noop("Nobody alive has all of it, and the plan does not name it. Abandon this, and plan again.")
)


# --- lost brokers ----------------------------------------------------------------------------------------------------


def reason_not_lost(broker: Broker, now: datetime) -> str:
    """Returns the reason why a broker does not count as lost, as a sentence; "" if it is lost.

    It is lost if its host's agent has not been seen for `BROKER_LOST_AFTER_S`, or if that agent reports that its
    process has ended, and it was stopped deliberately or has not answered for as long.
    """
    limit = timedelta(seconds=BROKER_LOST_AFTER_S)
    agent_seen_at, answered_at = broker.host.agent_seen_at, broker.observed_at
    if agent_seen_at is None or now - agent_seen_at > limit:
        return ""
    if broker.process_state not in (ProcessState.STOPPED, ProcessState.BACKING_OFF):
        return Message(
            gettext_noop("The agent of its host answers, and its process is %(state)s."), state=broker.process_state
        )
    is_stopped = broker.wanted == WantedState.STOPPED and broker.process_state == ProcessState.STOPPED
    if not is_stopped and answered_at is not None and now - answered_at <= limit:
        return Message(gettext_noop("It answered less than %(limit)s s ago."), limit=BROKER_LOST_AFTER_S)
    return ""


def require_lost(broker: Broker, view: ClusterView) -> None:
    """Raises `Conflict` (`broker_serves`) for a broker that serves, or may do so again without intervention."""
    reason = reason_not_lost(broker, timezone.now())
    if broker.number in view.brokers:
        reason = "The other brokers see it."
    if reason:
        raise Conflict(
            Message(
                gettext_noop(
                    "Broker %(id)s does not count as lost: %(why)s "
                    "Empty it, or wait until it has not served for %(limit)s s."
                ),
                id=broker.number,
                why=reason,
                limit=BROKER_LOST_AFTER_S,
            ),
            code="broker_serves",
        )


def given_up_broker_numbers(cluster: Cluster) -> frozenset[int]:
    """Returns the numbers of the brokers whose removal as lost was begun, including those that are removed by now."""
    rows = Broker.objects.filter(cluster=cluster, given_up_at__isnull=False)
    return frozenset(rows.values_list("number", flat=True))


def plan_remaining(fleet: Fleet, row: Rebalance) -> RebalancePlan:
    """Returns a plan for the replicas that are still on the broker. An unconfirmed loss is an obstacle."""
    assert row.broker is not None
    plan = data_loss_plan(fleet, row.broker.number, given_up_broker_numbers(row.cluster) | {row.broker.number})
    unconfirmed = [
        Obstacle(owner=None, topic=f"{reassignment.topic}/{reassignment.index}", detail=LOSS_NOT_CONFIRMED)
        for reassignment in plan.moves
        if reassignment.loses
    ]
    return (
        replace(plan, moves=(), placement_changes=(), obstacles=(*plan.obstacles, *unconfirmed))
        if unconfirmed
        else plan
    )


# --- leaders for leaderless partitions --------------------------------------------------------------------------------


def elect_leaders(
    row: Rebalance,
    admin_client: ClusterAdminClient,
    running: Sequence[PartitionReassignment],
    waiting: Sequence[PartitionReassignment],
    ongoing: Mapping[PartitionKey, OngoingReassignment],
) -> tuple[list[PartitionReassignment], str]:
    """Elects leaders, and returns the waiting moves that may begin, and the reason why others wait.

    A partition with partial replicas gets one of these as leader before its move begins: an arriving replica, which is
    empty, must not be chosen. A partition without any data is led by an arriving replica once its move has begun.
    """
    if not running and not waiting:
        return [], ""
    view = admin_client.view({reassignment.topic for reassignment in (*running, *waiting)})
    given_up_brokers = given_up_broker_numbers(row.cluster)
    leaderless = {key: partition for key, partition in view.partitions.items() if partition.leader == NO_LEADER}
    led_moves = [reassignment for reassignment in waiting if _partition_key(reassignment) not in leaderless]
    leaderless_moves = [reassignment for reassignment in waiting if _partition_key(reassignment) in leaderless]
    movable_without_data = [reassignment for reassignment in leaderless_moves if reassignment.loses == DataLoss.ALL]
    partial_keys = _confirmed_losses(leaderless_moves, leaderless, given_up_brokers, DataLoss.SOME)
    cancelled = {key: None for key in partial_keys if key in ongoing}
    empty_keys = [
        key for key in _confirmed_losses(running, leaderless, given_up_brokers, DataLoss.ALL) if key in ongoing
    ]
    for topic, index in empty_keys:
        # The read offset lies beyond the end of an empty log.
        if topic == USAGE_TOPIC:
            usage_begins_anew.implementation(row.cluster_id, index)
        if topic == AUDIT_TOPIC:
            audit_reader.forget_offset(row.cluster_id, index)
    to_elect = [*empty_keys, *(key for key in partial_keys if key not in cancelled)]
    _record_losses(row, to_elect)
    refused = admin_client.reassign(cancelled) | admin_client.elect_unclean(to_elect)
    if empty_keys or partial_keys:
        log.warning("rebalance.leaders_assigned", rebalance_id=row.pk, empty=len(empty_keys), behind=len(partial_keys))
    waiting_reasons = [
        Message(AT_PARTITION, partition=f"{topic}/{index}", why=why) for (topic, index), why in sorted(refused.items())
    ]
    waiting_reasons += [
        _waiting_reason(reassignment, leaderless[_partition_key(reassignment)], given_up_brokers)
        for reassignment in leaderless_moves
        if not reassignment.loses
    ]
    return [*led_moves, *movable_without_data], next(iter(waiting_reasons), "")


@transaction.atomic
def _record_losses(row: Rebalance, keys: Iterable[PartitionKey]) -> None:
    """Writes an entry to the audit log of each owner, with all data of the instance that the plan gives up, before the
    first loss.

    There is one entry per instance: after a crash between the entry and the election, only the election is repeated.
    """
    owners = {owner for owner, _ in (split_internal(topic) for topic, _ in keys) if owner is not None}
    recorded = AuditEntry.objects.filter(action=GIVEN_UP, target_id__in=owners, after__rebalance=row.pk)
    unrecorded = owners.difference(recorded.values_list("target_id", flat=True) if owners else ())
    for instance in Instance.objects.select_related("tenant").filter(pk__in=unrecorded).order_by("pk"):
        indexes_by_loss: dict[str, dict[str, list[int]]] = {DataLoss.ALL.value: {}, DataLoss.SOME.value: {}}
        moves = row.moves.exclude(loses=DataLoss.NOTHING).filter(topic__startswith=f"{instance.pk}.")
        for topic, index, loses in moves.order_by("topic", "partition").values_list("topic", "partition", "loses"):
            indexes_by_loss[loses].setdefault(split_internal(topic)[1], []).append(index)
        after = {"broker": row.broker.number if row.broker else None, "rebalance": row.pk, **indexes_by_loss}
        audit.record(system_actor(ACTOR), GIVEN_UP, instance, None, after, tenant=instance.tenant)


def _confirmed_losses(
    moves: Iterable[PartitionReassignment],
    leaderless: Mapping[PartitionKey, PartitionView],
    given_up_brokers: frozenset[int],
    loss: DataLoss,
) -> list[PartitionKey]:
    """Returns the leaderless partitions whose planned loss is `loss` and whose in-sync replicas are all lost."""
    return [
        _partition_key(reassignment)
        for reassignment in moves
        if reassignment.loses == loss
        and _partition_key(reassignment) in leaderless
        and set(leaderless[_partition_key(reassignment)].isr) <= given_up_brokers
    ]


def _waiting_reason(
    reassignment: PartitionReassignment, partition: PartitionView, given_up_brokers: frozenset[int]
) -> Message:
    missing_replicas = sorted(set(partition.isr) - given_up_brokers)
    reason = LOSS_NOT_CONFIRMED
    if missing_replicas:
        reason = Message(gettext_noop("Broker %(id)s had all of it and does not answer."), id=missing_replicas[0])
    return Message(AT_PARTITION, partition=str(reassignment), why=reason)


def _partition_key(reassignment: PartitionReassignment) -> PartitionKey:
    return reassignment.topic, reassignment.partition


def require_confirmed_losses(row: Rebalance, view: ClusterView) -> None:
    """Raises `Conflict` (`stale_plan`) if more data would be lost now than the plan names."""
    assert row.broker is not None
    given_up_brokers = given_up_broker_numbers(row.cluster) | {row.broker.number}
    for reassignment in row.moves.all():
        partition = view.partitions.get(_partition_key(reassignment))
        if partition is None:
            continue
        loss = loss_of(partition.replicas, partition.isr, given_up_brokers, is_led=partition.leader != NO_LEADER)
        if loss not in (DataLoss.NOTHING, reassignment.loses):
            raise Conflict("More is lost by now than when this was planned. Plan again.", code="stale_plan")
