"""Dedicated instances: a cluster of their own from free hosts, and a forecast in a dry run."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from brokers.admin_views.overview import overview
from brokers.choices import ClusterKind, ClusterState
from brokers.models import Cluster, FleetOperation, Host, Placement
from brokers.operations import clusters, dedicated, hosts
from brokers.operations.waiting import waiting_instances
from brokers.provisioning import reconciler
from instances.models import Instance
from tenants import selectors as tenant_selectors
from tenants.actors import Actor
from tests.testkit.api_cases import Api, make_tenant, owner_of
from tests.testkit.fleet import make_instance

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Tenants without a verified owner; all others have one."""
    unproved: set[str] = set()
    monkeypatch.setattr(tenant_selectors, "is_verified", lambda tenant: tenant.pk not in unproved)
    return unproved


def free_host(acting: Actor, number: int = 1, *, has_agent: bool = True) -> Host:
    first = 26_000 + 100 * number
    made = hosts.add_host(
        acting=acting,
        name=f"free-{number}",
        zone=f"z{number}",
        advertised_host=f"127.0.0.{10 + number}",
        port_first=first,
        port_last=first + 99,
    )
    if has_agent:
        Host.objects.filter(pk=made.pk).update(agent_seen_at=timezone.now())
    return made


def wanted(**fields: Any) -> Instance:
    return make_instance(make_tenant(), cluster_type="dedicated", phase="provisioning", **fields)


def outcome(api: Api, **body: Any) -> dict[str, Any]:
    answer = api.post("/instances?dry_run=true", {"name": "planned", "plan": "small"} | body)
    assert answer.status_code == 202, answer.content
    step = answer.json()["steps"][1]
    assert step["state"] == "pending"
    return dict(step)


def test_a_cluster_of_its_own_is_formed_once_and_for_it_alone(cluster: Cluster, acting: Actor) -> None:
    host = free_host(acting)
    instance = wanted()
    assert reconciler.reconcile(instance.pk) == "waits for its cluster"
    assert reconciler.reconcile(instance.pk) == "waits for its cluster"
    made = Cluster.objects.get(kind=ClusterKind.DEDICATED)
    assert (made.reserved_for_id, made.state, made.name) == (instance.pk, "forming", f"dedicated-{instance.pk}")
    assert set(made.brokers.values_list("host_id", flat=True)) == {host.pk}
    assert FleetOperation.objects.get().asked_by == "fleet"
    Cluster.objects.filter(pk=made.pk).update(state=ClusterState.READY)
    other = wanted()
    assert "No dedicated cluster is free" in reconciler.reconcile(other.pk)
    assert not Placement.objects.exists()


def test_hosts_that_are_used_or_have_no_agent_are_not_free(cluster: Cluster, acting: Actor) -> None:
    free_host(acting, has_agent=False)
    Host.objects.exclude(name__startswith="free").update(agent_seen_at=timezone.now())
    instance = wanted()
    assert reconciler.reconcile(instance.pk).startswith("waits: No dedicated cluster is free")
    assert not Cluster.objects.filter(kind=ClusterKind.DEDICATED).exists()
    assert list(waiting_instances()) == [instance]
    _, needs = overview(timezone.now())
    assert any("waits for room" in need.text and need.act == "Add capacity" for need in needs)


def test_hosts_are_not_given_to_tenants_without_a_mailbox_nor_without_end(
    cluster: Cluster, acting: Actor, verified: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        free_host(acting, number)
    stranger = wanted()
    verified.add(stranger.tenant_id)
    assert dedicated.ensure_cluster(stranger) is None
    monkeypatch.setattr(dedicated, "DEDICATED_CLUSTERS_PER_TENANT_MAX", 1)
    first = wanted()
    assert dedicated.ensure_cluster(first) is not None
    second = make_instance(first.tenant, cluster_type="dedicated", phase="provisioning")
    assert dedicated.ensure_cluster(second) is None


def test_a_cluster_made_for_one_that_was_deleted_is_for_the_next(cluster: Cluster, acting: Actor) -> None:
    free_host(acting)
    instance = wanted()
    reconciler.reconcile(instance.pk)
    Cluster.objects.filter(kind=ClusterKind.DEDICATED).update(state=ClusterState.READY)
    Instance.objects.filter(pk=instance.pk).update(phase="deleted")
    next_one = wanted()
    with pytest.raises(reconciler.RetryLater):  # its brokers are rows alone and confirm nothing
        reconciler.reconcile(next_one.pk)
    placed = Placement.objects.get(instance=next_one)
    assert placed.cluster.kind == ClusterKind.DEDICATED
    assert placed.reasons[0]["fit"] == "chosen"


class TestDryRun:
    def test_it_says_that_there_is_room(self, cluster: Cluster) -> None:
        step = outcome(Api.of(owner_of(make_tenant())))
        assert step["data"] == {"outcome": "placed", "brokers": 3}
        assert step["fact"] == "There is room: 3 brokers."

    def test_it_says_that_a_cluster_would_be_formed(self, cluster: Cluster, acting: Actor) -> None:
        free_host(acting)
        step = outcome(Api.of(owner_of(make_tenant())), cluster_type="dedicated")
        assert step["data"] == {"outcome": "forms_cluster", "brokers": 3}
        assert not Cluster.objects.filter(kind=ClusterKind.DEDICATED).exists()

    def test_it_says_that_the_instance_would_wait_and_what_is_missing(self, cluster: Cluster, acting: Actor) -> None:
        api = Api.of(owner_of(make_tenant()))
        step = outcome(api, cluster_type="dedicated")
        assert (step["data"]["outcome"], step["data"]["missing"]) == ("waits", ["cluster"])
        clusters.change_cluster(acting=acting, cluster=cluster, changes={"max_partitions": 49})
        step = outcome(api)
        assert (step["data"]["outcome"], step["data"]["missing"]) == ("waits", ["partitions"])
        assert not Instance.objects.exists()


def test_operators_read_why_an_instance_lives_where_it_does(
    cluster: Cluster, operator: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "ACK_DEADLINE_S", 0.1)
    instance = make_instance(make_tenant(), phase="provisioning")
    with pytest.raises(reconciler.RetryLater):
        reconciler.reconcile(instance.pk)
    (item,) = operator.get("/operator/placements").json()["items"]
    assert [(reason["cluster"], reason["fit"]) for reason in item["reasons"]] == [(cluster.name, "chosen")]
