"""Restarts of brokers that run plain modules although a build exists: in turn, once for each build."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from brokers.choices import ProcessState, RestartState, WantedState
from brokers.limits import BROKER_LATE_S
from brokers.models import Cluster, RollingRestart
from brokers.monitoring import health
from brokers.operations import compiled_uptake, rolling_restart
from tenants.actors import system_actor
from tests.testkit.fleet import make_fleet

BUILT_MS = 1_700_000_000_000


def status(**changed: Any) -> dict[str, Any]:
    """Returns the status of a broker that started before there was a build."""
    build = {"build": changed.pop("build", "complete"), "reason": changed.pop("reason", ""), "since_ms": BUILT_MS}
    return {"compiled": False, "started_at_ms": BUILT_MS - 1, "build": build} | changed


@pytest.mark.parametrize(
    ("said", "since_ms"),
    [
        (status(), BUILT_MS),
        (status(compiled=True), None),
        (status(build="running"), None),
        (status(build="failed"), None),
        (status(started_at_ms=BUILT_MS + 1), None),
        ({"started_at_ms": 1}, None),
        ({}, None),
    ],
)
def test_a_restart_is_due_where_it_gains_something(said: dict[str, Any], since_ms: int | None) -> None:
    assert compiled_uptake.complete_since_ms(said) == since_ms


@pytest.fixture()
def cluster(db: None, tmp_path: Path) -> Cluster:
    fleet = make_fleet(tmp_path)
    fleet.brokers.update(process_state=ProcessState.RUNNING, observed=status(), observed_at=timezone.now())
    return fleet


def test_a_rolling_restart_of_the_plain_ones_is_begun_once(cluster: Cluster) -> None:
    cluster.brokers.filter(number=2).update(observed=status(compiled=True))
    assert compiled_uptake.start_due_restarts(timezone.now()) == 1
    row = RollingRestart.objects.get()
    assert (row.numbers, row.asked_by) == ([1, 3], compiled_uptake.ACTOR)
    assert compiled_uptake.start_due_restarts(timezone.now()) == 0


def test_one_that_an_operator_cancels_is_not_begun_again(cluster: Cluster) -> None:
    compiled_uptake.start_due_restarts(timezone.now())
    rolling_restart.cancel(acting=system_actor("test"), restart=RollingRestart.objects.get())
    assert compiled_uptake.start_due_restarts(timezone.now()) == 0


def test_a_later_build_is_taken_up_as_well(cluster: Cluster) -> None:
    compiled_uptake.start_due_restarts(timezone.now())
    RollingRestart.objects.update(state=RestartState.DONE)
    later_ms = int((timezone.now() + timedelta(minutes=1)).timestamp() * 1000)
    build = {"build": "complete", "reason": "", "since_ms": later_ms}
    cluster.brokers.filter(number=1).update(observed=status(build="complete") | {"build": build})
    assert compiled_uptake.start_due_restarts(timezone.now()) == 1


def test_it_waits_for_an_operators_own_restart(cluster: Cluster) -> None:
    other = rolling_restart.start(acting=system_actor("test"), cluster=cluster)
    assert compiled_uptake.start_due_restarts(timezone.now()) == 0
    rolling_restart.cancel(acting=system_actor("test"), restart=other)
    assert compiled_uptake.start_due_restarts(timezone.now()) == 1


def test_a_stopped_or_silent_broker_is_left_alone(cluster: Cluster) -> None:
    cluster.brokers.filter(number=1).update(wanted=WantedState.STOPPED)
    cluster.brokers.exclude(number=1).update(observed_at=timezone.now() - timedelta(seconds=BROKER_LATE_S + 1))
    assert compiled_uptake.start_due_restarts(timezone.now()) == 0


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({}, ""),
        (status(compiled=True), "compiled"),
        (status(build="pending"), "plain, being compiled"),
        (status(build="running"), "plain, being compiled"),
        (status(), "plain, compiled from its next start"),
        (status(build="impossible", reason="there is no C compiler (cc)"), "plain: there is no C compiler (cc)"),
        (status(build="unknown"), "plain"),
    ],
)
def test_the_panel_says_what_a_broker_runs(cluster: Cluster, said: dict[str, Any], shown: str) -> None:
    broker = cluster.brokers.all()[0]
    broker.observed = said
    assert health.modules_of(broker) == shown
