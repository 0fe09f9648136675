"""Abort of a rebalance that waits for a broker that does not return."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers import services
from brokers.choices import ReassignmentState, RebalanceState, RebalanceStep, WantedState
from brokers.models import Broker, Cluster, PortLease, Rebalance
from brokers.operations import job_runner, rolling_restart
from brokers.rebalancing import executor, throttle
from brokers.rebalancing import services as rebalancing_services
from instances.models import Instance
from tenants.actors import Actor
from tenants.errors import Conflict
from tenants.models import AuditEntry
from tests.testkit.fake_cluster import FakeCluster, carry_out, confirm_generations, create_instance_on, four_brokers

pytestmark = pytest.mark.django_db


@pytest.fixture()
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with four_brokers(tmp_path) as result:
        yield result


@pytest.fixture()
def instance(cluster: Cluster) -> Instance:
    """An instance on brokers 1 to 3 of 4."""
    return create_instance_on(cluster, 1, 2, 3)


@pytest.fixture()
def admin_client(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    result = FakeCluster(brokers={1, 2, 3, 4})
    result.add(f"{instance.pk}.orders", *((1 + i % 3, 1 + (i + 1) % 3) for i in range(12)))
    for module in (executor, rebalancing_services):
        monkeypatch.setattr(module, "ClusterAdminClient", lambda _cluster: result)
    return result


def third(cluster: Cluster) -> Broker:
    return Broker.objects.get(cluster=cluster, number=3)


def placements_of(instance: Instance) -> set[int]:
    return set(PortLease.objects.filter(instance=instance, is_leaving=False).values_list("broker__number", flat=True))


@pytest.fixture()
def half(cluster: Cluster, admin_client: FakeCluster, acting: Actor) -> Rebalance:
    """A drain of broker 3 with completed, running and waiting moves."""
    row = rebalancing_services.plan_drain(acting=acting, broker=third(cluster), moves_at_once=2)
    rebalancing_services.start(acting=acting, rebalance=row)
    for _ in range(4):
        job_runner.reconcile_once()
        confirm_generations()
        admin_client.catch_up(1)
    job_runner.reconcile_once()
    states = set(row.moves.values_list("state", flat=True))
    assert states == {ReassignmentState.DONE, ReassignmentState.RUNNING, ReassignmentState.WAITING}
    row.refresh_from_db()
    return row


def test_an_undo_towards_a_broker_that_is_gone_is_given_up_and_stands_in_nobodys_way(
    cluster: Cluster, instance: Instance, admin_client: FakeCluster, half: Rebalance, acting: Actor
) -> None:
    rebalancing_services.undo(acting=acting, rebalance=half)
    admin_client.kill(3)
    with pytest.raises(AssertionError, match="not done: undoing"):
        carry_out(admin_client, half)
    other = rebalancing_services.plan_drain(acting=acting, broker=Broker.objects.get(cluster=cluster, number=2))
    with pytest.raises(Conflict, match="Another rebalance"):
        rebalancing_services.start(acting=acting, rebalance=other)

    rebalancing_services.abandon(acting=acting, rebalance=half)
    assert carry_out(admin_client, half).state == RebalanceState.ABANDONED

    assert not admin_client.moving
    assert half.ended_at is not None and half.trouble == ""
    assert not half.moves.filter(state__in=(ReassignmentState.WAITING, ReassignmentState.RUNNING)).exists()
    assert placements_of(instance) == {1, 2, 3, 4}
    assert third(cluster).accepts_instances
    message = list(AuditEntry.objects.filter(target_id=half.pk).values_list("action", flat=True))
    assert {"rebalance.abandoned", "rebalance.ended"} <= {*message}
    with pytest.raises(Conflict, match="The rebalance is abandoned"):
        rebalancing_services.undo(acting=acting, rebalance=half)
    planned = rebalancing_services.plan_drain(acting=acting, broker=Broker.objects.get(cluster=cluster, number=4))
    assert rebalancing_services.start(acting=acting, rebalance=planned).state == RebalanceState.RUNNING


def test_finished_reassignments_stay_and_running_ones_are_called_off(
    cluster: Cluster, instance: Instance, admin_client: FakeCluster, half: Rebalance, acting: Actor
) -> None:
    done = {
        (reassignment.topic, reassignment.partition): tuple(reassignment.target)
        for reassignment in half.moves.filter(state=ReassignmentState.DONE)
    }
    begun = {
        (reassignment.topic, reassignment.partition): tuple(reassignment.before)
        for reassignment in half.moves.filter(state=ReassignmentState.RUNNING)
    }
    rebalancing_services.abandon(acting=acting, rebalance=half)
    assert carry_out(admin_client, half).state == RebalanceState.ABANDONED
    assert {key: admin_client.replicas[key] for key in done} == done
    assert {key: admin_client.replicas[key] for key in begun} == begun
    assert set(half.moves.values_list("state", flat=True)) == {ReassignmentState.DONE, ReassignmentState.LEFT}
    assert placements_of(instance) >= {held for key in admin_client.replicas for held in admin_client.replicas[key]}


def test_a_reassignment_that_cannot_be_called_off_is_left_with_the_reason(
    admin_client: FakeCluster, half: Rebalance, acting: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = next(iter(admin_client.moving))
    reassign = FakeCluster.reassign

    def refuses(self: FakeCluster, targets: dict[tuple[str, int], object]) -> dict[tuple[str, int], str]:
        rest = {item: target for item, target in targets.items() if item != key}
        refused = {key: "None of the replicas that would stay is in sync."} if key in targets else {}
        return refused | reassign(self, rest)  # type: ignore[arg-type]

    monkeypatch.setattr(FakeCluster, "reassign", refuses)
    monkeypatch.setattr(FakeCluster, "catch_up", lambda *_: None)
    rebalancing_services.abandon(acting=acting, rebalance=half)
    assert carry_out(admin_client, half).state == RebalanceState.ABANDONED
    left = half.moves.get(topic=key[0], partition=key[1])
    assert (left.state, left.note) == (ReassignmentState.LEFT, "None of the replicas that would stay is in sync.")
    assert list(admin_client.moving) == [key]


def test_it_goes_on_when_brokers_answer_again_and_takes_its_pace_with_it(
    admin_client: FakeCluster, half: Rebalance, acting: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifted: list[str] = []
    monkeypatch.setattr(throttle, "lift", lambda row: lifted.append(row.pk))
    rebalancing_services.abandon(acting=acting, rebalance=half)
    admin_client.is_down = True
    job_runner.reconcile_once()
    half.refresh_from_db()
    assert (half.state, half.trouble) == (RebalanceState.ABANDONING, "No broker answers.")
    with pytest.raises(Conflict):
        rolling_restart.start(acting=acting, cluster=half.cluster)
    admin_client.is_down = False
    assert carry_out(admin_client, half).state == RebalanceState.ABANDONED
    assert lifted


def test_a_removal_is_abandoned_while_its_broker_stops_and_the_broker_is_started_again(
    cluster: Cluster, instance: Instance, admin_client: FakeCluster, acting: Actor
) -> None:
    row = rebalancing_services.plan_drain(acting=acting, broker=third(cluster), removes=True)
    rebalancing_services.start(acting=acting, rebalance=row)
    while Rebalance.objects.get(pk=row.pk).step != RebalanceStep.STOPPING:
        job_runner.reconcile_once()
        confirm_generations()
        admin_client.catch_up()
    assert third(cluster).wanted == WantedState.STOPPED
    rebalancing_services.abandon(acting=acting, rebalance=row)
    job_runner.reconcile_once()
    assert third(cluster).wanted == WantedState.STOPPED and third(cluster).removed_at is None
    services.start_broker(acting=acting, broker=third(cluster))
    assert third(cluster).wanted == WantedState.RUNNING
    assert third(cluster).accepts_instances
