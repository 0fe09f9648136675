"""Reconciles an instance with its row: compares the configured with the actual state, and acts on the difference.

It does not depend on requests, so it may be called twice, late, or out of order, and may crash at any point.

`reconcile` is the entry point; the steps are in `steps` and `purge`.
"""

from __future__ import annotations

import structlog
from django.utils import timezone
from django.utils.translation import gettext_noop

from brokers.contract.routes import PLAINTEXT
from brokers.dataplane import probe
from brokers.infra import zookeeper
from brokers.infra.locks import Busy, exclusive_lock
from brokers.limits import ACK_DEADLINE_S, CLOSE_DEADLINE_S, PROVISION_DEADLINE_S
from brokers.models import Cluster, Placement
from brokers.operations import dedicated
from brokers.placement import forecasts
from brokers.provisioning import publisher as publishing
from brokers.provisioning import steps as steps
from brokers.provisioning.publisher import Acks, PublishConflict, Publisher
from brokers.provisioning.purge import purge
from brokers.provisioning.steps import CannotProvision, ReconcileContext, RetryLater, WaitsForCapacity
from instances.choices import Reason, Step
from instances.lifecycle import operations
from instances.lifecycle.phases import Phase
from instances.models import Instance
from tenants.actors import system_actor
from tenants.errors import DomainError, Message, Unavailable

log = structlog.get_logger(__name__)

# Changes made during a pass are handled immediately, but a row that keeps changing is left to the sweep.
PASSES_MAX = 5
PORT_REPLACEMENTS_MAX = 3


def reconcile(instance_id: str) -> str:
    """Reconciles one instance until its configuration is confirmed. Returns a sentence about what was done.

    Raises `RetryLater` if the call must be repeated soon: brokers or ZooKeeper do not answer, or another worker holds
    the lock. The state is then one in which it can be repeated.
    """
    message = "nothing to do"
    for _ in range(PASSES_MAX):
        try:
            with exclusive_lock(instance_id):
                message = _reconcile_once(instance_id)
        except Busy:
            raise RetryLater("another worker is at it") from None
        except (PublishConflict, *zookeeper.ERRORS) as error:
            raise RetryLater(f"ZooKeeper: {type(error).__name__}") from error
        except Unavailable as error:
            raise RetryLater(error.detail) from error
        # Checked after the lock was released: a worker that found it locked relies on this one.
        if not _has_newer_generation(instance_id):
            break
    log.info("instance.reconciled", instance_id=instance_id, outcome=message)
    return message


def _reconcile_once(instance_id: str) -> str:
    instance = Instance.objects.select_related("tenant").filter(pk=instance_id).first()
    if instance is None or instance.current_phase in (Phase.DELETED, Phase.FAILED):
        return "nothing to do"
    context = steps.begin_pass(instance, system_actor("reconciler", instance.tenant))
    if instance.is_deleted and instance.restorable_until and instance.restorable_until <= timezone.now():
        _close_to_clients(context)
        purge(context, _publisher_of(instance))
        return "deleted for good"
    if instance.is_deleted and _publisher_of(instance) is None:
        return "deleted before it was placed"
    try:
        return _apply(context)
    except WaitsForCapacity as why:
        return _wait_for_capacity(context, why)
    except CannotProvision as why:
        if instance.first_running_at is not None:
            raise RetryLater(why.detail) from why
        _unpublish(context)
        steps.fail(context, why)
        return f"failed: {why.detail}"


def _wait_for_capacity(context: ReconcileContext, why: WaitsForCapacity) -> str:
    """Records that the instance waits for capacity; the sweep retries. A dedicated instance gets a cluster of its own,
    if there are free hosts.
    """
    is_formed = dedicated.ensure_cluster(context.instance) is not None
    fact, data = (
        (forecasts.FORMING, {"outcome": "forming"})
        if is_formed
        else (why.missing_capacity.detail, why.missing_capacity.data)
    )
    for operation in context.operations:
        operations.mark_step_waiting(operation, Step.PLACED, fact, data)
    return "waits for its cluster" if is_formed else f"waits: {fact}"


def _close_to_clients(context: ReconcileContext) -> None:
    """Waits until the brokers of an instance have confirmed its deletion, before its topics are deleted.

    Otherwise a connected client could create another topic, which would never be deleted.

    Waits a limited time for brokers that do not answer. Raises `RetryLater` meanwhile.
    """
    instance = context.instance
    if instance.observed_generation >= instance.generation or _publisher_of(instance) is None:
        return
    try:
        _apply(context)
    except CannotProvision as why:
        log.warning("instance.not_closed", instance_id=instance.pk, reason=why.detail)
    except RetryLater:
        deleted_at = instance.deleted_at or timezone.now()
        if (timezone.now() - deleted_at).total_seconds() < CLOSE_DEADLINE_S:
            raise


def _apply(context: ReconcileContext) -> str:
    cluster = steps.place(context)
    publisher = _publisher(cluster)
    steps.lease_new_routes(context)
    leases = steps.report_address(context)
    steps.publish(context, publisher, leases)
    brokers = sorted({lease.broker.number for lease in leases})
    broker_count = len(brokers)
    acks = publisher.await_acks(
        context.instance.pk,
        context.instance.generation,
        brokers,
        timeout_s=ACK_DEADLINE_S,
        on_progress=lambda acks_so_far: context.start_step(
            Step.LISTENERS_OPEN, open=len(acks_so_far.confirmed), of=broker_count
        ),
    )
    if acks.unable:
        detail = f"A route could not be opened: {sorted(acks.unable.values())[0]}."
        _require_time_left(context, Reason.PORT_NOT_OPEN, detail)
        raise RetryLater(detail)
    if acks.refused:
        return _replace_refused_ports(context, leases, acks)
    if not acks.is_complete:
        _wait_or_fail(context, publisher, acks)
    open_count = len(acks.confirmed)
    context.finish_step(
        Step.LISTENERS_OPEN, f"{open_count} of {broker_count} brokers", open=open_count, of=broker_count
    )
    if context.instance.first_running_at is None and not context.instance.is_deleted:
        _probe_first_message(context)
    instance = steps.apply(context, acks)
    _clean_up(context)
    return f"{instance.phase} at generation {instance.observed_generation}"


def _probe_first_message(context: ReconcileContext) -> None:
    context.start_step(Step.FIRST_MESSAGE)
    try:
        duration_ms = probe.first_message(context.instance.pk)
    except probe.ProbeFailed as error:
        _require_time_left(context, Reason.PROBE_FAILED, f"The first message did not come back: {error}.")
        raise RetryLater(str(error)) from error
    context.finish_step(Step.FIRST_MESSAGE, f"{duration_ms:.0f} ms", took_ms=round(duration_ms))


def _clean_up(context: ReconcileContext) -> None:
    """Deletes the probe's topic after a first provisioning, when no caller waits.

    After a crash, `sweep.delete_leftovers` does.
    """
    if context.instance.first_running_at is not None:
        return
    try:
        probe.clean_up(context.instance.pk)
    except DomainError as error:
        log.warning("probe.not_removed", instance_id=context.instance.pk, reason=error.detail)


def _replace_refused_ports(context: ReconcileContext, leases: list[steps.PortLease], acks: Acks) -> str:
    """Replaces refused ports; the loop in `reconcile` publishes the replacements."""
    if context.instance.generation > PORT_REPLACEMENTS_MAX and context.instance.first_running_at is None:
        raise CannotProvision(
            Reason.PORT_NOT_OPEN,
            Message(gettext_noop("A port could not be opened: %(why)s."), why=sorted(acks.refused.values())[0]),
        )
    steps.replace_ports(context, leases, acks)
    return f"ports replaced on brokers {sorted(acks.refused)}"


def _wait_or_fail(context: ReconcileContext, publisher: Publisher, acks: Acks) -> None:
    # Only live brokers are notified again: a broker that is down reads all documents when it starts.
    if acks.waiting:
        publisher.announce(context.instance.pk)
    unconfirmed = sorted(acks.waiting) or sorted(acks.down)
    detail = f"Brokers {unconfirmed} did not confirm in time."
    if acks.waiting and any(route.security != PLAINTEXT for route in context.instance.routes_in_order):
        detail += " Brokers of an earlier version open no protected routes: upgrade them and try again."
    _require_time_left(context, Reason.BROKERS_SILENT, detail)
    raise RetryLater(f"brokers {unconfirmed} have not confirmed generation {context.instance.generation}")


def _require_time_left(context: ReconcileContext, reason: Reason, detail: str) -> None:
    """Fails a first provisioning that takes too long; an instance that ran before is retried without limit."""
    age_s = (timezone.now() - context.instance.phase_since).total_seconds()
    if context.instance.current_phase is Phase.PROVISIONING and age_s > PROVISION_DEADLINE_S:
        raise CannotProvision(reason, f"{detail} Nothing was charged.")


def _unpublish(context: ReconcileContext) -> None:
    """Removes the documents of a failed provisioning."""
    publisher = _publisher_of(context.instance)
    if publisher is not None:
        leases = steps.PortLease.objects.filter(instance=context.instance)
        publisher.unpublish_instance(context.instance.pk, leases.values_list("broker__number", "port"))
        publisher.forget_acks(context.instance.pk)


def _has_newer_generation(instance_id: str) -> bool:
    row = Instance.objects.filter(pk=instance_id).values("phase", "reason", "generation", "observed_generation").first()
    if row is None or row["phase"] in (Phase.DELETED, Phase.FAILED):
        return False
    if row["phase"] == Phase.PROVISIONING and row["reason"] == Reason.NO_ROOM:
        return False  # the sweep retries
    return bool(row["generation"] > row["observed_generation"])


def _publisher_of(instance: Instance) -> Publisher | None:
    placement = Placement.objects.select_related("cluster").filter(instance=instance).first()
    return None if placement is None else _publisher(placement.cluster)


def _publisher(cluster: Cluster) -> Publisher:
    try:
        return publishing.Publisher(zookeeper.session(cluster), cluster.chroot)
    except DomainError as error:
        raise RetryLater(error.detail) from error
