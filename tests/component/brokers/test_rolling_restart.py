"""Rolling restarts: one broker at a time, and only while nothing else is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from brokers import services
from brokers.choices import ProcessState, RestartState, WantedState
from brokers.models import Broker, Cluster, RollingRestart
from brokers.operations import job_runner, rolling_restart
from brokers.operations.rolling_restart import restart_order, restart_readiness
from tenants.actors import Actor
from tenants.errors import Conflict
from tenants.models import AuditEntry
from tests.testkit.fleet import make_fleet


def snapshot(*live: int, **more: Any) -> dict[str, Any]:
    """Returns a broker's answer about a healthy cluster; keyword arguments add faults."""
    known = {"ready": True, "controller_id": min(live, default=-1), "offline": 0, "under_replicated": 0}
    brokers = [{"id": id, "live": True, "stopping": False} for id in live]
    return known | {"brokers": brokers} | more


def stopping(*live: int, who: int) -> list[dict[str, Any]]:
    return [{"id": id, "live": True, "stopping": id == who} for id in live]


@pytest.mark.parametrize(
    ("answers", "trouble"),
    [
        ({1: snapshot(1, 2), 2: snapshot(1, 2)}, ""),
        ({1: snapshot(1, 2)}, "Broker 2 does not answer."),
        ({1: snapshot(1, 2), 2: snapshot(1, 2, ready=False)}, "Broker 2 is starting."),
        ({1: snapshot(1), 2: snapshot(1, 2)}, "Broker 1 does not see broker 2 yet."),
        ({1: snapshot(1, 2, brokers=stopping(1, 2, who=2)), 2: snapshot(1, 2)}, "Broker 1 does not see broker 2 yet."),
        ({1: snapshot(1, 2), 2: snapshot(1, 2, controller_id=-1)}, "There is no controller."),
        ({1: snapshot(1, 2), 2: snapshot(1, 2, offline=3)}, "3 partitions have no leader."),
        ({1: snapshot(1, 2, under_replicated=14), 2: snapshot(1, 2)}, "14 partitions are under-replicated."),
        ({1: snapshot(1, 2), 2: snapshot(1, 2), 9: snapshot(9, offline=1)}, ""),
    ],
)
def test_the_brokers_own_images_decide(answers: Mapping[int, Mapping[str, Any]], trouble: str) -> None:
    calm = restart_readiness(frozenset({1, 2}), answers)
    assert calm.reason == trouble
    assert bool(calm) is not bool(trouble)


def test_the_controller_comes_last() -> None:
    assert restart_order([3, 1, 2], controller=1) == [2, 3, 1]
    assert restart_order([3, 1, 2], controller=-1) == [1, 2, 3]


@pytest.fixture()
def cluster(db: None, tmp_path: Path) -> Cluster:
    fleet = make_fleet(tmp_path)
    fleet.brokers.update(process_state=ProcessState.RUNNING)
    fleet.brokers.filter(number=2).update(observed={"is_controller": True})
    return fleet


@pytest.fixture()
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, Any]]:
    result: dict[int, Any] = {number: snapshot(1, 2, 3) for number in (1, 2, 3)}
    monkeypatch.setattr(rolling_restart, "_cluster_images", lambda _cluster: result)
    yield result


def restarting(cluster: Cluster) -> list[int]:
    rows = Broker.objects.filter(cluster=cluster).order_by("number")
    return [row.number for row in rows if services.is_restarting(row)]


def come_back(cluster: Cluster) -> None:
    """Notes the restarts in the way of the agent."""
    for row in Broker.objects.filter(cluster=cluster):
        Broker.objects.filter(pk=row.pk).update(process_restart_generation=row.restart_generation)


def test_one_broker_after_the_other_and_the_next_only_when_all_is_in_sync(
    cluster: Cluster, acting: Actor, answers: dict[int, Any]
) -> None:
    row = rolling_restart.start(acting=acting, cluster=cluster)
    taken = []
    for _ in range(3):
        job_runner.reconcile_once()
        (number,) = restarting(cluster)
        taken.append(number)
        job_runner.reconcile_once()
        assert restarting(cluster) == [number], "it has not come back"
        come_back(cluster)
        answers[1] = snapshot(1, 2, 3, under_replicated=5)
        job_runner.reconcile_once()
        row.refresh_from_db()
        assert row.trouble == "5 partitions are under-replicated."
        assert restarting(cluster) == []
        answers[1] = snapshot(1, 2, 3)
        job_runner.reconcile_once()
    row.refresh_from_db()
    assert taken == [1, 3, 2]
    assert row.state == RestartState.DONE and row.done == 3
    message = AuditEntry.objects.get(action="rolling_restart.ended", target_id=row.pk)
    assert message.after == {"state": "done"} and message.actor_label == rolling_restart.ACTOR
    assert list(cluster.brokers.values_list("restart_generation", flat=True)) == [1, 1, 1]


def test_nothing_is_taken_down_while_something_is_missing(
    cluster: Cluster, acting: Actor, answers: dict[int, Any]
) -> None:
    del answers[3]
    row = rolling_restart.start(acting=acting, cluster=cluster)
    job_runner.reconcile_once()
    row.refresh_from_db()
    assert (row.trouble, row.done, restarting(cluster)) == ("Broker 3 does not answer.", 0, [])


def test_a_worker_that_dies_after_asking_restarts_no_broker_twice(
    cluster: Cluster, acting: Actor, answers: dict[int, Any]
) -> None:
    row = rolling_restart.start(acting=acting, cluster=cluster)
    stale = RollingRestart.objects.get(pk=row.pk)
    job_runner.reconcile_once()
    rolling_restart.reconcile_once(stale)
    assert sum(cluster.brokers.values_list("restart_generation", flat=True)) == 1


def test_nothing_is_taken_down_beside_a_broker_that_an_operator_restarts(
    cluster: Cluster, acting: Actor, answers: dict[int, Any]
) -> None:
    """Its restart is requested, and it still answers."""
    row = rolling_restart.start(acting=acting, cluster=cluster)
    services.restart_broker(acting=acting, broker=cluster.brokers.get(number=3))
    job_runner.reconcile_once()
    assert restarting(cluster) == [3]
    row.refresh_from_db()
    assert row.trouble == "Broker 3 restarts."
    come_back(cluster)
    job_runner.reconcile_once()
    assert restarting(cluster) == [1]


def test_a_pause_takes_no_further_broker_down_and_a_cancel_ends_it(
    cluster: Cluster, acting: Actor, answers: dict[int, Any]
) -> None:
    row = rolling_restart.start(acting=acting, cluster=cluster)
    rolling_restart.pause(acting=acting, restart=row)
    assert job_runner.reconcile_once() == 0
    assert restarting(cluster) == []
    rolling_restart.resume(acting=acting, restart=row)
    job_runner.reconcile_once()
    assert len(restarting(cluster)) == 1
    assert rolling_restart.cancel(acting=acting, restart=row).ended_at is not None
    come_back(cluster)
    assert job_runner.reconcile_once() == 0
    with pytest.raises(Conflict, match="cancelled"):
        rolling_restart.resume(acting=acting, restart=row)


def test_a_broker_that_is_stopped_meanwhile_is_passed_over(
    cluster: Cluster, acting: Actor, answers: dict[int, Any]
) -> None:
    row = rolling_restart.start(acting=acting, cluster=cluster)
    Broker.objects.filter(cluster=cluster, number=1).update(wanted=WantedState.STOPPED)
    for _ in range(5):
        job_runner.reconcile_once()
        come_back(cluster)
        answers.pop(1, None)
        answers.update({number: snapshot(2, 3) for number in (2, 3)})
    row.refresh_from_db()
    assert row.state == RestartState.DONE
    assert Broker.objects.get(cluster=cluster, number=1).restart_generation == 0


def test_one_rolling_restart_of_a_cluster_at_a_time(cluster: Cluster, acting: Actor, answers: dict[int, Any]) -> None:
    rolling_restart.start(acting=acting, cluster=cluster)
    with pytest.raises(Conflict, match="under way"):
        rolling_restart.start(acting=acting, cluster=cluster)
