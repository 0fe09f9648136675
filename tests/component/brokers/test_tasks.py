"""Lost and repeated tasks: handling by the queue, the sweep and the cleanup."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
from django.conf import settings
from django.utils import timezone

from brokers import tasks
from brokers.contract import paths
from brokers.dataplane import probe
from brokers.limits import ACK_DEADLINE_S, SWEEP_EVERY_S
from brokers.models import Cluster, Placement
from brokers.monitoring import health
from brokers.provisioning import reconciler, sweep
from brokers.provisioning.publisher import Publisher
from brokers.provisioning.steps import RetryLater
from config.celery import app
from config.schedule import BEAT_SCHEDULE
from instances import services
from instances.lifecycle.phases import Phase
from instances.models import Instance
from tenants.actors import member_actor
from tests.testkit.api_cases import make_member
from tests.testkit.fleet import AcknowledgingBrokers, make_fleet

pytestmark = pytest.mark.django_db


@pytest.fixture()
def instance(cluster: Cluster) -> Instance:
    return services.create_instance(acting=member_actor(make_member()), name="orders")[0]


@pytest.fixture(autouse=True)
def queue(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of instances that tasks enqueued."""
    asked: list[str] = []
    monkeypatch.setattr(tasks, "enqueue_reconciliation", lambda instance_id, **_options: asked.append(instance_id))
    monkeypatch.setattr(tasks, "close_old_connections", lambda: None)
    return asked


def test_a_task_nobody_sent_is_made_up_for_by_the_sweep(
    brokers: AcknowledgingBrokers, instance: Instance, queue: list[str]
) -> None:
    assert tasks.sweep_instances() == 1
    assert queue == [instance.pk]
    reconciler.reconcile(instance.pk)
    assert tasks.sweep_instances() == 0


def test_a_task_run_twice_is_harmless(brokers: AcknowledgingBrokers, instance: Instance) -> None:
    first = tasks.reconcile_instance.apply((instance.pk,)).get()
    assert tasks.reconcile_instance.apply((instance.pk,)).get() == first == "running at generation 1"


def test_a_task_for_an_instance_that_is_gone_does_nothing(cluster: Cluster) -> None:
    assert tasks.reconcile_instance.apply(("ins-00000000",)).get() == "nothing to do"


def test_a_task_that_comes_too_early_is_tried_again_and_then_left_to_the_sweep(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def not_yet(instance_id: str) -> str:
        tries.append(instance_id)
        raise RetryLater("brokers have not confirmed")

    monkeypatch.setattr(reconciler, "reconcile", not_yet)
    outcome = tasks.reconcile_instance.apply((instance.pk,)).get()
    assert outcome == "left to the sweep: brokers have not confirmed"
    assert len(tries) == tasks.RETRIES_MAX + 1


def test_a_queue_that_does_not_answer_never_fails_or_delays_a_request(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    with app.connection_for_write("redis://127.0.0.1:1/0") as dead:
        monkeypatch.setattr(app, "connection_for_write", lambda *_args, **_kwargs: dead)
        monkeypatch.setattr(app.amqp, "_producer_pool", None)
        monkeypatch.setattr(app, "_pool", None)
        began_s = time.monotonic()
        tasks.enqueue_reconciliation(instance.pk)
        assert time.monotonic() - began_s < 2.0


def test_a_queue_that_accepts_and_keeps_silent_does_not_keep_a_request_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert app.conf.broker_transport_options.keys() == {"socket_connect_timeout", "socket_timeout"}
    quick = dict.fromkeys(app.conf.broker_transport_options, 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        with app.connection_for_write(address, transport_options=quick) as deaf:
            monkeypatch.setattr(app, "connection_for_write", lambda *_args, **_kwargs: deaf)
            monkeypatch.setattr(app.amqp, "_producer_pool", None)
            monkeypatch.setattr(app, "_pool", None)
            began_s = time.monotonic()
            tasks.enqueue_reconciliation("ins-00000000")
            assert time.monotonic() - began_s < 2.0


def test_tasks_of_a_sweep_expire_when_the_next_one_begins(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(tasks, "close_old_connections", lambda: None)
    monkeypatch.setattr(sweep, "instance_ids_needing_work", lambda _now: [instance.pk])
    sent: list[tuple[tuple[str], float]] = []

    def send(args: tuple[str], *, expires: float, **_options: object) -> None:
        sent.append((args, expires))

    monkeypatch.setattr(tasks.reconcile_instance, "apply_async", send)
    tasks.sweep_instances()
    assert sent == [((instance.pk,), SWEEP_EVERY_S)]
    assert BEAT_SCHEDULE["sweep instances"]["schedule"] == SWEEP_EVERY_S


def test_where_no_broker_lives_nobody_is_waited_for_and_nothing_is_piled_up(
    cluster: Cluster, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Publisher, "announce", lambda *_args: pytest.fail("there is nobody to tell"))
    began_s = time.monotonic()
    with pytest.raises(RetryLater, match="have not confirmed"):
        reconciler.reconcile(instance.pk)
    assert time.monotonic() - began_s < ACK_DEADLINE_S / 2


def test_a_database_that_is_gone_without_a_word_is_given_up_after_seconds() -> None:
    options = settings.DATABASES["default"]["OPTIONS"]
    assert options["connect_timeout"] <= 5
    assert options["tcp_user_timeout"] <= 10_000


def test_without_zookeeper_the_sweep_says_what_postgresql_knows(
    tmp_path: Path, instance: Instance, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brokers.infra.zookeeper.ZOOKEEPER_CONNECT_TIMEOUT_S", 0.1)
    Cluster.objects.filter(pk=cluster.pk).update(zookeeper="127.0.0.1:1")
    assert sweep.instance_ids_needing_work(timezone.now()) == [instance.pk]
    assert sweep.delete_leftovers() == 0


def test_remains_of_a_crash_are_tidied(
    brokers: AcknowledgingBrokers, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned: list[str] = []
    monkeypatch.setattr(probe, "clean_up", cleaned.append)
    reconciler.reconcile(instance.pk)
    cleaned.clear()
    brokers.create_topic(f"{instance.pk}.{probe.PROBE_TOPIC}")
    brokers.create_topic(f"{instance.pk}.orders")
    assert sweep.delete_leftovers() == 1
    assert cleaned == [instance.pk]
    Placement.objects.filter(instance=instance).delete()
    Instance.objects.filter(pk=instance.pk).update(phase=Phase.FAILED.value)
    assert sweep.delete_leftovers() == 1
    assert brokers.read(paths.instance(instance.pk)) is None


def test_observing_brokers_that_do_not_answer_changes_nothing(tmp_path: Path) -> None:
    cluster = make_fleet(tmp_path, name="silent")
    assert health.store_statuses(timezone.now()) == 0
    assert cluster.brokers.filter(observed_at__isnull=False).count() == 0
