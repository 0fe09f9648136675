"""Steps of the reconciler on rows that change meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import transaction

from brokers.models import Broker, Cluster, PortLease
from brokers.placement import port_leases
from brokers.provisioning import steps
from brokers.provisioning.publisher import Acks
from brokers.provisioning.steps import CannotProvision, ReconcileContext
from instances import interfaces as instance_ports
from instances import services
from instances.lifecycle.phases import Phase
from instances.models import Instance
from tenants.actors import member_actor, system_actor
from tests.testkit.api_cases import make_tenant, owner_of
from tests.testkit.fleet import catalogue, make_fleet, make_instance, plugged

pytestmark = pytest.mark.django_db


@pytest.fixture()
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with plugged(instance_ports.plan_catalogue, catalogue):
        yield make_fleet(tmp_path, brokers=4)


@pytest.fixture()
def instance(cluster: Cluster) -> Instance:
    return make_instance(make_tenant(), phase=Phase.PROVISIONING.value)


def work_on(instance: Instance) -> ReconcileContext:
    """Returns the context of a new reconciliation with its own copy of the row."""
    return ReconcileContext(system_actor("reconciler", instance.tenant), Instance.objects.get(pk=instance.pk), [])


def leases(instance: Instance) -> list[PortLease]:
    return list(PortLease.objects.filter(instance=instance).select_related("broker", "host").order_by("broker__number"))


def live_on(instance: Instance, cluster: Cluster, *numbers: int) -> list[PortLease]:
    with transaction.atomic():
        port_leases.lease(instance, Broker.objects.filter(cluster=cluster, number__in=numbers).select_related("host"))
    return leases(instance)


def refused(*numbers: int) -> Acks:
    return Acks(refused=dict.fromkeys(numbers, "address already in use"))


def test_a_change_during_placement_stays_and_its_version_never_comes_back(instance: Instance) -> None:
    work = work_on(instance)
    acting = member_actor(owner_of(instance.tenant))
    services.rename_instance(acting=acting, instance=instance, name="orders")
    services.protect_instance(acting=acting, instance=instance, protected=True)
    message = instance.version
    steps.place(work)
    instance.refresh_from_db()
    assert (instance.name, instance.protected) == ("orders", True)
    assert instance.version > message
    assert len(instance.endpoints) == 3
    assert work.instance.version == instance.version


def test_a_broker_whose_port_was_given_back_meanwhile_gets_none_again(instance: Instance, cluster: Cluster) -> None:
    known = live_on(instance, cluster, 1, 2, 3)
    PortLease.objects.filter(instance=instance, broker__number=1).delete()
    steps.replace_ports(work_on(instance), known, refused(2))
    instance.refresh_from_db()
    assert [item.broker.number for item in leases(instance)] == [2, 3]
    assert sorted(instance.endpoints) == ["2", "3"]


def test_a_broker_that_got_a_port_meanwhile_keeps_its_address(instance: Instance, cluster: Cluster) -> None:
    known = live_on(instance, cluster, 1, 2, 3)
    arrived = live_on(instance, cluster, 4)[-1]
    steps.replace_ports(work_on(instance), known, refused(2))
    instance.refresh_from_db()
    assert instance.endpoints["4"] == f"{arrived.host.advertised_host}:{arrived.port}"


def test_a_port_that_is_replaced_where_the_instance_is_leaving_does_not_bring_it_back(
    instance: Instance, cluster: Cluster
) -> None:
    live_on(instance, cluster, 1, 2, 3, 4)
    PortLease.objects.filter(instance=instance, broker__number=1).update(is_leaving=True)
    before = leases(instance)
    steps.replace_ports(work_on(instance), before, refused(1))
    after = leases(instance)
    assert [item.is_leaving for item in after] == [True, False, False, False]
    assert after[0].port != before[0].port
    instance.refresh_from_db()
    assert sorted(instance.endpoints) == ["2", "3", "4"]


def test_a_refused_port_that_is_gone_already_changes_nothing(instance: Instance, cluster: Cluster) -> None:
    known = live_on(instance, cluster, 1, 2, 3)
    PortLease.objects.filter(instance=instance, broker__number=1).delete()
    steps.replace_ports(work_on(instance), known, refused(1))
    assert Instance.objects.get(pk=instance.pk).generation == instance.generation
    assert [item.broker.number for item in leases(instance)] == [2, 3]


def test_a_refused_port_on_a_host_without_another_is_a_reason_to_give_up_and_stays_leased(
    instance: Instance, tmp_path: Path
) -> None:
    full = make_fleet(tmp_path, brokers=3, ports=3)
    known = live_on(instance, full, 1, 2, 3)
    before = [(item.broker.number, item.port) for item in known]
    with pytest.raises(CannotProvision, match="has no free port"):
        steps.replace_ports(work_on(instance), known, refused(1))
    assert [(item.broker.number, item.port) for item in leases(instance)] == before
