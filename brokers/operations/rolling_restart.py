"""Restarts the brokers of a cluster one after the other, the next only when all replicas are in sync again (REP-34).

The brokers' reports decide, not the clock: all brokers that should run answer, know each other, and miss no replica. So
no partition with two copies is without a leader for longer than a leader election takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from brokers import services
from brokers.choices import RestartState, WantedState
from brokers.models import Broker, Cluster, Rebalance, RollingRestart
from brokers.monitoring import observe
from tenants import access, audit
from tenants.actors import Actor, system_actor
from tenants.choices import Scope
from tenants.errors import Conflict, Message

log = structlog.get_logger(__name__)

ACTOR = "rolling restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartReadiness:
    """Decision about the restart of a broker: true if it may be restarted, otherwise false with a `reason`."""

    reason: str = ""

    def __bool__(self) -> bool:
        return not self.reason


def restart_readiness(expected: frozenset[int], answers: Mapping[int, Mapping[str, Any]]) -> RestartReadiness:
    """Returns the decision from the images of the brokers that should run (`/v1/cluster`), by broker id. Pure."""
    unresponsive = sorted(expected - answers.keys())
    if unresponsive:
        return RestartReadiness(reason=Message(gettext_noop("Broker %(id)s does not answer."), id=unresponsive[0]))
    for number, body in sorted(answers.items()):
        if number not in expected:
            continue
        if not body["ready"]:
            return RestartReadiness(reason=Message(gettext_noop("Broker %(id)s is starting."), id=number))
        unseen_brokers = sorted(
            expected - {peer["id"] for peer in body["brokers"] if peer["live"] and not peer["stopping"]}
        )
        if unseen_brokers:
            return RestartReadiness(
                reason=Message(
                    gettext_noop("Broker %(id)s does not see broker %(other)s yet."), id=number, other=unseen_brokers[0]
                )
            )
        if body["controller_id"] not in expected:
            return RestartReadiness(reason="There is no controller.")
        if body["offline"]:
            return RestartReadiness(reason=Message(gettext_noop("%(n)s partitions have no leader."), n=body["offline"]))
        if body["under_replicated"]:
            return RestartReadiness(
                reason=Message(gettext_noop("%(n)s partitions are under-replicated."), n=body["under_replicated"])
            )
    return RestartReadiness()


def restart_order(numbers: list[int], controller: int) -> list[int]:
    """Returns the numbers with the controller last, so that it changes only once."""
    return sorted(number for number in numbers if number != controller) + [
        number for number in numbers if number == controller
    ]


@transaction.atomic
def start(*, acting: Actor, cluster: Cluster, only: frozenset[int] | None = None) -> RollingRestart:
    """Starts a restart of every broker of a cluster that should run, or of those in `only`. Raises `Conflict` if there
    are none, and during a rebalance or another rolling restart.
    """
    access.require(acting, Scope.OPERATOR)
    # A concurrent start of a rebalance checks for restarts under the same lock.
    Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
    running_brokers = Broker.objects.filter(cluster=cluster, removed_at=None, wanted=WantedState.RUNNING).order_by(
        "number"
    )
    numbers = [row.number for row in running_brokers if only is None or row.number in only]
    if not numbers:
        raise Conflict("No broker of this cluster shall run.")
    if Rebalance.objects.filter(cluster=cluster, state__in=("running", "undoing", "abandoning")).exists():
        raise Conflict("A rebalance is under way in this cluster. Pause it first.", code="rebalance_in_progress")
    controller = next((row.number for row in running_brokers if (row.observed or {}).get("is_controller")), -1)
    row = RollingRestart(cluster=cluster, numbers=restart_order(numbers, controller), asked_by=acting.label)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        raise Conflict("A rolling restart of this cluster is under way.", code="restart_in_progress") from None
    audit.record(acting, "rolling_restart.started", row, None, {"cluster": cluster.pk, "brokers": row.numbers})
    return row


def pause(*, acting: Actor, restart: RollingRestart) -> RollingRestart:
    """Pauses the restart: no further broker is restarted."""
    return _set_state(acting, restart, RestartState.PAUSED, "rolling_restart.paused", RestartState.RUNNING)


def resume(*, acting: Actor, restart: RollingRestart) -> RollingRestart:
    return _set_state(acting, restart, RestartState.RUNNING, "rolling_restart.resumed", RestartState.PAUSED)


def cancel(*, acting: Actor, restart: RollingRestart) -> RollingRestart:
    """Cancels the restart; a broker that is restarting comes back by itself."""
    states = (RestartState.RUNNING, RestartState.PAUSED)
    return _set_state(acting, restart, RestartState.CANCELLED, "rolling_restart.cancelled", *states)


@transaction.atomic
def _set_state(
    acting: Actor, restart: RollingRestart, state: RestartState, action: str, *states: RestartState
) -> RollingRestart:
    access.require(acting, Scope.OPERATOR)
    result = RollingRestart.objects.select_for_update(of=("self",)).get(pk=restart.pk)
    if result.state not in states:
        raise Conflict(
            Message(gettext_noop("The rolling restart is %(state)s."), state=result.state), code="wrong_state"
        )
    result.state = state
    result.ended_at = timezone.now() if state == RestartState.CANCELLED else None
    result.save_changes(["state", "ended_at"])
    audit.record(acting, action, result, None, {"state": state.value})
    return result


def reconcile_once(row: RollingRestart) -> None:
    """Performs the next step: restarts the next broker, or checks that the current one is back."""
    if row.state != RestartState.RUNNING:
        return
    number = row.numbers[row.done]
    broker = Broker.objects.filter(cluster=row.cluster, number=number, removed_at=None).first()
    if broker is None or broker.wanted != WantedState.RUNNING:
        _advance(row)  # the broker was stopped or removed meanwhile
        return
    if row.is_begun and services.is_restarting(broker):
        _record_reason(row, Message(gettext_noop("Broker %(id)s restarts."), id=number))
        return
    readiness = restart_readiness(_expected_brokers(row.cluster), _cluster_images(row.cluster))
    if not readiness:
        _record_reason(row, readiness.reason)
    elif row.is_begun:
        _advance(row)
    else:
        _restart_next(row, broker)


def _restart_next(row: RollingRestart, broker: Broker) -> None:
    """Requests the restart of the next broker, unless another one is restarting. Updates both rows in one transaction,
    so that a crash between them neither skips a broker nor restarts one twice.
    """
    with transaction.atomic():
        # An operator's restart of another broker is requested under these locks; a broker still answers for a while
        # afterwards.
        peers = list(Broker.objects.select_for_update().filter(cluster=row.cluster_id).order_by("pk"))
        restarting = next(
            (peer for peer in peers if peer.wanted == WantedState.RUNNING and services.is_restarting(peer)), None
        )
        if restarting is not None:
            _record_reason(row, Message(gettext_noop("Broker %(id)s restarts."), id=restarting.number))
            return
        locked_broker = next(peer for peer in peers if peer.pk == broker.pk)
        update = RollingRestart.objects.filter(pk=row.pk, state=RestartState.RUNNING, done=row.done, is_begun=False)
        if not update.update(is_begun=True, trouble=""):
            return
        locked_broker.restart_generation += 1
        locked_broker.save_changes(["restart_generation"])
        audit.record(system_actor(ACTOR), "broker.restarted", locked_broker, None, {"number": locked_broker.number})
        services.notify(locked_broker)
    row.is_begun, row.trouble = True, ""
    log.info("rolling_restart.broker", restart_id=row.pk, broker_id=broker.number)


@transaction.atomic
def _advance(row: RollingRestart) -> None:
    fields: dict[str, Any] = {"done": row.done + 1, "is_begun": False, "trouble": ""}
    if row.done + 1 == len(row.numbers):
        fields |= {"state": RestartState.DONE, "ended_at": timezone.now()}
    is_updated = bool(RollingRestart.objects.filter(pk=row.pk, done=row.done).update(**fields))
    if is_updated and "state" in fields:
        audit.record(system_actor(ACTOR), "rolling_restart.ended", row, None, {"state": RestartState.DONE.value})
    for name, value in fields.items():
        setattr(row, name, value)


def _record_reason(row: RollingRestart, reason: str) -> None:
    if row.trouble != reason:
        row.trouble = reason
        RollingRestart.objects.filter(pk=row.pk).update(trouble=reason)


def _expected_brokers(cluster: Cluster) -> frozenset[int]:
    running_brokers = Broker.objects.filter(cluster=cluster, removed_at=None, wanted=WantedState.RUNNING)
    return frozenset(running_brokers.values_list("number", flat=True))


def _cluster_images(cluster: Cluster) -> Mapping[int, Mapping[str, Any]]:
    return observe.query_all(observe.targets_of_cluster(cluster), "/v1/cluster").bodies
