"""The agent under faults: unreachable PostgreSQL, a full disk, a clock that is set, a second agent."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import psutil
import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError

from brokers import services
from brokers.agent.database import DatabaseControlPlane
from brokers.agent.loop import Agent, AnotherAgent
from brokers.agent.process import BrokerProcess
from brokers.agent.successor import Successor
from brokers.agent.supervision import backoff_s
from brokers.choices import ProcessState, WantedState
from brokers.models import Cluster
from tenants.actors import system_actor
from tests.component.brokers.test_agent import STUBBORN, log_of, make_agent, pids
from tests.component.brokers.test_agent import agents as agents
from tests.testkit.fleet import make_fleet
from tests.testkit.waiting import eventually


@pytest.fixture()
def cluster(db: None, tmp_path: Path) -> Cluster:
    return make_fleet(tmp_path, brokers=1)


class Away:
    """An unreachable PostgreSQL."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch

    def __call__(self, *_args: object, **_fields: object) -> NoReturn:
        raise OperationalError("gone")

    def begin(self) -> None:
        self._patch.setattr(DatabaseControlPlane, "_read_host", self)
        self._patch.setattr("brokers.agent.database.process_settings", self)
        self._patch.setattr(services, "store_process_state", self)
        self._patch.setattr(services, "count_restart", self)


@pytest.fixture()
def away() -> Iterator[tuple[Away, pytest.MonkeyPatch]]:
    with pytest.MonkeyPatch.context() as patch:
        yield Away(patch), patch


def pid_of(agent: Agent) -> int | None:
    (charge,) = agent._brokers.values()
    return charge.process.pid if charge.process.is_running else None


def test_a_broker_that_dies_while_postgresql_is_away_is_restarted_and_reported_afterwards(
    agents: list[Agent], cluster: Cluster, tmp_path: Path, away: tuple[Away, pytest.MonkeyPatch]
) -> None:
    agent = make_agent(agents, cluster, tmp_path)
    agent.reconcile_once()
    (victim,) = pids(cluster)
    away[0].begin()
    os.kill(victim, signal.SIGKILL)

    def is_back() -> bool:
        agent.reconcile_once()
        return pid_of(agent) not in (None, victim)

    eventually(is_back, what="another process")
    away[1].undo()
    agent.reconcile_once()
    assert pids(cluster) == [pid_of(agent)]


def test_a_restart_that_ended_while_postgresql_was_away_does_not_stay_under_way(
    agents: list[Agent], cluster: Cluster, tmp_path: Path, away: tuple[Away, pytest.MonkeyPatch]
) -> None:
    agent = make_agent(agents, cluster, tmp_path)
    agent.reconcile_once()
    eventually(lambda: "up" in log_of(tmp_path, cluster, 1), what="the signal handler")
    (before,) = pids(cluster)
    services.restart_broker(acting=system_actor("tests"), broker=cluster.brokers.get())
    agent.reconcile_once()
    assert cluster.brokers.get().process_state == ProcessState.STOPPING
    away[0].begin()

    def is_back() -> bool:
        agent.reconcile_once()
        return pid_of(agent) not in (None, before)

    eventually(is_back, what="the next process")
    away[1].undo()
    agent.reconcile_once()
    assert not services.is_restarting(cluster.brokers.get())


def test_a_directory_that_cannot_be_written_is_said_and_tried_again(
    agents: list[Agent], cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / cluster.pk).write_text("not a directory")
    agent = make_agent(agents, cluster, tmp_path)
    agent.reconcile_once()
    row = cluster.brokers.get()
    assert row.process_state == ProcessState.BACKING_OFF
    assert "cannot be started" in row.process_error
    (tmp_path / "run" / cluster.pk).unlink()
    now_s = agent._clock()
    monkeypatch.setattr(agent, "_clock", lambda: now_s + backoff_s(1))
    agent.reconcile_once()
    assert cluster.brokers.get().process_state == ProcessState.RUNNING


def test_without_room_for_a_second_process_a_restart_goes_without_one(
    agents: list[Agent], cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_args: object) -> NoReturn:
        raise BlockingIOError("Resource temporarily unavailable")

    agent = make_agent(agents, cluster, tmp_path)
    agent._standby_command_for = lambda _file: (sys.executable, "-c", "")
    agent.reconcile_once()
    eventually(lambda: "up" in log_of(tmp_path, cluster, 1), what="the signal handler")
    monkeypatch.setattr(Successor, "__init__", no_room)
    services.restart_broker(acting=system_actor("tests"), broker=cluster.brokers.get())

    def is_restarted() -> bool:
        agent.reconcile_once()
        return not services.is_restarting(cluster.brokers.get())

    eventually(is_restarted, what="the restart")


def test_a_broker_that_is_wanted_again_while_it_hangs_in_its_stop_is_ended_and_started(
    agents: list[Agent], cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brokers.agent.loop.AGENT_STOP_TIMEOUT_S", 0.05)
    agent = make_agent(agents, cluster, tmp_path, STUBBORN)
    agent.reconcile_once()
    eventually(lambda: "up" in log_of(tmp_path, cluster, 1), what="the signal handler")
    (deaf,) = pids(cluster)
    for wanted in (WantedState.STOPPED, WantedState.RUNNING):
        services.set_wanted(acting=system_actor("tests"), broker=cluster.brokers.get(), wanted=wanted)
        agent.reconcile_once()

    def is_another() -> bool:
        agent.reconcile_once()
        return pid_of(agent) not in (None, deaf)

    eventually(is_another, what="another process")
    assert cluster.brokers.get().process_state == ProcessState.RUNNING


def sleeper(directory: Path) -> BrokerProcess:
    return BrokerProcess(directory=directory, command=(sys.executable, "-c", "import signal; signal.pause()"))


def test_a_process_is_found_again_after_the_clock_was_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sleeper(tmp_path)
    first.start()
    try:
        started_at_s = psutil.Process(first.pid).create_time()
        # All times of processes are counted from the start of the machine, which moves with the clock.
        monkeypatch.setattr(psutil.Process, "create_time", lambda _self: started_at_s - 3_600)
        second = sleeper(tmp_path)
        assert second.adopt()
        assert second.pid == first.pid
    finally:
        first.kill()
        first.wait(5)


def test_a_pid_that_was_used_again_is_not_believed_whatever_the_clock_says(tmp_path: Path) -> None:
    started_at = psutil.Process().create_time()
    body = {"pid": os.getpid(), "birth": "another-boot 17", "started_at": started_at}
    (tmp_path / "pid.json").write_text(json.dumps(body))
    assert not sleeper(tmp_path).adopt()


@pytest.mark.parametrize("torn", ["", "null", "[]", '{"pid": null, "started_at": 1}', "\0\0\0"])
def test_a_torn_pid_file_is_no_process(tmp_path: Path, torn: str) -> None:
    (tmp_path / "pid.json").write_text(torn)
    assert not sleeper(tmp_path).adopt()


def test_a_pid_that_could_not_be_written_is_written_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object, **_options: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    process = sleeper(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        process.start()
    try:
        assert process.is_running
        assert not sleeper(tmp_path).adopt()
        process.record()
        assert sleeper(tmp_path).adopt()
    finally:
        process.kill()
        process.wait(5)


def test_an_adopted_process_that_ends_between_two_questions_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sleeper(tmp_path)
    first.start()
    second = sleeper(tmp_path)
    assert second.adopt()
    first.kill()
    first.wait(5)
    monkeypatch.setattr(psutil.Process, "is_running", lambda _self: True)
    assert not second.is_running


def test_a_second_agent_of_a_host_is_refused_and_ends_nothing(
    agents: list[Agent], cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make_agent(agents, cluster, tmp_path), make_agent(agents, cluster, tmp_path)

    def sleep() -> None:
        with pytest.raises(AnotherAgent, match=f"process {os.getpid()}"):
            second.run()
        assert pid_of(first) is not None
        first.must_stop = True

    monkeypatch.setattr(first, "_sleep", sleep)
    monkeypatch.setattr("brokers.agent.database.close_old_connections", lambda: None)
    first.run()
    second.must_stop = True
    second.run()


def test_the_command_says_which_agent_is_there_already(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: Agent) -> NoReturn:
        raise AnotherAgent("The agent of host h runs already (process 7).")

    monkeypatch.setattr(Agent, "run", refuse)
    monkeypatch.setattr(signal, "signal", lambda *_args: None)
    with pytest.raises(CommandError, match=r"process 7\)\. Stop that one"):
        call_command("agent", "--host", "h")
