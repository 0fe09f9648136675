"""Services that change the wanted state of brokers, and that store the states and checks reported by agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext_noop

from brokers.choices import ProcessState, WantedState
from brokers.contract.agent_channel import AGENT_CHANNEL
from brokers.models import UNDER_WAY, Broker, Cluster, Host, Rebalance
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, Message


@transaction.atomic
def restart_broker(*, acting: Actor, broker: Broker) -> Broker:
    """Restarts one broker process. One at a time in a cluster: raises `Conflict` while another one is not up."""
    access.require(acting, Scope.OPERATOR)
    peers = list(Broker.objects.select_for_update().filter(cluster=broker.cluster_id).order_by("pk"))
    for peer in peers:
        if peer.wanted == WantedState.RUNNING and is_restarting(peer):
            raise Conflict(
                Message(gettext_noop("Broker %(id)s is not up yet. One at a time."), id=peer.number),
                code="restart_in_progress",
            )
    result = next(peer for peer in peers if peer.pk == broker.pk)
    if result.wanted != WantedState.RUNNING:
        raise Conflict("The broker is stopped on purpose.")
    result.restart_generation += 1
    result.save_changes(["restart_generation"])
    audit.record(acting, "broker.restarted", result, None, {"number": result.number})
    notify(result)
    return result


@transaction.atomic
def set_wanted(*, acting: Actor, broker: Broker, wanted: WantedState) -> Broker:
    """Sets the wanted state of a broker process, running or stopped; the agent applies it."""
    access.require(acting, Scope.OPERATOR)
    result = Broker.objects.select_for_update().get(pk=broker.pk)
    if result.wanted != wanted:
        before = {"wanted": result.wanted}
        result.wanted = wanted
        result.save_changes(["wanted"])
        audit.record(acting, "broker.wanted_changed", result, before, {"wanted": wanted})
        notify(result)
    return result


@transaction.atomic
def start_broker(*, acting: Actor, broker: Broker) -> Broker:
    """Starts a deliberately stopped broker, whose removal was begun and abandoned.

    Raises `Conflict` for a broker that is removed, that should run already, or that a rebalance is about to remove.
    """
    access.require(acting, Scope.OPERATOR)
    # A rebalance is started under the same lock: of two concurrent starts, one sees the other.
    Cluster.objects.select_for_update(no_key=True).get(pk=broker.cluster_id)
    result = Broker.objects.select_for_update(of=("self",)).get(pk=broker.pk)
    if result.removed_at is not None:
        raise Conflict("The broker is removed.")
    if result.wanted != WantedState.STOPPED:
        raise Conflict("The broker is not stopped.", code="wrong_state")
    if Rebalance.objects.filter(broker=result, state__in=UNDER_WAY).exists():
        raise Conflict("The broker is being removed. Abandon that first.", code="rebalance_in_progress")
    before = {"wanted": result.wanted}
    result.wanted, result.given_up_at, result.accepts_instances = WantedState.RUNNING, None, True
    result.save_changes(["wanted", "given_up_at", "accepts_instances"])
    audit.record(acting, "broker.wanted_changed", result, before, {"wanted": result.wanted})
    notify(result)
    return result


@transaction.atomic
def accept_instances(*, acting: Actor, broker: Broker) -> Broker:
    """Returns a broker to service that was emptied and not removed: further instances and replicas may be placed on it.

    Raises `Conflict` for a broker that is removed or stopped, that accepts them already, or that is being emptied.
    """
    access.require(acting, Scope.OPERATOR)
    # A rebalance is started under the same lock: of two concurrent calls, one sees the other.
    Cluster.objects.select_for_update(no_key=True).get(pk=broker.cluster_id)
    result = Broker.objects.select_for_update(of=("self",)).get(pk=broker.pk)
    if result.removed_at is not None:
        raise Conflict("The broker is removed.")
    if result.wanted == WantedState.STOPPED:
        raise Conflict("The broker is stopped on purpose.")
    if result.accepts_instances:
        raise Conflict("The broker takes further instances already.", code="wrong_state")
    if Rebalance.objects.filter(broker=result, state__in=UNDER_WAY).exists():
        raise Conflict("The broker is being emptied. Undo or abandon that first.", code="rebalance_in_progress")
    result.accepts_instances = True
    result.save_changes(["accepts_instances"])
    audit.record(acting, "broker.accepts_instances", result, {"accepts_instances": False}, {"accepts_instances": True})
    return result


def is_restarting(broker: Broker) -> bool:
    """True if a restart was requested that the agent has not finished."""
    return broker.restart_generation != broker.process_restart_generation or broker.process_state in (
        ProcessState.STARTING,
        ProcessState.STOPPING,
        ProcessState.BACKING_OFF,
    )


def store_process_state(broker_id: str, **fields: object) -> None:
    """Stores the state of a process as seen by the agent; no configuration change, so no new version and no audit
    entry.
    """
    Broker.objects.filter(pk=broker_id).update(**fields)


def count_restart(broker_id: str) -> None:
    """Counts an unexpected end of the process."""
    Broker.objects.filter(pk=broker_id).update(process_restarts=F("process_restarts") + 1)


def store_checks(
    host_id: str, checks: Sequence[Mapping[str, Any]], agent_version: str, machine: Mapping[str, Any] | None
) -> None:
    """Stores the checks that an agent has made of its machine, and the use of the machine (None: not measured)."""
    Host.objects.filter(pk=host_id).update(
        checks=list(checks), checked_at=timezone.now(), agent_version=agent_version, machine=dict(machine or {})
    )


def notify(broker: Broker) -> None:
    """Notifies the agent of the broker's host on commit; an agent that misses it polls shortly afterwards."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [AGENT_CHANNEL, broker.host_id])
