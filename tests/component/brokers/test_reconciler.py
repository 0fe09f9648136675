"""The reconciler with a real ZooKeeper: its documents, and their independence of lost, repeated and killed tasks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from brokers.contract import paths
from brokers.contract.documents import InstanceDocument, InstanceTopicDocument
from brokers.dataplane import probe
from brokers.models import Cluster, Host, Placement, PortLease
from brokers.provisioning import oauth, reconciler, sweep
from brokers.provisioning.steps import RetryLater
from instances import services
from instances.choices import OperationState, StepState
from instances.lifecycle.phases import Phase
from instances.models import Instance, OAuthConfiguration, Operation, RouteCertificates, TopicAllowList
from tenants import services as tenant_services
from tenants.actors import Actor, member_actor, system_actor
from tenants.choices import SuspensionReason
from tenants.models import AuditEntry
from tests.testkit.api_cases import make_member
from tests.testkit.client_certificates import Authority
from tests.testkit.fleet import AcknowledgingBrokers, make_secured_route
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


def test_a_requested_instance_runs_after_one_call(
    brokers: AcknowledgingBrokers, instance: Instance, probed: list[str]
) -> None:
    assert reconciler.reconcile(instance.pk) == "running at generation 1"
    instance.refresh_from_db()
    assert instance.current_phase is Phase.RUNNING
    assert instance.observed_generation == instance.generation == 1
    assert probed == [instance.pk]
    published = document(brokers, instance)
    assert published.state == "active"
    assert published.produce_bps == published.consume_bps == 5_000_000
    assert published.capacity_bytes == 20_000_000_000
    assert set(published.ports) == {1, 2, 3}
    assert instance.bootstrap_servers.split(",") == [published.endpoints[number] for number in (1, 2, 3)]
    for number, port in published.ports.items():
        assert brokers.read(paths.instance_port(number, port)) == instance.pk.encode()


def test_the_operation_tells_every_step_with_its_time_and_a_fact(
    brokers: AcknowledgingBrokers, instance: Instance
) -> None:
    reconciler.reconcile(instance.pk)
    operation = Operation.objects.get(instance=instance)
    assert operation.state == OperationState.SUCCEEDED
    assert operation.progress == 1.0
    names = [step["name"] for step in operation.steps]
    assert names == [
        "accepted", "placed", "address_reserved", "limits_published", "listeners_open", "first_message",
    ]  # fmt: skip
    assert all(step["state"] == StepState.DONE and step["fact"] for step in operation.steps)
    times = [step["at_ms"] for step in operation.steps]
    assert times == sorted(times)
    assert operation.steps[4]["data"] == {"open": 3, "of": 3}


def test_a_second_call_writes_nothing(brokers: AcknowledgingBrokers, instance: Instance, probed: list[str]) -> None:
    reconciler.reconcile(instance.pk)
    changes, version = brokers.children(paths.CHANGES), Instance.objects.get(pk=instance.pk).version
    assert reconciler.reconcile(instance.pk) == "running at generation 1"
    assert brokers.children(paths.CHANGES) == changes
    assert Instance.objects.get(pk=instance.pk).version == version
    assert probed == [instance.pk]


def test_a_broker_that_is_down_is_said_and_does_not_hold_the_others_up(
    brokers: AcknowledgingBrokers, instance: Instance
) -> None:
    brokers.die(3)
    reconciler.reconcile(instance.pk)
    instance.refresh_from_db()
    assert instance.current_phase is Phase.RUNNING
    listening = next(condition for condition in instance.conditions if condition["type"] == "Listening")
    assert listening["status"] is False
    assert listening["message"] == "Down: broker 3."


def test_silent_brokers_are_waited_for_and_named(
    brokers: AcknowledgingBrokers, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "ACK_DEADLINE_S", 0.2)
    brokers.silent = {2}
    with pytest.raises(RetryLater, match=r"brokers \[2\]"):
        reconciler.reconcile(instance.pk)
    assert Instance.objects.get(pk=instance.pk).phase == Phase.PROVISIONING
    listening = Operation.objects.get(instance=instance).steps[4]
    assert (listening["state"], listening["data"]) == (StepState.RUNNING, {"open": 2, "of": 3})
    brokers.silent = set()
    brokers.look_again()
    assert reconciler.reconcile(instance.pk) == "running at generation 1"


def test_brokers_silent_for_too_long_fail_the_instance_and_give_everything_back(
    brokers: AcknowledgingBrokers, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "ACK_DEADLINE_S", 0.1)
    brokers.silent = {1, 2, 3}
    with pytest.raises(RetryLater):
        reconciler.reconcile(instance.pk)
    long_ago = timezone.now() - timedelta(seconds=reconciler.PROVISION_DEADLINE_S + 1)
    Instance.objects.filter(pk=instance.pk).update(phase_since=long_ago)
    assert reconciler.reconcile(instance.pk).startswith("failed: ")
    instance.refresh_from_db()
    assert (instance.phase, instance.reason) == ("failed", "brokers_silent")
    assert not PortLease.objects.filter(instance=instance).exists()
    assert not Placement.objects.filter(instance=instance).exists()
    assert brokers.read(paths.instance(instance.pk)) is None
    operation = Operation.objects.get(instance=instance)
    assert operation.error["code"] == "brokers_silent"
    assert "Nothing was charged" in operation.error["detail"]


def test_an_instance_nobody_has_room_for_waits_and_says_what_would_fit(
    brokers: AcknowledgingBrokers, acting: Actor
) -> None:
    large, operation = services.create_instance(
        acting=acting, name="large", plan="large", bandwidth_mb_s=9_000, storage_gb=10
    )
    reconciler.reconcile(large.pk)
    reconciler.reconcile(large.pk)
    large.refresh_from_db()
    operation.refresh_from_db()
    assert (large.phase, large.reason, operation.state) == ("provisioning", "no_room", "running")
    assert operation.steps[1]["data"] == {
        "outcome": "waits", "missing": ["bandwidth"], "largest_bandwidth_mb_s": 3_000, "largest_storage_gb": 0,
    }  # fmt: skip
    assert operation.steps[1]["fact"] == (
        "No shared cluster has 9,000 MB/s free; with this storage 3,000 fit. "
        "It starts by itself when there is room; nothing is charged until then."
    )
    assert not PortLease.objects.filter(instance=large).exists()
    assert AuditEntry.objects.filter(action="instance.waits_for_room", target_id=large.pk).count() == 1


def test_an_instance_that_finds_no_port_waits_and_says_so(
    brokers: AcknowledgingBrokers, instance: Instance, cluster: Cluster
) -> None:
    host = Host.objects.get()
    ports = (host.port_first, host.port_last)
    taken = cluster.brokers.order_by("number")[0].internal_port
    Host.objects.update(port_first=taken, port_last=taken)
    assert "No port is left" in reconciler.reconcile(instance.pk)
    assert not Placement.objects.filter(instance=instance).exists()
    Host.objects.update(port_first=ports[0], port_last=ports[1])
    assert reconciler.reconcile(instance.pk) == "running at generation 1"


def test_a_waiting_instance_is_deleted_at_once_and_its_name_is_free(
    brokers: AcknowledgingBrokers, acting: Actor
) -> None:
    large, _ = services.create_instance(acting=acting, name="large", plan="large", bandwidth_mb_s=9_000, storage_gb=10)
    reconciler.reconcile(large.pk)
    services.delete_instance(acting=acting, instance=locked(large))
    reconciler.reconcile(large.pk)
    assert AuditEntry.objects.filter(action="instance.deleted", target_id=large.pk).count() == 1
    services.create_instance(acting=acting, name="large2", plan="large", bandwidth_mb_s=20, storage_gb=10)


def test_an_instance_starts_by_itself_when_there_is_room(
    brokers: AcknowledgingBrokers, acting: Actor, cluster: Cluster
) -> None:
    cluster.accepts_instances = False
    cluster.save()
    instance, operation = services.create_instance(acting=acting, name="patient")
    reconciler.reconcile(instance.pk)
    long_ago = timezone.now() - timedelta(seconds=reconciler.PROVISION_DEADLINE_S + 1)
    Instance.objects.filter(pk=instance.pk).update(phase_since=long_ago)
    cluster.accepts_instances = True
    cluster.save()
    assert instance.pk in sweep.incomplete_instance_ids(timezone.now())
    assert reconciler.reconcile(instance.pk) == "running at generation 1"
    instance.refresh_from_db()
    operation.refresh_from_db()
    assert (instance.reason, operation.state) == ("", "succeeded")
    assert timezone.now() - instance.phase_since < timedelta(minutes=1)
    (reason,) = Placement.objects.get(instance=instance).reasons
    assert (reason["cluster"], reason["fit"]) == (cluster.name, "chosen")


def test_two_thousand_mb_s_fit_an_empty_cluster_of_three(brokers: AcknowledgingBrokers, acting: Actor) -> None:
    large, _ = services.create_instance(acting=acting, name="large", plan="large", bandwidth_mb_s=2_000, storage_gb=10)
    assert reconciler.reconcile(large.pk) == "running at generation 1"


def test_a_port_that_a_stranger_has_is_replaced(brokers: AcknowledgingBrokers, instance: Instance) -> None:
    first = PortLease.objects.count()
    assert first == 0
    host = Cluster.objects.get(name__startswith="fleet").brokers.first().host  # type: ignore[union-attr]
    brokers.refuses = {2: {host.port_first + 1}}
    assert reconciler.reconcile(instance.pk) == "running at generation 2"
    instance.refresh_from_db()
    ports = set(PortLease.objects.filter(instance=instance).values_list("port", flat=True))
    assert host.port_first + 1 not in ports
    assert len(ports) == 3
    assert {int(address.rpartition(":")[2]) for address in instance.endpoints.values()} == ports


def test_a_resize_is_published_and_confirmed_without_another_probe(
    brokers: AcknowledgingBrokers, instance: Instance, acting: Actor, probed: list[str]
) -> None:
    reconciler.reconcile(instance.pk)
    operation = services.resize_instance(acting=acting, instance=locked(instance), bandwidth_mb_s=40)
    assert operation is not None
    assert Instance.objects.get(pk=instance.pk).phase == Phase.UPDATING
    assert reconciler.reconcile(instance.pk) == "running at generation 2"
    assert document(brokers, instance).produce_bps == 40_000_000
    assert Placement.objects.get(instance=instance).bandwidth_mb_s == 40
    operation.refresh_from_db()
    assert operation.state == OperationState.SUCCEEDED
    assert probed == [instance.pk]


def test_an_instance_that_starts_for_a_suspended_tenant_is_frozen_at_once(
    brokers: AcknowledgingBrokers, instance: Instance, acting: Actor
) -> None:
    assert acting.tenant is not None
    tenant_services.suspend_tenant(
        acting=system_actor("payments"), tenant=acting.tenant, reason=SuspensionReason.UNPAID
    )
    reconciler.reconcile(instance.pk)
    reconciler.reconcile(instance.pk)
    instance.refresh_from_db()
    assert (instance.phase, instance.reason) == ("suspended", "unpaid")
    assert document(brokers, instance).state == "frozen"


def test_suspended_is_frozen_for_brokers_and_resuming_makes_it_active_again(
    brokers: AcknowledgingBrokers, instance: Instance
) -> None:
    reconciler.reconcile(instance.pk)
    operator = system_actor("tests")
    services.suspend_instance(acting=operator, instance=locked(instance))
    reconciler.reconcile(instance.pk)
    assert document(brokers, instance).state == "frozen"
    assert Instance.objects.get(pk=instance.pk).phase == Phase.SUSPENDED
    services.resume_instance(acting=operator, instance=locked(instance))
    reconciler.reconcile(instance.pk)
    assert document(brokers, instance).state == "active"
    assert Instance.objects.get(pk=instance.pk).phase == Phase.RUNNING


def test_a_deleted_instance_keeps_its_address_and_is_restored_as_it_was(
    brokers: AcknowledgingBrokers, instance: Instance, acting: Actor
) -> None:
    reconciler.reconcile(instance.pk)
    before = Instance.objects.get(pk=instance.pk).bootstrap_servers
    services.delete_instance(acting=acting, instance=locked(instance))
    assert reconciler.reconcile(instance.pk) == "deleting at generation 2"
    assert document(brokers, instance).state == "deleting"
    services.restore_instance(acting=acting, instance=locked(instance))
    assert reconciler.reconcile(instance.pk) == "running at generation 3"
    assert document(brokers, instance).state == "active"
    assert Instance.objects.get(pk=instance.pk).bootstrap_servers == before


def test_after_the_grace_period_nothing_of_it_is_left(
    brokers: AcknowledgingBrokers, instance: Instance, acting: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconciler.reconcile(instance.pk)
    brokers.create_topic(f"{instance.pk}.orders")
    OAuthConfiguration.objects.create(instance=instance, issuer="https://a.example.com/", audience="kafka")
    assert oauth.publish(instance.pk)
    assert brokers.children(paths.instance_oauth(instance.pk))
    route = make_secured_route(instance, Authority.make("Acme CA"))
    leased = list(PortLease.objects.filter(instance=instance).values_list("broker__number", "port"))

    def delete_topics(_cluster: Cluster, request: Any) -> Any:
        for name in request.topic_names:
            brokers.delete(paths.topic(name))
        return type("Answer", (), {"responses": [type("One", (), {"error_code": 0})()]})

    monkeypatch.setattr("brokers.provisioning.purge.send_as_cluster", delete_topics)
    services.delete_instance(acting=acting, instance=locked(instance))
    reconciler.reconcile(instance.pk)
    Instance.objects.filter(pk=instance.pk).update(restorable_until=timezone.now())
    assert instance.pk in sweep.instance_ids_needing_work(timezone.now())
    assert reconciler.reconcile(instance.pk) == "deleted for good"
    instance.refresh_from_db()
    assert (instance.current_phase, instance.reason) == (Phase.DELETED, "")  # "can be restored" no longer
    assert brokers.read(paths.instance(instance.pk)) is None
    assert brokers.read(paths.instance_acks(instance.pk)) is None
    assert not OAuthConfiguration.objects.filter(instance=instance).exists()
    assert not RouteCertificates.objects.filter(route=route).exists()
    assert all(brokers.read(paths.instance_port(number, port)) is None for number, port in leased)
    assert not PortLease.objects.filter(instance=instance).exists()
    assert not Placement.objects.filter(instance=instance).exists()
    assert instance.pk not in sweep.instance_ids_needing_work(timezone.now())
    assert reconciler.reconcile(instance.pk) == "nothing to do"


def test_brokers_close_a_purged_instance_before_its_topics_go(
    brokers: AcknowledgingBrokers, instance: Instance, acting: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconciler.reconcile(instance.pk)
    states = []
    monkeypatch.setattr(
        "brokers.provisioning.purge._delete_topics",
        lambda *_: states.append(document(brokers, instance).state),
    )
    services.delete_instance(acting=acting, instance=locked(instance))
    services.purge_instance(acting=acting, instance=locked(instance))
    assert instance.pk in sweep.instance_ids_needing_work(timezone.now())
    assert reconciler.reconcile(instance.pk) == "deleted for good"
    assert states == ["deleting"]
    purged = Operation.objects.get(instance=instance, type="instance.purge")
    assert purged.state == OperationState.SUCCEEDED


def test_silent_brokers_hold_up_a_purge_only_for_a_while(
    brokers: AcknowledgingBrokers, instance: Instance, acting: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconciler.reconcile(instance.pk)
    monkeypatch.setattr(reconciler, "ACK_DEADLINE_S", 0.2)
    brokers.silent.add(2)
    services.delete_instance(acting=acting, instance=locked(instance))
    services.purge_instance(acting=acting, instance=locked(instance))
    with pytest.raises(RetryLater):
        reconciler.reconcile(instance.pk)
    operation = Operation.objects.get(instance=instance, type="instance.purge")
    assert operation.state != OperationState.SUCCEEDED
    long_ago = timezone.now() - timedelta(seconds=reconciler.CLOSE_DEADLINE_S)
    Instance.objects.filter(pk=instance.pk).update(deleted_at=long_ago)
    assert reconciler.reconcile(instance.pk) == "deleted for good"


def test_an_instance_deleted_before_it_ran_goes_at_once(
    brokers: AcknowledgingBrokers, instance: Instance, acting: Actor
) -> None:
    services.delete_instance(acting=acting, instance=locked(instance))
    assert reconciler.reconcile(instance.pk) == "deleted for good"
    assert Instance.objects.get(pk=instance.pk).phase == Phase.DELETED


def test_allow_lists_are_published_for_topics_that_exist(brokers: AcknowledgingBrokers, instance: Instance) -> None:
    reconciler.reconcile(instance.pk)
    brokers.create_topic(f"{instance.pk}.orders")
    for topic in ("orders", "ghost"):
        TopicAllowList.objects.create(instance=instance, topic=topic, administer_ips=["10.0.0.0/8"])
    reconciler.reconcile(instance.pk)
    assert brokers.children(paths.instance_topics(instance.pk)) == [f"{instance.pk}.orders"]
    raw = brokers.read(paths.instance_topic(instance.pk, f"{instance.pk}.orders"))
    assert raw is not None
    assert InstanceTopicDocument.from_json(raw).administer_ips == ("10.0.0.0/8",)


def test_a_probe_that_fails_is_tried_again_and_then_fails_the_instance(
    brokers: AcknowledgingBrokers, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_message(_instance_id: str) -> float:
        raise probe.ProbeFailed("its topic has no leader")

    monkeypatch.setattr(probe, "first_message", no_message)
    with pytest.raises(RetryLater, match="no leader"):
        reconciler.reconcile(instance.pk)
    long_ago = timezone.now() - timedelta(seconds=reconciler.PROVISION_DEADLINE_S + 1)
    Instance.objects.filter(pk=instance.pk).update(phase_since=long_ago)
    reconciler.reconcile(instance.pk)
    instance.refresh_from_db()
    assert (instance.phase, instance.reason) == ("failed", "probe_failed")
