"""Rebalances during other changes: recreated topics, further plans, and restarts of brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from brokers import selectors
from brokers.choices import ReassignmentState, RebalanceState, RebalanceStep, WantedState
from brokers.contract.partitions import PartitionKey
from brokers.dataplane.cluster import ClusterView
from brokers.models import Broker, Cluster, PortLease, Rebalance
from brokers.operations import job_runner, rolling_restart
from brokers.rebalancing import executor, services
from instances.models import Instance
from tenants.actors import Actor
from tenants.errors import Conflict
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
def orders(instance: Instance) -> str:
    return f"{instance.pk}.orders"


@pytest.fixture()
def admin_client(orders: str, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Six partitions of one replica each, of which two are on broker 3."""
    result = FakeCluster(brokers={1, 2, 3, 4})
    result.add(orders, *((1 + i % 3,) for i in range(6)))
    for module in (executor, services):
        monkeypatch.setattr(module, "ClusterAdminClient", lambda _cluster: result)
    return result


@pytest.fixture()
def drain(cluster: Cluster, admin_client: FakeCluster, acting: Actor) -> Rebalance:
    """A plan that drains broker 3, one partition at a time; not started."""
    broker = Broker.objects.get(cluster=cluster, number=3)
    return services.plan_drain(acting=acting, broker=broker, moves_at_once=1)


@pytest.fixture()
def half(drain: Rebalance, admin_client: FakeCluster, acting: Actor) -> Rebalance:
    """That drain with one running and one waiting partition."""
    services.start(acting=acting, rebalance=drain)
    while not admin_client.moving:
        job_runner.reconcile_once()
        confirm_generations()
    assert sorted(drain.moves.values_list("state", flat=True)) == [ReassignmentState.RUNNING, ReassignmentState.WAITING]
    return drain


# --- topics -----------------------------------------------------------------------------------------------------------


def test_a_topic_made_again_with_fewer_partitions_ends_their_moves(
    half: Rebalance, admin_client: FakeCluster, orders: str
) -> None:
    admin_client.delete(orders)
    admin_client.add(orders, (1,))

    assert carry_out(admin_client, half).state == RebalanceState.DONE
    assert set(half.moves.values_list("state", flat=True)) == {ReassignmentState.SKIPPED}


def test_a_topic_made_again_with_more_replicas_keeps_them_all(
    half: Rebalance, admin_client: FakeCluster, orders: str, acting: Actor
) -> None:
    admin_client.delete(orders)
    admin_client.add(orders, *((1, 2, 4) for _ in range(6)))

    carry_out(admin_client, half)
    assert all(len(replicas) == 3 for replicas in admin_client.replicas.values())

    admin_client.delete(orders)
    admin_client.add(orders, *((4, 1, 2) for _ in range(6)))
    services.undo(acting=acting, rebalance=half)
    carry_out(admin_client, half)
    assert all(sorted(replicas) == [1, 2, 3] for replicas in admin_client.replicas.values())


def test_a_drain_is_undone_with_what_was_made_where_it_went(
    half: Rebalance, admin_client: FakeCluster, instance: Instance, acting: Actor
) -> None:
    """A topic has a replica on each placement of the instance, so all former placements are needed again."""
    admin_client.add(f"{instance.pk}.wide", (1, 2, 4))
    services.undo(acting=acting, rebalance=half)

    assert carry_out(admin_client, half).state == RebalanceState.UNDONE
    assert sorted(admin_client.replicas[f"{instance.pk}.wide", 0]) == [1, 2, 3]


def test_a_move_back_has_copied_nothing_when_it_begins(
    half: Rebalance, admin_client: FakeCluster, acting: Actor
) -> None:
    carry_out(admin_client, half)
    services.undo(acting=acting, rebalance=half)
    while not admin_client.moving:
        job_runner.reconcile_once(measure=False)
        confirm_generations()

    half.refresh_from_db()
    assert selectors.progress_of(half).copied_bytes == 0


def test_a_move_that_was_refused_while_it_was_undone_is_undone(
    half: Rebalance, admin_client: FakeCluster, acting: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executor notes the refusal after the operator has decided."""
    asked = admin_client.reassign

    def undone_meanwhile(targets: Mapping[PartitionKey, Sequence[int] | None]) -> dict[PartitionKey, str]:
        if targets and Rebalance.objects.get(pk=half.pk).state == RebalanceState.RUNNING:
            services.undo(acting=acting, rebalance=half)
            return dict.fromkeys(targets, "The partition keeps changing.")
        return asked(targets)

    monkeypatch.setattr(FakeCluster, "reassign", lambda _self, targets: undone_meanwhile(targets))
    assert carry_out(admin_client, half).state == RebalanceState.UNDONE
    assert set(half.moves.values_list("state", flat=True)) == {ReassignmentState.UNDONE}
    assert selectors.progress_of(half).percent == 100


# --- operators --------------------------------------------------------------------------------------------------------


def test_a_plan_that_goes_to_a_broker_that_was_emptied_since_is_made_again(
    cluster: Cluster, drain: Rebalance, admin_client: FakeCluster, acting: Actor
) -> None:
    other = services.plan_drain(acting=acting, broker=Broker.objects.get(cluster=cluster, number=4), removes=True)
    carry_out(admin_client, services.start(acting=acting, rebalance=other))

    with pytest.raises(Conflict) as refused:
        services.start(acting=acting, rebalance=drain)
    assert refused.value.code == "stale_plan"


def test_a_plan_that_goes_to_a_broker_that_died_since_is_made_again(
    drain: Rebalance, admin_client: FakeCluster, acting: Actor
) -> None:
    targets = {number for reassignment in drain.moves.all() for number in reassignment.target}
    admin_client.brokers -= targets

    with pytest.raises(Conflict) as refused:
        services.start(acting=acting, rebalance=drain)
    assert refused.value.code == "stale_plan"


def test_a_paused_rebalance_waits_for_the_rolling_restart_that_began_meanwhile(
    half: Rebalance, cluster: Cluster, acting: Actor
) -> None:
    services.pause(acting=acting, rebalance=half)
    restart = rolling_restart.start(acting=acting, cluster=cluster)
    for act in (services.resume, services.undo):
        with pytest.raises(Conflict) as refused:
            act(acting=acting, rebalance=half)
        assert refused.value.code == "restart_in_progress"

    rolling_restart.cancel(acting=acting, restart=restart)
    assert services.resume(acting=acting, rebalance=half).state == RebalanceState.RUNNING


def test_a_rolling_restart_is_not_begun_while_a_plan_is_being_started(drain: Rebalance, acting: Actor) -> None:
    """Each checks for the other, and brokers take seconds to answer: both lock the cluster's row meanwhile."""
    with CaptureQueriesContext(connection) as to_move:
        services.start(acting=acting, rebalance=drain)
    services.pause(acting=acting, rebalance=drain)
    with CaptureQueriesContext(connection) as to_restart:
        rolling_restart.start(acting=acting, cluster=drain.cluster)

    for asked in (to_move, to_restart):
        assert any('FROM "brokers_cluster"' in item["sql"] and "FOR NO KEY UPDATE" in item["sql"] for item in asked)


@pytest.mark.parametrize("act", [services.undo, services.pause])
def test_an_operator_who_is_quicker_than_the_removal_keeps_the_broker(
    cluster: Cluster,
    admin_client: FakeCluster,
    acting: Actor,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[..., Rebalance],
) -> None:
    """The operator decides while the last check of the broker's partitions is running."""
    broker = Broker.objects.get(cluster=cluster, number=3)
    row = services.plan_drain(acting=acting, broker=broker, removes=True)
    services.start(acting=acting, rebalance=row)
    view, acted = admin_client.view, []

    def decides(topics: Iterable[str] | None) -> ClusterView:
        result = Rebalance.objects.get(pk=row.pk)
        is_empty = result.step == RebalanceStep.LEAVING and not PortLease.objects.filter(broker=broker).exists()
        if is_empty and topics is None and not acted:
            acted.append(act(acting=acting, rebalance=row))
        return view(topics)

    monkeypatch.setattr(FakeCluster, "view", lambda _self, topics=None: decides(topics))
    while not acted:
        job_runner.reconcile_once()
        confirm_generations()
        admin_client.catch_up()

    broker.refresh_from_db()
    assert broker.wanted == WantedState.RUNNING
    row.refresh_from_db()
    assert (row.state, row.step) == (acted[0].state, acted[0].step)
