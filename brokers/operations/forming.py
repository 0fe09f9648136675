"""Forms a cluster: waits until its brokers are added, answer and have elected a controller, then marks it as ready.

Each run works from the current state alone, as for rebalances.
"""

from __future__ import annotations

import structlog
from django.db import transaction
from django.utils import timezone

from brokers import selectors
from brokers.choices import ClusterState, FleetStep, ProcessState, WantedState
from brokers.dataplane.cluster import ClusterAdminClient
from brokers.models import Broker, Cluster, FleetOperation
from brokers.monitoring import observe
from brokers.operations import fleet_operations
from brokers.operations.clusters import brokers_fact
from brokers.operations.waiting import wake_waiting
from tenants import audit
from tenants.actors import system_actor
from tenants.errors import Unavailable

log = structlog.get_logger(__name__)

ACTOR = "fleet"
NO_BROKER = "Waits for a broker: add one to the cluster."


def reconcile_once(operation: FleetOperation) -> bool:
    """Performs the steps that are possible now; True if the cluster is formed."""
    running_brokers = Broker.objects.filter(cluster=operation.cluster, removed_at=None, wanted=WantedState.RUNNING)
    brokers = list(running_brokers.select_related("host").order_by("number"))
    if not brokers:
        fleet_operations.mark_waiting(operation, FleetStep.BROKERS_ADDED, NO_BROKER)
        return False
    fleet_operations.mark_done(operation, FleetStep.BROKERS_ADDED, brokers_fact(brokers), brokers=len(brokers))
    if not _await_answers(operation, brokers):
        return False
    try:
        view = ClusterAdminClient(operation.cluster).view(())
    except Unavailable as error:
        fleet_operations.mark_waiting(operation, FleetStep.CONTROLLER_ELECTED, error.detail)
        return False
    absent_numbers = sorted({broker.number for broker in brokers} - view.brokers)
    if absent_numbers:
        fleet_operations.mark_waiting(
            operation, FleetStep.CONTROLLER_ELECTED, f"Waits for broker {absent_numbers[0]} to join the cluster."
        )
        return False
    if view.controller not in view.brokers:
        fleet_operations.mark_waiting(operation, FleetStep.CONTROLLER_ELECTED, "No broker is controller yet.")
        return False
    fact = f"Broker {view.controller} is controller"
    fleet_operations.mark_done(operation, FleetStep.CONTROLLER_ELECTED, fact, controller=view.controller)
    return _finish(operation)


def _await_answers(operation: FleetOperation, brokers: list[Broker]) -> bool:
    """Queries every broker for its status, and stores the answers as the observer does. True if all have answered."""
    answers = observe.query_all(observe.targets_of_cluster(operation.cluster), "/v1/status")
    now = timezone.now()
    for broker in brokers:
        body = answers.bodies.get(broker.number)
        if body is not None:
            Broker.objects.filter(pk=broker.pk).update(observed=dict(body), observed_at=now)
    unresponsive = [broker for broker in brokers if broker.number not in answers.bodies]
    count = len(brokers) - len(unresponsive)
    if not unresponsive:
        fleet_operations.mark_done(
            operation, FleetStep.BROKERS_ANSWER, f"{count} of {count}", answering=count, of=count
        )
        return True
    fact = f"{count} of {len(brokers)}. {_unresponsive_reason(unresponsive[0])}"
    fleet_operations.mark_waiting(operation, FleetStep.BROKERS_ANSWER, fact, answering=count, of=len(brokers))
    return False


def _unresponsive_reason(broker: Broker) -> str:
    """Returns the reason why a broker does not answer yet, as a sentence."""
    if not selectors.agent_is_alive(broker.host):
        return f"The agent of host {broker.host.name} is not there: run manage.py agent --host {broker.host.name}"
    if broker.process_error and broker.process_state in (ProcessState.BACKING_OFF, ProcessState.STOPPED):
        return f"Broker {broker.number} ended: {broker.process_error}"
    return f"Broker {broker.number} is being started."


@transaction.atomic
def _finish(operation: FleetOperation) -> bool:
    """Marks the cluster as ready. False if the operation or the cluster has ended meanwhile."""
    cluster = Cluster.objects.select_for_update().get(pk=operation.cluster_id)
    if cluster.state != ClusterState.FORMING or not fleet_operations.succeed(operation):
        return False
    cluster.state = ClusterState.READY
    cluster.save_changes(["state"])
    audit.record(system_actor(ACTOR), "cluster.formed", cluster, None, {"operation": operation.pk})
    log.info("cluster.formed", cluster_id=cluster.pk)
    wake_waiting()
    return True
