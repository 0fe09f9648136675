"""Capacity that is left to sell (CKA-47)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from django.db import transaction

from brokers.models import Broker, Cluster, Placement, PortLease, Rebalance
from brokers.placement import capacity, placement
from brokers.placement.port_leases import lease
from instances import interfaces
from tenants.errors import Conflict
from tenants.models import Tenant
from tests.testkit.api_cases import make_tenant
from tests.testkit.fleet import catalogue, make_fleet, make_instance, plugged

pytestmark = pytest.mark.django_db

# A third of it is no binary fraction: twelve of them, rounded, are more than three brokers of 1,000 MB/s.
MB_S = 250


@pytest.fixture()
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with plugged(interfaces.plan_catalogue, catalogue):
        yield make_fleet(tmp_path)


@pytest.fixture()
def tenant() -> Tenant:
    return make_tenant()


def sell(tenant: Tenant, cluster: Cluster) -> Placement:
    """Places an instance in the way of the reconciler."""
    instance = make_instance(tenant, bandwidth_mb_s=MB_S, storage_gb=1)
    chosen = placement.choose_cluster(capacity.headrooms([cluster]), bandwidth_mb_s=MB_S, storage_gb=1)
    assert chosen is not None
    with transaction.atomic():
        lease(instance, Broker.objects.filter(pk__in=chosen.broker_ids).select_related("host"))
    return Placement.objects.create(instance=instance, cluster=cluster, bandwidth_mb_s=MB_S, storage_gb=1)


def test_a_cluster_is_sold_to_the_last_megabyte(tenant: Tenant, cluster: Cluster) -> None:
    for _ in range(12):
        sell(tenant, cluster)

    (room,) = capacity.headrooms([cluster])
    assert [broker.free_bandwidth_mb_s for broker in room.brokers] == [Fraction()] * 3
    assert placement.choose_cluster([room], bandwidth_mb_s=1, storage_gb=1) is None


def test_an_instance_grows_by_what_is_left_and_no_more(tenant: Tenant, cluster: Cluster) -> None:
    first = sell(tenant, cluster)
    for _ in range(10):
        sell(tenant, cluster)

    with pytest.raises(Conflict, match="no room for 501 MB/s"), transaction.atomic():
        capacity.CapacityReservations().reserve(first.instance, bandwidth_mb_s=2 * MB_S + 1, storage_gb=1)
    with transaction.atomic():
        capacity.CapacityReservations().reserve(first.instance, bandwidth_mb_s=2 * MB_S, storage_gb=1)

    first.refresh_from_db()
    assert first.bandwidth_mb_s == 2 * MB_S


def test_an_instance_grows_no_further_than_its_cluster_may_sell(tenant: Tenant, cluster: Cluster) -> None:
    """CKA-46: bounds of a cluster, whatever its brokers have left."""
    first = sell(tenant, cluster)
    sell(tenant, cluster)
    Cluster.objects.filter(pk=cluster.pk).update(max_bandwidth_mb_s=2 * MB_S + 50, max_storage_gb=2)
    with pytest.raises(Conflict, match="At most 300 MB/s"), transaction.atomic():
        capacity.CapacityReservations().reserve(first.instance, bandwidth_mb_s=MB_S + 51, storage_gb=1)
    with pytest.raises(Conflict, match="At most 1 GB"), transaction.atomic():
        capacity.CapacityReservations().reserve(first.instance, bandwidth_mb_s=MB_S, storage_gb=2)
    with transaction.atomic():
        capacity.CapacityReservations().reserve(first.instance, bandwidth_mb_s=MB_S + 50, storage_gb=1)
    cluster.refresh_from_db()
    (room,) = capacity.headrooms([cluster])
    assert (room.unsold_mb_s, room.unsold_gb) == (0, 0)
    assert placement.choose_cluster([room], bandwidth_mb_s=1, storage_gb=1) is None


def test_brokers_that_an_instance_is_to_keep_hold_their_full_share_while_it_moves(
    tenant: Tenant, tmp_path: Path
) -> None:
    wide = make_fleet(tmp_path, brokers=4)
    with plugged(interfaces.plan_catalogue, catalogue):
        instance = sell(tenant, wide).instance
    share = Fraction(MB_S, 3)
    with transaction.atomic():
        lease(instance, Broker.objects.filter(cluster=wide).select_related("host"))
    PortLease.objects.filter(instance=instance, broker__number=1).update(is_leaving=True)

    (room,) = capacity.headrooms([wide])

    sold = {broker.number: 1_000 - broker.free_bandwidth_mb_s for broker in room.brokers}
    # What it leaves is still read from there, and its room is given to nobody before it is empty.
    assert sold == dict.fromkeys((1, 2, 3, 4), share)


def test_an_instance_that_moves_grows_by_what_the_brokers_it_keeps_have_left(tenant: Tenant, cluster: Cluster) -> None:
    moving = make_instance(tenant, bandwidth_mb_s=500, storage_gb=1)
    with transaction.atomic():
        lease(moving, Broker.objects.filter(cluster=cluster).select_related("host"))
    PortLease.objects.filter(instance=moving, broker__number=1).update(is_leaving=True)
    Placement.objects.create(instance=moving, cluster=cluster, bandwidth_mb_s=500, storage_gb=1)

    with pytest.raises(Conflict, match="no room for 2001 MB/s"), transaction.atomic():
        capacity.CapacityReservations().reserve(moving, bandwidth_mb_s=2_001, storage_gb=1)
    with transaction.atomic():
        capacity.CapacityReservations().reserve(moving, bandwidth_mb_s=2_000, storage_gb=1)


def test_a_broker_is_not_emptied_into_others_that_have_sold_too_much_for_it(tenant: Tenant, cluster: Cluster) -> None:
    """It is refused like a larger size. Three brokers have sold everything; one with less to sell replaces another."""
    for _ in range(12):
        sell(tenant, cluster)
    host = cluster.brokers.all()[0].host
    Broker.objects.create(
        cluster=cluster,
        host=host,
        number=4,
        internal_port=9_001,
        admin_port=9_002,
        data_dirs=["/d/4"],
        bandwidth_mb_s=999,
    )
    placements = [
        {"owner": placed.instance_id, "arriving": [4], "leaving": [3]} for placed in cluster.placements.order_by("pk")
    ]
    with pytest.raises(Conflict) as refused:
        capacity.require_capacity(cluster, placements)
    assert refused.value.code == "no_room"
    assert [error.detail for error in refused.value.errors] == ["Broker 4 would have sold 1,000 of 999 MB/s."]
    Broker.objects.filter(cluster=cluster, number=4).update(bandwidth_mb_s=1_000)
    capacity.require_capacity(cluster, placements)


def test_an_oversold_broker_keeps_nothing_from_moving(tenant: Tenant, cluster: Cluster) -> None:
    placed = sell(tenant, cluster)
    Broker.objects.filter(cluster=cluster).update(bandwidth_mb_s=1)
    capacity.require_capacity(cluster, [])
    with pytest.raises(Conflict):
        capacity.require_capacity(cluster, [{"owner": placed.instance_id, "arriving": [], "leaving": [3]}])


@pytest.mark.parametrize(
    ("state", "promised"), [("running", True), ("paused", True), ("planned", False), ("done", False)]
)
def test_room_that_a_rebalance_is_about_to_take_is_sold_to_nobody(
    tenant: Tenant, cluster: Cluster, state: str, promised: bool
) -> None:
    """Its start and the ports on the further brokers may be far apart in time."""
    placed = sell(tenant, cluster)
    wide = cluster.brokers.get(number=3)
    PortLease.objects.filter(instance=placed.instance, broker=wide).delete()
    Rebalance.objects.create(
        cluster=cluster, kind="balance", state=state, planned_by="ida",
        placements=[{"owner": placed.instance_id, "arriving": [3], "leaving": [1]}],
    )  # fmt: skip
    (room,) = capacity.headrooms([cluster])
    (third,) = [broker for broker in room.brokers if broker.number == 3]
    assert third.free_bandwidth_mb_s == 1_000 - (Fraction(MB_S, 2) if promised else 0)


def test_an_instance_on_its_way_to_a_broker_grows_by_no_more_than_that_one_has_left(
    tenant: Tenant, cluster: Cluster
) -> None:
    placed = sell(tenant, cluster)
    narrow = cluster.brokers.get(number=3)
    PortLease.objects.filter(instance=placed.instance, broker=narrow).delete()
    Broker.objects.filter(pk=narrow.pk).update(bandwidth_mb_s=MB_S)
    Rebalance.objects.create(
        cluster=cluster, kind="balance", state="running", planned_by="ida",
        placements=[{"owner": placed.instance_id, "arriving": [3], "leaving": [1]}],
    )  # fmt: skip
    with pytest.raises(Conflict, match="no room for 501 MB/s"), transaction.atomic():
        capacity.CapacityReservations().reserve(placed.instance, bandwidth_mb_s=2 * MB_S + 1, storage_gb=1)
    with transaction.atomic():
        capacity.CapacityReservations().reserve(placed.instance, bandwidth_mb_s=2 * MB_S, storage_gb=1)
