"""Rounds over operators' work: what one row cannot do does not stop those of other clusters."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokers.choices import FleetOperationType, RebalanceState, RestartState, WantedState
from brokers.models import Broker, FleetOperation, Rebalance, RollingRestart
from brokers.operations import fleet_operations, job_runner
from tenants.actors import system_actor
from tests.testkit.fleet import make_fleet

pytestmark = pytest.mark.django_db


def test_a_rebalance_and_a_restart_that_fail_unexpectedly_stop_no_other_work(tmp_path: Path) -> None:
    first, second = (make_fleet(tmp_path, brokers=1) for _ in range(2))
    Broker.objects.update(wanted=WantedState.STOPPED)
    Rebalance.objects.create(
        pk="rb-00000000", cluster=first, kind="balance", state=RebalanceState.RUNNING, step="odd", planned_by="me"
    )
    RollingRestart.objects.create(pk="rr-00000000", cluster=first, numbers=[], asked_by="me")
    restart = RollingRestart.objects.create(pk="rr-zzzzzzzz", cluster=second, numbers=[1], asked_by="me")
    assert job_runner.reconcile_once() == 3
    restart.refresh_from_db()
    assert restart.state == RestartState.DONE


def test_an_operation_on_a_cluster_that_fails_unexpectedly_stops_no_other_one(tmp_path: Path) -> None:
    first, second = (make_fleet(tmp_path, brokers=1) for _ in range(2))
    Broker.objects.all().delete()
    acting = system_actor("tests")
    broken = fleet_operations.begin(acting, first, FleetOperationType.FORM)
    other = fleet_operations.begin(acting, second, FleetOperationType.FORM)
    FleetOperation.objects.filter(pk=broken.pk).update(steps=[])
    assert job_runner.reconcile_clusters() == 2
    other.refresh_from_db()
    assert any(step["state"] == "running" for step in other.steps)
