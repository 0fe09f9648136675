"""Capacity that a deleted instance releases at each stage, and its reservation on restore."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from brokers.models import Broker, Cluster, Placement
from brokers.placement import capacity, placement
from brokers.placement.port_leases import lease
from instances import access, interfaces, services
from instances.models import Instance, Operation
from tenants.actors import member_actor
from tenants.errors import Conflict
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fleet import catalogue, make_fleet, make_running, plugged

pytestmark = pytest.mark.django_db
WHOLE_MB_S, STORAGE_GB = 3_000, 300


@pytest.fixture()
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with plugged(interfaces.plan_catalogue, catalogue), plugged(interfaces.reconcile, lambda _id: None):
        yield make_fleet(tmp_path)


@pytest.fixture()
def owner() -> Member:
    return make_member()


def sell(owner: Member, cluster: Cluster, bandwidth_mb_s: int) -> Instance:
    """Creates a running instance with reserved capacity, in the way of the reconciler."""
    size = {"bandwidth_mb_s": bandwidth_mb_s, "storage_gb": STORAGE_GB}
    instance = make_running(owner.tenant, **size)
    chosen = placement.choose_cluster(capacity.headrooms([cluster]), **size)
    assert chosen is not None
    with transaction.atomic():
        lease(instance, Broker.objects.filter(pk__in=chosen.broker_ids).select_related("host"))
    Placement.objects.create(instance=instance, cluster=cluster, **size)
    return instance


def act(service: Any, owner: Member, instance: Instance) -> None:
    acting = member_actor(owner)
    with transaction.atomic():
        service(acting=acting, instance=access.instance(acting, instance.pk, lock=True))


def free(cluster: Cluster) -> tuple[Fraction, Fraction]:
    (room,) = capacity.headrooms([cluster])
    return room.free_bandwidth_mb_s, sum((broker.free_storage_gb for broker in room.brokers), start=Fraction())


def test_a_deleted_instance_gives_its_bandwidth_back_at_once_and_keeps_its_storage(
    owner: Member, cluster: Cluster
) -> None:
    empty = free(cluster)
    instance = sell(owner, cluster, WHOLE_MB_S)
    assert free(cluster) == (0, empty[1] - STORAGE_GB)
    act(services.delete_instance, owner, instance)
    assert free(cluster) == (empty[0], empty[1] - STORAGE_GB)
    act(services.restore_instance, owner, instance)
    assert free(cluster) == (0, empty[1] - STORAGE_GB)


def test_restoring_without_room_names_what_is_missing_and_changes_nothing(owner: Member, cluster: Cluster) -> None:
    instance = sell(owner, cluster, 1_500)
    act(services.delete_instance, owner, instance)
    sell(make_member(), cluster, 2_400)
    before = Instance.objects.values().get(pk=instance.pk)
    rows = (AuditEntry.objects.count(), Operation.objects.count())
    held = free(cluster)
    with pytest.raises(Conflict, match="Missing, by broker: 1: 300 MB/s, 2: 300 MB/s, 3: 300 MB/s"):
        act(services.restore_instance, owner, instance)
    problem = assert_problem(Api.of(owner).post(f"/instances/{instance.pk}/restore"), 409, "no_room")
    assert problem["errors"][0] == {
        "pointer": "/bandwidth_mb_s", "code": "no_room", "detail": "Broker 1 lacks 300 MB/s."
    }  # fmt: skip
    assert Instance.objects.values().get(pk=instance.pk) == before
    assert (AuditEntry.objects.exclude(action="token.created").count(), Operation.objects.count()) == rows
    assert free(cluster) == held
