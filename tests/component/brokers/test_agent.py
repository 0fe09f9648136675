"""The agent: its pure decisions, and its actions on real processes of a dummy command."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.db import OperationalError, connection
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from brokers import services
from brokers.agent.database import ClusterFacts, DatabaseControlPlane, process_settings
from brokers.agent.loop import Agent
from brokers.agent.supervision import ObservedProcess, ProcessAction, backoff_s, decide, failures_after_end
from brokers.choices import ProcessState, WantedState
from brokers.contract.process import BrokerProcessSettings
from brokers.contract.zookeeper_access import Credentials
from brokers.limits import AGENT_BACKOFF_MAX_S, AGENT_STABLE_AFTER_S
from brokers.models import Broker, Cluster
from tenants.actors import system_actor
from tenants.errors import Conflict
from tests.testkit.fleet import make_fleet
from tests.testkit.waiting import eventually

SLEEPER = (
    "import signal,sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('up', flush=True); signal.pause()"
)
FAILING = "import sys; print('cannot bind port 1', file=sys.stderr); sys.exit(3)"
STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"
)


def seen(**fields: object) -> ObservedProcess:
    known: dict[str, object] = {"is_wanted": True, "is_running": False, "wanted_restarts": 0, "done_restarts": 0}
    return ObservedProcess(**(known | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "act"),
    [
        ({}, ProcessAction.START),
        ({"is_running": True}, ProcessAction.NOTHING),
        ({"is_running": True, "is_wanted": False}, ProcessAction.STOP),
        ({"is_running": True, "wanted_restarts": 1}, ProcessAction.STOP),
        ({"is_wanted": False}, ProcessAction.NOTHING),
        ({"failures": 1, "ended_at_s": 99.9}, ProcessAction.WAIT),
        ({"failures": 1, "ended_at_s": 99.0}, ProcessAction.START),
        ({"failures": 9, "ended_at_s": 99.0, "wanted_restarts": 1}, ProcessAction.START),
    ],
)
def test_one_act_is_due(fields: dict[str, object], act: ProcessAction) -> None:
    assert decide(seen(**fields), now_s=100.0) is act


@given(st.integers(0, 10_000))
def test_the_wait_grows_with_failures_up_to_a_limit(failures: int) -> None:
    assert 0 <= backoff_s(failures) <= backoff_s(failures + 1) <= AGENT_BACKOFF_MAX_S


def test_a_process_that_ran_long_enough_begins_a_fresh_count() -> None:
    assert failures_after_end(7, AGENT_STABLE_AFTER_S) == 1
    assert failures_after_end(7, 1.0) == 8


@pytest.fixture()
def cluster(db: None, tmp_path: Path) -> Cluster:
    return make_fleet(tmp_path, brokers=2)


@pytest.fixture()
def agents(cluster: Cluster, tmp_path: Path) -> Iterator[list[Agent]]:
    made: list[Agent] = []
    yield made
    for agent in made:
        agent.stop_all()


def make_agent(agents: list[Agent], cluster: Cluster, tmp_path: Path, code: str = SLEEPER) -> Agent:
    def command(settings_file: Path) -> Sequence[str]:
        return sys.executable, "-c", code, str(settings_file)

    agent = Agent(cluster.brokers.all()[0].host.name, run_dir=tmp_path / "run", command_for=command)
    agents.append(agent)
    return agent


def pids(cluster: Cluster) -> list[int]:
    return [pid for pid in cluster.brokers.values_list("process_pid", flat=True) if pid]


def log_of(tmp_path: Path, cluster: Cluster, number: int) -> str:
    file = tmp_path / "run" / cluster.pk / str(number) / "broker.log"
    return file.read_text() if file.exists() else ""


def test_brokers_learn_where_their_credentials_are_and_how_the_control_plane_is_called(
    cluster: Cluster, tmp_path: Path, settings: Any
) -> None:
    for role in ("control", "broker"):
        (tmp_path / role).write_text(f"{role}:password-of-{role}")
    settings.ZOOKEEPER_CONTROL_FILE, settings.ZOOKEEPER_BROKER_FILE = (
        str(tmp_path / "control"),
        str(tmp_path / "broker"),
    )
    made = process_settings(cluster.brokers.get(number=1), ClusterFacts(brokers=1))
    assert made.zookeeper_credentials_file == str(tmp_path / "broker")
    assert made.zookeeper_control_digest == Credentials("control", "password-of-control").digest
    assert "password" not in made.zookeeper_control_digest


def test_a_broker_whose_credentials_cannot_be_read_is_not_started_and_says_so(
    agents: list[Agent], cluster: Cluster, tmp_path: Path, settings: Any
) -> None:
    settings.ZOOKEEPER_CONTROL_FILE = settings.ZOOKEEPER_BROKER_FILE = str(tmp_path / "missing")
    make_agent(agents, cluster, tmp_path).reconcile_once()
    broker = cluster.brokers.get(number=1)
    assert not pids(cluster)
    assert "ZooKeeper's credentials cannot be read" in broker.process_error


def test_wanted_brokers_are_started_with_their_settings(agents: list[Agent], cluster: Cluster, tmp_path: Path) -> None:
    make_agent(agents, cluster, tmp_path).reconcile_once()
    running = pids(cluster)
    assert len(running) == 2
    assert all(psutil.pid_exists(pid) for pid in running)
    settings = BrokerProcessSettings.read(tmp_path / "run" / cluster.pk / "2" / "settings.json")
    broker = cluster.brokers.get(number=2)
    assert (settings.broker_id, settings.internal_port, settings.admin_port) == (
        2, broker.internal_port, broker.admin_port,
    )  # fmt: skip
    assert settings.zookeeper.endswith(f"/penstock/{cluster.pk}")
    assert settings.control_secret_file == cluster.control_secret_file


def test_a_killed_broker_is_started_again(agents: list[Agent], cluster: Cluster, tmp_path: Path) -> None:
    agent = make_agent(agents, cluster, tmp_path)
    agent.reconcile_once()
    victim = cluster.brokers.get(number=1).process_pid
    assert victim is not None
    os.kill(victim, signal.SIGKILL)

    def is_back() -> bool:
        agent.reconcile_once()
        row = cluster.brokers.get(number=1)
        return row.process_pid not in (None, victim) and row.process_state == ProcessState.RUNNING

    eventually(is_back, what="another process")
    assert cluster.brokers.get(number=1).process_restarts == 1


def test_a_broker_that_cannot_start_waits_longer_each_time_and_its_last_words_are_kept(
    agents: list[Agent], cluster: Cluster, tmp_path: Path
) -> None:
    agent = make_agent(agents, cluster, tmp_path, FAILING)

    def gave_up_for_now() -> bool:
        agent.reconcile_once()
        row = cluster.brokers.get(number=1)
        return row.process_restarts >= 2 and row.process_state == ProcessState.BACKING_OFF

    eventually(gave_up_for_now, what="two failures")
    assert cluster.brokers.get(number=1).process_error == "cannot bind port 1"


def test_a_restart_stops_and_starts_one_broker(agents: list[Agent], cluster: Cluster, tmp_path: Path) -> None:
    agent = make_agent(agents, cluster, tmp_path)
    agent.reconcile_once()
    before = {broker.number: broker.process_pid for broker in cluster.brokers.all()}
    eventually(lambda: "up" in log_of(tmp_path, cluster, 1), what="the signal handler")
    services.restart_broker(acting=system_actor("tests"), broker=cluster.brokers.get(number=1))
    with pytest.raises(Conflict, match="One at a time"):
        services.restart_broker(acting=system_actor("tests"), broker=cluster.brokers.get(number=2))

    def is_restarted() -> bool:
        agent.reconcile_once()
        row = cluster.brokers.get(number=1)
        return row.process_restart_generation == 1 and row.process_pid not in (None, before[1])

    eventually(is_restarted, what="the restart")
    assert cluster.brokers.get(number=2).process_pid == before[2]
    assert cluster.brokers.get(number=1).process_restarts == 0


def test_a_broker_that_is_not_wanted_is_stopped(agents: list[Agent], cluster: Cluster, tmp_path: Path) -> None:
    agent = make_agent(agents, cluster, tmp_path)
    agent.reconcile_once()
    eventually(lambda: "up" in log_of(tmp_path, cluster, 2), what="the signal handler")
    services.set_wanted(acting=system_actor("tests"), broker=cluster.brokers.get(number=2), wanted=WantedState.STOPPED)

    def is_stopped() -> bool:
        agent.reconcile_once()
        return cluster.brokers.get(number=2).process_state == ProcessState.STOPPED

    eventually(is_stopped, what="the stop")
    assert len(pids(cluster)) == 1


def test_the_next_agent_takes_over_what_runs(agents: list[Agent], cluster: Cluster, tmp_path: Path) -> None:
    first = make_agent(agents, cluster, tmp_path)
    first.reconcile_once()
    before = pids(cluster)
    second = make_agent(agents, cluster, tmp_path)
    second.reconcile_once()
    assert pids(cluster) == before
    second.stop_all()
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in before)


def test_a_stale_pid_file_is_not_believed(agents: list[Agent], cluster: Cluster, tmp_path: Path) -> None:
    directory = tmp_path / "run" / cluster.pk / "1"
    directory.mkdir(parents=True)
    (directory / "pid.json").write_text(json.dumps({"pid": os.getpid(), "started_at": 1.0}))
    make_agent(agents, cluster, tmp_path).reconcile_once()
    assert cluster.brokers.get(number=1).process_pid not in (None, os.getpid())


def test_stopping_the_agent_stops_everything_the_stubborn_ones_by_force(
    agents: list[Agent], cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brokers.agent.loop.AGENT_STOP_TIMEOUT_S", 0.3)
    agent = make_agent(agents, cluster, tmp_path, STUBBORN)
    agent.reconcile_once()
    eventually(lambda: "up" in log_of(tmp_path, cluster, 1) + log_of(tmp_path, cluster, 2), what="the processes")
    before = pids(cluster)
    agent.stop_all()
    assert not any(psutil.pid_exists(pid) for pid in before)
    assert set(Broker.objects.values_list("process_state", flat=True)) == {ProcessState.STOPPED}


def test_without_postgresql_processes_are_watched_on(
    agents: list[Agent], cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_agent(agents, cluster, tmp_path)
    agent.reconcile_once()
    before = pids(cluster)
    with monkeypatch.context() as patch:
        patch.setattr(DatabaseControlPlane, "_read_host", lambda _self: (_ for _ in ()).throw(OperationalError("gone")))
        agent.reconcile_once()
    assert pids(cluster) == before
    assert connection.is_usable()


def test_broker_settings_of_json_are_given_as_kafka_writes_them(cluster: Cluster) -> None:
    broker = cluster.brokers.get(number=1)
    broker.overrides = {"log.message.downconversion.enable": False, "log.cleaner.threads": 2, "log.retention.ms": "5"}
    given = process_settings(broker, ClusterFacts(brokers=2)).overrides
    assert {key: given[key] for key in broker.overrides} == {
        "log.message.downconversion.enable": "false", "log.cleaner.threads": "2", "log.retention.ms": "5",
    }  # fmt: skip


def test_a_broker_that_died_before_it_was_to_stop_has_stopped(
    agents: list[Agent], cluster: Cluster, tmp_path: Path
) -> None:
    """A removal waits for the stopped state."""
    agent = make_agent(agents, cluster, tmp_path, FAILING)

    def says(state: ProcessState) -> bool:
        agent.reconcile_once()
        return cluster.brokers.get(number=1).process_state == state

    eventually(lambda: says(ProcessState.BACKING_OFF), what="its death")
    services.set_wanted(acting=system_actor("tests"), broker=cluster.brokers.get(number=1), wanted=WantedState.STOPPED)
    eventually(lambda: says(ProcessState.STOPPED), what="the stop")


def test_a_process_report_that_postgresql_missed_is_sent_again(
    agents: list[Agent], cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rolling restart waits for the report of the restarted broker, and so does any later one."""
    agent = make_agent(agents, cluster, tmp_path)
    services.restart_broker(acting=system_actor("tests"), broker=cluster.brokers.get(number=1))

    def is_away(*_args: object, **_fields: object) -> None:
        raise OperationalError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(services, "store_process_state", is_away)
        agent.reconcile_once()
    assert services.is_restarting(cluster.brokers.get(number=1))

    agent.reconcile_once()

    row = cluster.brokers.get(number=1)
    assert (row.process_state, row.process_restart_generation) == (ProcessState.RUNNING, 1)
    assert row.process_pid and psutil.pid_exists(row.process_pid)


def test_a_broker_removed_while_its_host_was_away_is_stopped_when_the_host_is_back(
    agents: list[Agent], cluster: Cluster, tmp_path: Path
) -> None:
    """Its process outlived the agent, and must not serve old logs."""
    make_agent(agents, cluster, tmp_path).reconcile_once()
    left = cluster.brokers.get(number=2).process_pid
    assert left is not None
    Broker.objects.filter(cluster=cluster, number=2).update(
        wanted=WantedState.STOPPED, given_up_at=timezone.now(), removed_at=timezone.now()
    )
    agent = make_agent(agents, cluster, tmp_path)

    def is_stopped() -> bool:
        agent.reconcile_once()
        return cluster.brokers.get(number=2).process_state == ProcessState.STOPPED

    eventually(is_stopped, what="the removed broker to be stopped")
    eventually(lambda: not _lives(left), what="its process to end")
    assert cluster.brokers.get(number=1).process_state == ProcessState.RUNNING


def _lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
