"""Reconciles an instance with its row. Level-triggered: it compares the configured with the actual state, never with
the request, so it may be called twice, late, or out of order, and may crash at any point.

`reconcile` is the entry point; the steps are in `steps` and `purge`.
"""

from __future__ import annotations

import structlog
from django.utils import timezone
from django.utils.translation import gettext_noop

from brokers.contract.routes import PLAINTEXT
from brokers.dataplane import probe
from brokers.infra import zookeeper
from brokers.infra.locks import Busy, only_one
from brokers.limits import ACK_DEADLINE_S, CLOSE_DEADLINE_S, PROVISION_DEADLINE_S
from brokers.models import Cluster, Placement
from brokers.operations import dedicated
from brokers.placement import forecasts
from brokers.provisioning import publisher as publishing
from brokers.provisioning import steps as steps
from brokers.provisioning.publisher import Acks, LostRace, Publisher
from brokers.provisioning.purge import purge
from brokers.provisioning.steps import CannotProvision, NotYet, WaitsForCapacity, Work
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

    Raises `NotYet` if the call must be repeated soon (brokers or ZooKeeper do not answer, or another worker holds the
    lock), with a state in which it can be repeated.
    """
    message = "nothing to do"
    for _ in range(PASSES_MAX):
        try:
            with only_one(instance_id):
                message = _one_pass(instance_id)
        except Busy:
            raise NotYet("another worker is at it") from None
        except (LostRace, *zookeeper.TROUBLE) as error:
            raise NotYet(f"ZooKeeper: {type(error).__name__}") from error
        except Unavailable as error:
            raise NotYet(error.detail) from error
        # Checked after the lock was released: a worker that found it locked relies on this one.
        if not _wants_more(instance_id):
            break
    log.info("instance.reconciled", instance_id=instance_id, outcome=message)
    return message


def _one_pass(instance_id: str) -> str:
    instance = Instance.objects.select_related("tenant").filter(pk=instance_id).first()
    if instance is None or instance.current_phase in (Phase.DELETED, Phase.FAILED):
        return "nothing to do"
    work = steps.take_up(instance, system_actor("reconciler", instance.tenant))
    if instance.is_deleted and instance.restorable_until and instance.restorable_until <= timezone.now():
        _close_to_clients(work)
        purge(work, _publisher_of(instance))
        return "deleted for good"
    if instance.is_deleted and _publisher_of(instance) is None:
        return "deleted before it was placed"
    try:
        return _apply(work)
    except WaitsForCapacity as why:
        return _wait_for_capacity(work, why)
    except CannotProvision as why:
        if instance.first_running_at is not None:
            raise NotYet(why.detail) from why
        _unpublish(work)
        steps.give_up(work, why)
        return f"failed: {why.detail}"


def _wait_for_capacity(work: Work, why: WaitsForCapacity) -> str:
    """Records that the instance waits for capacity; the sweep retries. A dedicated instance gets a cluster of its own,
    if there are free hosts.
    """
    is_formed = dedicated.ensure_cluster(work.instance) is not None
    fact, data = (forecasts.FORMING, {"outcome": "forming"}) if is_formed else (why.room.detail, why.room.data)
    for operation in work.operations:
        operations.step_waits(operation, Step.PLACED, fact, data)
    return "waits for its cluster" if is_formed else f"waits: {fact}"


def _close_to_clients(work: Work) -> None:
    """Has the brokers of an instance confirm that it is being deleted before its topics are deleted: a connected client
    could create another topic, which would never be deleted.

    Waits a limited time for brokers that do not answer. Raises `NotYet` meanwhile.
    """
    instance = work.instance
    if instance.observed_generation >= instance.generation or _publisher_of(instance) is None:
        return
    try:
        _apply(work)
    except CannotProvision as why:
        log.warning("instance.not_closed", instance_id=instance.pk, reason=why.detail)
    except NotYet:
        deleted_at = instance.deleted_at or timezone.now()
        if (timezone.now() - deleted_at).total_seconds() < CLOSE_DEADLINE_S:
            raise


def _apply(work: Work) -> str:
    cluster = steps.place(work)
    publisher = _publisher(cluster)
    steps.lease_new_routes(work)
    leases = steps.note_address(work)
    steps.publish(work, publisher, leases)
    brokers = sorted({item.broker.number for item in leases})
    of = len(brokers)
    acks = publisher.await_acks(
        work.instance.pk,
        work.instance.generation,
        brokers,
        timeout_s=ACK_DEADLINE_S,
        on_progress=lambda known: work.started(Step.LISTENERS_OPEN, open=len(known.confirmed), of=of),
    )
    if acks.unable:
        detail = f"A route could not be opened: {sorted(acks.unable.values())[0]}."
        _require_time_left(work, Reason.PORT_NOT_OPEN, detail)
        raise NotYet(detail)
    if acks.refused:
        return _other_ports(work, leases, acks)
    if not acks.is_complete:
        _wait_or_give_up(work, publisher, acks)
    is_open = len(acks.confirmed)
    work.done(Step.LISTENERS_OPEN, f"{is_open} of {of} brokers", open=is_open, of=of)
    if work.instance.first_running_at is None and not work.instance.is_deleted:
        _first_message(work)
    instance = steps.apply(work, acks)
    _clean_up(work)
    return f"{instance.phase} at generation {instance.observed_generation}"


def _first_message(work: Work) -> None:
    work.started(Step.FIRST_MESSAGE)
    try:
        took_ms = probe.first_message(work.instance.pk)
    except probe.ProbeFailed as error:
        _require_time_left(work, Reason.PROBE_FAILED, f"The first message did not come back: {error}.")
        raise NotYet(str(error)) from error
    work.done(Step.FIRST_MESSAGE, f"{took_ms:.0f} ms", took_ms=round(took_ms))


def _clean_up(work: Work) -> None:
    """Deletes the probe's topic after a first provisioning, when no caller waits; after a crash, `sweep.tidy` does."""
    if work.instance.first_running_at is not None:
        return
    try:
        probe.clean_up(work.instance.pk)
    except DomainError as error:
        log.warning("probe.not_removed", instance_id=work.instance.pk, reason=error.detail)


def _other_ports(work: Work, leases: list[steps.PortLease], acks: Acks) -> str:
    """Replaces refused ports; the loop in `reconcile` publishes the replacements."""
    if work.instance.generation > PORT_REPLACEMENTS_MAX and work.instance.first_running_at is None:
        raise CannotProvision(
            Reason.PORT_NOT_OPEN,
            Message(gettext_noop("A port could not be opened: %(why)s."), why=sorted(acks.refused.values())[0]),
        )
    steps.replace_ports(work, leases, acks)
    return f"ports replaced on brokers {sorted(acks.refused)}"


def _wait_or_give_up(work: Work, publisher: Publisher, acks: Acks) -> None:
    # Only live brokers are notified again: a broker that is down reads all documents when it starts.
    if acks.waiting:
        publisher.announce(work.instance.pk)
    silent = sorted(acks.waiting) or sorted(acks.down)
    detail = f"Brokers {silent} did not confirm in time."
    if acks.waiting and any(route.security != PLAINTEXT for route in work.instance.routes_in_order):
        detail += " Brokers of an earlier version open no protected routes: upgrade them and try again."
    _require_time_left(work, Reason.BROKERS_SILENT, detail)
    raise NotYet(f"brokers {silent} have not confirmed generation {work.instance.generation}")


def _require_time_left(work: Work, reason: Reason, detail: str) -> None:
    """Fails a first provisioning that takes too long; an instance that ran before is retried without limit."""
    age_s = (timezone.now() - work.instance.phase_since).total_seconds()
    if work.instance.current_phase is Phase.PROVISIONING and age_s > PROVISION_DEADLINE_S:
        raise CannotProvision(reason, f"{detail} Nothing was charged.")


def _unpublish(work: Work) -> None:
    """Removes the documents of a failed provisioning."""
    publisher = _publisher_of(work.instance)
    if publisher is not None:
        leases = steps.PortLease.objects.filter(instance=work.instance)
        publisher.unpublish_instance(work.instance.pk, leases.values_list("broker__number", "port"))
        publisher.forget_acks(work.instance.pk)


def _wants_more(instance_id: str) -> bool:
    row = Instance.objects.filter(pk=instance_id).values("phase", "reason", "generation", "observed_generation").first()
    if row is None or row["phase"] in (Phase.DELETED, Phase.FAILED):
        return False
    if row["phase"] == Phase.PROVISIONING and row["reason"] == Reason.NO_ROOM:
        return False  # the sweep retries
    return bool(row["generation"] > row["observed_generation"])


def _publisher_of(instance: Instance) -> Publisher | None:
    placed = Placement.objects.select_related("cluster").filter(instance=instance).first()
    return None if placed is None else _publisher(placed.cluster)


def _publisher(cluster: Cluster) -> Publisher:
    try:
        return publishing.Publisher(zookeeper.session(cluster), cluster.chroot)
    except DomainError as error:
        raise NotYet(error.detail) from error
