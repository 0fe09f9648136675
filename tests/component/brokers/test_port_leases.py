"""Port leases: the pure choice, and uniqueness under concurrency (CKA-2)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection, transaction
from hypothesis import given
from hypothesis import strategies as st

from brokers.models import Cluster, FormerPort, Host, PortLease
from brokers.placement import instance_placement, port_leases
from instances.models import Instance
from tests.testkit.api_cases import make_tenant
from tests.testkit.fleet import make_fleet, make_instance, make_running

THREADS = 8


def test_the_search_goes_on_behind_the_last_port_and_wraps_round() -> None:
    assert port_leases.next_port(first=10, last=12, cursor=0, unavailable_ports=set()) == 10
    assert port_leases.next_port(first=10, last=12, cursor=10, unavailable_ports=set()) == 11
    assert port_leases.next_port(first=10, last=12, cursor=12, unavailable_ports=set()) == 10
    assert port_leases.next_port(first=10, last=12, cursor=11, unavailable_ports={12, 10}) == 11
    assert port_leases.next_port(first=10, last=12, cursor=11, unavailable_ports={10, 11, 12}) is None


@given(st.integers(1, 50), st.integers(0, 60), st.sets(st.integers(1, 50)))
def test_a_port_is_free_and_in_the_pool_or_there_is_none(last: int, cursor: int, taken: set[int]) -> None:
    port = port_leases.next_port(first=1, last=last, cursor=cursor, unavailable_ports=taken)
    free = set(range(1, last + 1)) - taken
    assert (port in free) if free else (port is None)


@pytest.mark.django_db
def test_leases_are_kept_and_only_missing_ones_made(tmp_path: Path) -> None:
    cluster = make_fleet(tmp_path)
    instance = make_instance(make_tenant())
    brokers = list(cluster.brokers.all())
    first = port_leases.lease(instance, brokers[:2])
    again = port_leases.lease(instance, brokers)
    assert [lease.pk for lease in again[:2]] == [lease.pk for lease in first]
    assert len({lease.port for lease in again}) == 3
    assert port_leases.release(instance) == 3


@pytest.mark.django_db
def test_an_empty_pool_is_said(tmp_path: Path) -> None:
    cluster = make_fleet(tmp_path, ports=2)
    with pytest.raises(port_leases.PoolEmpty):
        port_leases.lease(make_instance(make_tenant()), cluster.brokers.all())


@pytest.mark.django_db
def test_a_port_given_back_rests_before_it_is_given_out_again(tmp_path: Path) -> None:
    cluster = make_fleet(tmp_path, brokers=1)
    tenant = make_tenant()
    first = make_instance(tenant)
    (old,) = port_leases.lease(first, cluster.brokers.all())
    port_leases.release(first)
    (new,) = port_leases.lease(make_instance(tenant), cluster.brokers.all())
    assert new.port == old.port + 1


@pytest.mark.django_db
def test_a_refused_port_is_given_to_no_other_refused_lease(tmp_path: Path) -> None:
    cluster = make_fleet(tmp_path, brokers=1, ports=4)
    tenant = make_tenant()
    instances = [make_instance(tenant) for _ in range(4)]
    first, second, third, fourth = (port_leases.lease(row, cluster.brokers.all())[0] for row in instances)
    for row in (instances[1], instances[3]):
        port_leases.release(row)
    Host.objects.filter(pk=first.host_id).update(port_cursor=third.port)
    port_leases.replace_ports([first, third])
    assert [first.port, third.port] == [fourth.port, second.port]


def leave_and(instance: Instance, cluster: Cluster, meanwhile: Callable[[], object]) -> tuple[int, int]:
    """Returns the port before an instance left the first broker, and the one after its return."""
    port_leases.lease(instance, cluster.brokers.all())
    before = {str(item.broker.number): item.port for item in instance.port_leases.select_related("broker")}
    instance_placement.lease_ports(cluster, {instance.pk: ([2, 3], [1])})
    instance_placement.release_ports(cluster, {instance.pk: [1]})
    assert instance.port_leases.count() == 2
    meanwhile()
    instance_placement.lease_ports(cluster, {instance.pk: ([1, 2, 3], [])})
    after = {str(item.broker.number): item.port for item in instance.port_leases.select_related("broker")}
    return before["1"], after["1"]


@pytest.mark.django_db
def test_an_instance_that_comes_back_to_a_broker_finds_the_port_that_its_clients_know(tmp_path: Path) -> None:
    cluster = make_fleet(tmp_path)
    tenant = make_tenant()
    others = [make_instance(tenant) for _ in range(3)]
    before, after = leave_and(
        make_running(tenant), cluster, lambda: [port_leases.lease(other, cluster.brokers.all()) for other in others]
    )
    assert after == before


@pytest.mark.django_db
def test_a_port_that_others_needed_meanwhile_is_theirs(tmp_path: Path) -> None:
    """The host has four ports: three for the instance, and the next instance takes the one that rests last."""
    cluster = make_fleet(tmp_path, ports=4)
    tenant = make_tenant()
    item, other = make_instance(tenant), make_instance(tenant)
    first = cluster.brokers.order_by("number")[:1]
    taken: list[int] = []

    def meanwhile() -> None:
        taken.extend(lease.port for lease in port_leases.lease(item, first))
        taken.extend(lease.port for lease in port_leases.lease(other, first))
        port_leases.release(item)

    before, after = leave_and(make_running(tenant), cluster, meanwhile)
    assert taken[1] == before, "nothing else was left"
    assert after == taken[0]


@pytest.mark.django_db
def test_a_deleted_instance_holds_no_port_back(tmp_path: Path) -> None:
    cluster = make_fleet(tmp_path)
    instance = make_running(make_tenant())
    leave_and(instance, cluster, lambda: None)
    instance_placement.lease_ports(cluster, {instance.pk: ([2, 3], [1])})
    instance_placement.release_ports(cluster, {instance.pk: [1]})
    assert FormerPort.objects.filter(instance=instance).count() == 1
    port_leases.release(instance)
    assert not FormerPort.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_many_at_once_never_share_a_port(tmp_path: Path) -> None:
    cluster = make_fleet(tmp_path)
    tenant = make_tenant()
    instances = [make_instance(tenant) for _ in range(THREADS)]
    start = threading.Barrier(THREADS)
    failures: list[BaseException] = []

    def take(index: int) -> None:
        try:
            start.wait(10)
            with transaction.atomic():
                port_leases.lease(instances[index], cluster.brokers.all())
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=take, args=(index,)) for index in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    taken = list(PortLease.objects.values_list("host_id", "port"))
    assert len(taken) == len(set(taken)) == THREADS * 3
