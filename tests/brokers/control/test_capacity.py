"""What is left to sell, out of what is sold (CKA-47)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from django.db import transaction

from brokers import capacity, placement
from brokers.models import Broker, Cluster, Placement
from brokers.ports import lease
from instances import ports
from tenants.errors import Conflict
from tenants.models import Tenant
from tests.support.api_cases import make_tenant
from tests.support.fleet import catalogue, make_fleet, make_instance, plugged

pytestmark = pytest.mark.django_db

# A third of it is no binary fraction: twelve of them, rounded, are more than three brokers of 1,000 MB/s.
MB_S = 250


@pytest.fixture()
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with plugged(ports.plan_catalogue, catalogue):
        yield make_fleet(tmp_path)


@pytest.fixture()
def tenant() -> Tenant:
    return make_tenant()


def sell(tenant: Tenant, cluster: Cluster) -> Placement:
    """As the reconciler places an instance."""
    instance = make_instance(tenant, bandwidth_mb_s=MB_S, storage_gb=1)
    chosen = placement.choose(capacity.rooms([cluster]), bandwidth_mb_s=MB_S, storage_gb=1)
    assert chosen is not None
    with transaction.atomic():
        lease(instance, Broker.objects.filter(pk__in=chosen.broker_ids).select_related("host"))
    return Placement.objects.create(instance=instance, cluster=cluster, bandwidth_mb_s=MB_S, storage_gb=1)


def test_a_cluster_is_sold_to_the_last_megabyte(tenant: Tenant, cluster: Cluster) -> None:
    for _ in range(12):
        sell(tenant, cluster)

    (room,) = capacity.rooms([cluster])
    assert [broker.free_bandwidth_mb_s for broker in room.brokers] == [Fraction()] * 3
    assert placement.choose([room], bandwidth_mb_s=1, storage_gb=1) is None


def test_an_instance_grows_by_what_is_left_and_no_more(tenant: Tenant, cluster: Cluster) -> None:
    first = sell(tenant, cluster)
    for _ in range(10):
        sell(tenant, cluster)

    with pytest.raises(Conflict, match="no room for 501 MB/s"), transaction.atomic():
        capacity.Room().reserve(first.instance, bandwidth_mb_s=2 * MB_S + 1, storage_gb=1)
    with transaction.atomic():
        capacity.Room().reserve(first.instance, bandwidth_mb_s=2 * MB_S, storage_gb=1)

    first.refresh_from_db()
    assert first.bandwidth_mb_s == 2 * MB_S
