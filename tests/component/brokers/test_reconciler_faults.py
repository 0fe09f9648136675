"""The reconciler with lost, repeated, reordered and killed tasks: the next call reaches the same state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from brokers.contract import paths
from brokers.contract.documents import InstanceDocument
from brokers.dataplane import probe
from brokers.infra.locks import exclusive_lock
from brokers.models import Cluster, PortLease
from brokers.provisioning import publisher, reconciler, steps, sweep
from brokers.provisioning.steps import RetryLater
from instances import services
from instances.choices import OperationState
from instances.lifecycle.phases import Phase
from instances.models import Instance, Operation
from tenants.actors import Actor, member_actor
from tests.testkit.api_cases import make_member
from tests.testkit.fleet import AcknowledgingBrokers
from tests.testkit.instances import OPEN_ROUTES

pytestmark = pytest.mark.django_db


@pytest.fixture()
def acting() -> Actor:
    return member_actor(make_member())


@pytest.fixture()
def instance(acting: Actor, cluster: Cluster) -> Instance:
    return services.create_instance(acting=acting, name="orders", routes=OPEN_ROUTES)[0]


def document(brokers: AcknowledgingBrokers, instance: Instance) -> InstanceDocument:
    raw = brokers.read(paths.instance(instance.pk))
    assert raw is not None
    return InstanceDocument.from_json(raw)


def locked(instance: Instance) -> Instance:
    return Instance.objects.select_for_update(of=("self",)).select_related("tenant").get(pk=instance.pk)


class Killed(Exception):
    """Death of the worker."""


KILL_POINTS = (
    (steps, "begin_pass"),
    (steps, "place"),
    (steps, "report_address"),
    (steps, "publish"),
    (publisher.Publisher, "publish_instance"),
    (publisher.Publisher, "await_acks"),
    (probe, "first_message"),
    (steps, "apply"),
    (probe, "clean_up"),
)


@pytest.mark.parametrize(("owner", "name"), KILL_POINTS, ids=[name for _, name in KILL_POINTS])
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_step_the_next_call_finishes_the_work(
    brokers: AcknowledgingBrokers,
    instance: Instance,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    when: str,
) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    def dies(*args: Any, **kwargs: Any) -> Any:
        if when == "after":
            original(*args, **kwargs)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dies)
        with pytest.raises(Killed):
            reconciler.reconcile(instance.pk)
    reconciler.reconcile(instance.pk)
    instance.refresh_from_db()
    assert instance.current_phase is Phase.RUNNING
    assert document(brokers, instance).generation == instance.observed_generation == instance.generation
    assert PortLease.objects.filter(instance=instance).count() == 3
    assert Operation.objects.get(instance=instance).state == OperationState.SUCCEEDED
    assert instance.pk not in sweep.instance_ids_needing_work(timezone.now())


def test_a_request_during_a_reconciliation_is_done_in_the_end(
    brokers: AcknowledgingBrokers, instance: Instance, acting: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = steps.publish
    asked = []

    def interrupted(*args: Any) -> bool:
        written = original(*args)
        if not asked:
            row = locked(instance)
            asked.append(row)
            services.delete_instance(acting=acting, instance=row)
        return written

    monkeypatch.setattr(steps, "publish", interrupted)
    reconciler.reconcile(instance.pk)
    assert Instance.objects.get(pk=instance.pk).phase == Phase.DELETED
    assert brokers.read(paths.instance(instance.pk)) is None


def test_a_document_that_disappeared_is_found_by_the_sweep_and_written_again(
    brokers: AcknowledgingBrokers, instance: Instance
) -> None:
    reconciler.reconcile(instance.pk)
    assert sweep.instance_ids_needing_work(timezone.now()) == []
    brokers.delete(paths.instance(instance.pk))
    assert sweep.instance_ids_needing_work(timezone.now()) == [instance.pk]
    reconciler.reconcile(instance.pk)
    assert document(brokers, instance).generation == 1


def test_a_document_that_cannot_be_read_keeps_no_other_from_the_sweep_and_is_written_again(
    brokers: AcknowledgingBrokers, instance: Instance, acting: Actor
) -> None:
    other = services.create_instance(acting=acting, name="payments", routes=OPEN_ROUTES)[0]
    for row in (instance, other):
        reconciler.reconcile(row.pk)
    brokers.delete(paths.instance(other.pk))
    brokers.write(paths.instance(instance.pk), b"{")
    assert sorted(sweep.instance_ids_needing_work(timezone.now())) == sorted([instance.pk, other.pk])
    reconciler.reconcile(instance.pk)
    assert document(brokers, instance).generation == 1
    assert sweep.instance_ids_needing_work(timezone.now()) == [other.pk]


def test_a_late_writer_never_puts_an_older_document_back(brokers: AcknowledgingBrokers, instance: Instance) -> None:
    reconciler.reconcile(instance.pk)
    newer = document(brokers, instance)
    client = publisher.Publisher(reconciler.zookeeper.session(Cluster.objects.get(placements__instance=instance)), "")
    client._chroot = brokers.root
    older = InstanceDocument(generation=0, produce_bps=1, consume_bps=1, capacity_bytes=1)
    with pytest.raises(publisher.PublishConflict):
        client.publish_instance(instance.pk, older)
    assert document(brokers, instance) == newer


@pytest.mark.django_db(transaction=True)
def test_a_second_worker_leaves_an_instance_that_is_worked_on(instance: Instance) -> None:
    import threading

    from django.db import connection

    taken, done = threading.Event(), threading.Event()

    def first_worker() -> None:
        with exclusive_lock(instance.pk):
            taken.set()
            done.wait(10)
        connection.close()

    worker = threading.Thread(target=first_worker)
    worker.start()
    assert taken.wait(10)
    with pytest.raises(RetryLater, match="another worker"):
        reconciler.reconcile(instance.pk)
    done.set()
    worker.join()
