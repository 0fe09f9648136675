"""Instances affected by an incident, on the operator's pages, for operators who may see instances."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from brokers.choices import ProcessState
from brokers.limits import AFFECTED_NAMED_MAX, LEADERLESS_LISTED_MAX, LEADERLESS_PAGE
from brokers.models import Cluster, Host, PortLease
from brokers.monitoring import cluster_overview, incidents, observe
from brokers.monitoring.cluster_overview import COUNTS
from brokers.monitoring.incidents import Incident, Owners
from instances.interfaces import BrokerUnresponsive
from instances.models import Instance
from tenants.errors import Unavailable
from tests.testkit.api_cases import make_member, make_tenant, make_user
from tests.testkit.fake_cluster import four_brokers
from tests.testkit.fleet import make_running, place

pytestmark = pytest.mark.django_db


@pytest.fixture()
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cache.clear()
    with four_brokers(tmp_path) as result:
        result.brokers.update(observed_at=timezone.now(), observed={"log_bytes": 0})
        Host.objects.update(agent_seen_at=timezone.now())
        yield result


def served(cluster: Cluster, number: int, count: int, name: str = "orders") -> list[Instance]:
    """Creates instances of different tenants that the broker of this number serves."""
    broker, result = cluster.brokers.get(number=number), []
    for index in range(count):
        instance = make_running(make_tenant(f"Tenant {index:03d}"), name=f"{name}-{index}")
        place(instance, cluster)
        lease(instance, broker, index)
        result.append(instance)
    return result


def lease(instance: Instance, broker: Any, offset: int, **more: Any) -> None:
    port = broker.host.port_first + 100 * broker.number + offset
    PortLease.objects.create(
        instance=instance, broker=broker, host=broker.host, port=port, route=instance.routes.get(), **more
    )


def tell(cluster: Cluster, **counts: int) -> None:
    """Caches the cluster overview with counts of partitions in the way of the beat task."""
    share = {"live": True, "stopping": False, "leaders": 1, "preferred": 1, "replicas": 1, "out_of_sync": 0}
    body: dict[str, Any] = dict.fromkeys(COUNTS, 0) | {
        "broker_id": 1, "ready": True, "controller_id": 1, "controller_epoch": 1,
        "brokers": [{"id": number, **share} for number in (1, 2, 3, 4)], **counts,
    }  # fmt: skip
    cluster_overview.shared_cache.set(
        cluster_overview._image_key(cluster), (timezone.now(), observe.BrokerAnswers(bodies={1: body}, silent=())), 60
    )


def first_page(client: Client) -> str:
    answer = client.get(reverse("admin:index"))
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_broker_that_is_down_names_the_tenants_it_serves_and_no_others(panel: Client, cluster: Cluster) -> None:
    served(cluster, 3, 2)
    (left,) = served(cluster, 2, 1, name="elsewhere")
    lease(left, cluster.brokers.get(number=3), 50, is_leaving=True)
    cluster.brokers.filter(number=3).update(process_state=ProcessState.BACKING_OFF)
    page = first_page(panel)
    assert "Instances it hits: 2, of tenants: 2. Tenant 000 (orders-0); Tenant 001 (orders-1)." in page
    assert "elsewhere" not in page
    listed = reverse("admin:brokers_cluster_affected", args=[cluster.pk])
    assert f"{listed}?broker=3" in page
    assert "orders-1" in panel.get(f"{listed}?broker=3").content.decode()


def test_many_are_named_up_to_a_bound_and_listed_by_pages(
    panel: Client, cluster: Cluster, django_assert_max_num_queries: Any
) -> None:
    served(cluster, 3, 55)
    cluster.brokers.update(process_state=ProcessState.BACKING_OFF)
    with django_assert_max_num_queries(25):
        page = first_page(panel)
    assert f"and {55 - AFFECTED_NAMED_MAX} more." in page
    assert page.count("(orders-") == AFFECTED_NAMED_MAX
    listed = reverse("admin:brokers_cluster_affected", args=[cluster.pk]) + "?broker=3"
    assert panel.get(listed).content.decode().count("/instances/instance/ins-") == 50
    assert panel.get(f"{listed}&page=2").content.decode().count("/instances/instance/ins-") == 5
    assert panel.get(f"{listed}&q=orders-54").content.decode().count("/instances/instance/ins-") == 1
    assert "Nothing matches." in panel.get(f"{listed}&q=nobody").content.decode()


@pytest.mark.parametrize("state", incidents.STATES)
def test_partitions_that_lack_something_name_their_owners(
    panel: Client, cluster: Cluster, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, logs = make_running(make_tenant("Acme"), name="orders"), make_running(make_tenant("Beta"), name="logs")
    assert logs.name not in orders.name
    tell(cluster, **{state: 3})
    lines = [{"instance_id": orders.pk}, {"instance_id": orders.pk}, {"instance_id": ""}]
    monkeypatch.setattr(cluster_overview, "partition_page", lambda *_args, **_more: (lines, ""))
    incidents.cache_owners(cluster, {state: 3})
    page = first_page(panel)
    assert "Instances it hits: 1, of tenants: 1. Acme (orders). The cluster&#x27;s own topics are among them" in page
    assert "Beta" not in page
    listed = reverse("admin:brokers_cluster_affected", args=[cluster.pk]) + f"?state={state}"
    assert listed in page and "orders" in panel.get(listed).content.decode()
    incidents.cache_owners(cluster, {state: 0})
    assert "It hits no instance." in panel.get(listed).content.decode()


def test_no_more_partitions_are_asked_for_than_there_is_a_bound(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[str] = []

    def partition_page(_cluster: Cluster, *, after: str, **_more: Any) -> tuple[list[dict[str, str]], str]:
        pages.append(after)
        return [{"instance_id": f"ins-{len(pages):08d}"}], str(len(pages))

    monkeypatch.setattr(cluster_overview, "partition_page", partition_page)
    incidents.cache_owners(cluster, {"offline": 10**6})
    assert len(pages) == LEADERLESS_LISTED_MAX // LEADERLESS_PAGE
    (known,) = incidents._cached_owners([cluster.pk]).items()
    assert known == (
        Incident(cluster.pk, "offline"), Owners(tuple(f"ins-{n + 1:08d}" for n in range(len(pages))), True, False),
    )  # fmt: skip


def test_an_incident_of_the_clusters_own_topics_says_so(
    panel: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(cluster, offline=1)
    monkeypatch.setattr(cluster_overview, "partition_page", lambda *_args, **_more: ([{"instance_id": ""}], ""))
    incidents.cache_owners(cluster, {"offline": 1})
    assert "It hits no topic of an instance. The cluster&#x27;s own topics" in first_page(panel)


def test_where_no_broker_tells_the_partitions_nobody_is_said_to_be_hit(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: Any, **_more: Any) -> Any:
        raise Unavailable("No broker of the cluster answers at the moment.")

    monkeypatch.setattr(cluster_overview, "partition_page", refuse)
    incidents.cache_owners(cluster, {"offline": 2})
    assert incidents._cached_owners([cluster.pk]) == {}


def test_an_operator_who_may_not_see_instances_sees_no_tenant(cluster: Cluster) -> None:
    served(cluster, 3, 1)
    cluster.brokers.filter(number=3).update(process_state=ProcessState.BACKING_OFF)
    looker, client = make_user(is_staff=True), Client()
    looker.user_permissions.add(Permission.objects.get(codename="view_cluster"))
    client.force_login(looker)
    page = first_page(client)
    assert "Broker 3" in page and "Tenant 000" not in page
    listed = reverse("admin:brokers_cluster_affected", args=[cluster.pk]) + "?broker=3"
    assert client.get(listed).status_code == 403
    owner = Client()
    owner.force_login(make_member().user)
    answer = owner.get(listed)
    assert (answer.status_code, "/login" in answer["Location"]) == (302, True)


@pytest.mark.parametrize("asked", ["broker=99", "broker=%C2%B2", "broker=-1", "broker=99999999999999999999"])
def test_a_broker_that_does_not_exist_is_not_found(panel: Client, cluster: Cluster, asked: str) -> None:
    assert panel.get(reverse("admin:brokers_cluster_affected", args=[cluster.pk]) + f"?{asked}").status_code == 404


def test_the_map_leads_to_those_that_a_silent_broker_serves(
    panel: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    served(cluster, 3, 1)
    silent = (BrokerUnresponsive(broker_id=3, reason="does not answer"),)
    monkeypatch.setattr(
        cluster_overview, "_query_brokers", lambda _cluster: observe.BrokerAnswers(bodies={}, silent=silent)
    )
    address = reverse("admin:brokers_cluster_map", args=[cluster.pk])
    listed = reverse("admin:brokers_cluster_affected", args=[cluster.pk]) + "?broker=3"
    assert listed in panel.get(address).content.decode()
    looker, client = make_user(is_staff=True), Client()
    looker.user_permissions.add(Permission.objects.get(codename="view_cluster"))
    client.force_login(looker)
    assert listed not in client.get(address).content.decode()


def test_a_state_that_does_not_exist_hits_nobody(panel: Client, cluster: Cluster) -> None:
    answer = panel.get(reverse("admin:brokers_cluster_affected", args=[cluster.pk]) + "?state=x'")
    assert "It hits no instance." in answer.content.decode()
