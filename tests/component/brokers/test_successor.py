"""Restart by the agent: the next process is ready before the running one is asked to stop (REP-34, decision 68)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from brokers import services
from brokers.agent.loop import Agent, standby_engine_command
from brokers.agent.successor import Successor
from brokers.choices import ProcessState, WantedState
from brokers.models import Broker, Cluster
from tenants.actors import system_actor
from tests.testkit.fleet import make_fleet
from tests.testkit.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
UP = "import signal,sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('up', flush=True); signal.pause()"
STANDING = (
    "import os,sys; print('prepares', flush=True); os.write(0, b'stands by\\n')\n"
    "if os.read(0, 6) != b'go on\\n': print('not needed', flush=True); sys.exit(0)\n"
    f"print('called', flush=True); {UP}"
)
SLOW = "import os; print('prepares', flush=True); os.read(0, 6)"
ENDING = "print('cannot get ready', flush=True)"


@pytest.fixture()
def cluster(db: None, tmp_path: Path) -> Cluster:
    return make_fleet(tmp_path, brokers=1)


@pytest.fixture()
def agents(cluster: Cluster) -> Iterator[list[Agent]]:
    made: list[Agent] = []
    yield made
    for agent in made:
        agent.stop_all()


def running(agents: list[Agent], cluster: Cluster, tmp_path: Path, standing: str) -> Agent:
    """An agent with one running process."""

    def command(code: str) -> Sequence[str]:
        return sys.executable, "-c", code

    agent = Agent(
        cluster.brokers.get().host.name,
        run_dir=tmp_path / "run",
        command_for=lambda _: command(UP),
        standby_command_for=lambda _: command(standing),
    )
    agents.append(agent)
    agent.reconcile_once()
    eventually(lambda: "up" in log_of(tmp_path, cluster), what="the signal handler")
    return agent


def log_of(tmp_path: Path, cluster: Cluster) -> str:
    return (tmp_path / "run" / cluster.pk / "1" / "broker.log").read_text()


def restart(cluster: Cluster) -> Broker:
    return services.restart_broker(acting=system_actor("tests"), broker=cluster.brokers.get())


def is_restarted(agent: Agent, cluster: Cluster) -> bool:
    agent.reconcile_once()
    row = cluster.brokers.get()
    return row.process_restart_generation == row.restart_generation and row.process_state == ProcessState.RUNNING


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def successors(agent: Agent) -> list[Successor]:
    return [charge.successor for charge in agent._brokers.values() if charge.successor is not None]


def test_the_one_before_is_asked_to_stop_when_the_next_one_stands_by(
    agents: list[Agent], cluster: Cluster, tmp_path: Path
) -> None:
    agent = running(agents, cluster, tmp_path, STANDING)
    before = cluster.brokers.get().process_pid
    assert before is not None
    restart(cluster)
    agent.reconcile_once()
    (next_one,) = successors(agent)
    assert is_alive(before), "nobody was asked to stop yet"
    assert cluster.brokers.get().process_state == ProcessState.RUNNING
    eventually(lambda: next_one.is_ready, what="the successor to stand by")
    eventually(lambda: is_restarted(agent, cluster), what="the restart")
    assert cluster.brokers.get().process_pid == next_one.child.pid
    eventually(lambda: log_of(tmp_path, cluster).split() == ["up", "prepares", "called", "up"], what="the call")
    assert not is_alive(before)
    assert cluster.brokers.get().process_restarts == 0
    assert not successors(agent)


def test_one_that_dies_while_its_successor_gets_ready_is_succeeded_all_the_same(
    agents: list[Agent], cluster: Cluster, tmp_path: Path
) -> None:
    agent = running(agents, cluster, tmp_path, STANDING)
    before = cluster.brokers.get().process_pid
    assert before is not None
    restart(cluster)
    agent.reconcile_once()
    (next_one,) = successors(agent)
    os.kill(before, signal.SIGKILL)
    eventually(lambda: is_restarted(agent, cluster), what="the restart")
    assert cluster.brokers.get().process_pid == next_one.child.pid


@pytest.mark.parametrize("standing", [SLOW, ENDING])
def test_a_successor_that_does_not_get_ready_delays_the_restart_and_does_not_prevent_it(
    agents: list[Agent], cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, standing: str
) -> None:
    monkeypatch.setattr("brokers.agent.loop.AGENT_STAND_BY_TIMEOUT_S", 0.2)
    agent = running(agents, cluster, tmp_path, standing)
    before = cluster.brokers.get().process_pid
    restart(cluster)
    eventually(lambda: is_restarted(agent, cluster) and agent_has_another(agent, cluster, before), what="the restart")


def agent_has_another(agent: Agent, cluster: Cluster, before: int | None) -> bool:
    """Waits for a running successor: a process that ends on its own is started again."""
    agent.reconcile_once()
    row = cluster.brokers.get()
    return row.process_pid not in (None, before) and row.process_state == ProcessState.RUNNING


def test_a_broker_to_be_stopped_for_good_has_no_successor(
    agents: list[Agent], cluster: Cluster, tmp_path: Path
) -> None:
    agent = running(agents, cluster, tmp_path, STANDING)
    restart(cluster)
    agent.reconcile_once()
    (next_one,) = successors(agent)
    services.set_wanted(acting=system_actor("tests"), broker=cluster.brokers.get(), wanted=WantedState.STOPPED)

    def is_stopped() -> bool:
        agent.reconcile_once()
        return cluster.brokers.get().process_state == ProcessState.STOPPED

    eventually(is_stopped, what="the stop")
    assert not next_one.is_alive
    assert "called" not in log_of(tmp_path, cluster)


def test_an_agent_that_stops_leaves_no_successor_behind(agents: list[Agent], cluster: Cluster, tmp_path: Path) -> None:
    agent = running(agents, cluster, tmp_path, STANDING)
    restart(cluster)
    agent.reconcile_once()
    (next_one,) = successors(agent)
    agent.stop_all()
    assert not is_alive(next_one.child.pid)


def test_a_successor_ends_with_the_agent_that_died(tmp_path: Path) -> None:
    """Nobody else would activate it, and the next agent starts its own."""
    log = tmp_path / "log"
    with log.open("ab") as stream:
        made = Successor([sys.executable, "-c", STANDING], stream)
    eventually(lambda: made.is_ready, what="it to stand by")
    made._channel.close()
    assert made.child.wait(10) == 0
    assert log.read_text().split("\n")[:2] == ["prepares", "not needed"]


def test_a_broker_stands_by_without_touching_anything(tmp_path: Path) -> None:
    """It reads its settings when it is activated, because they may change meanwhile."""
    command = standby_engine_command(tmp_path / "not-written-yet.json")
    log = tmp_path / "log"
    with log.open("ab") as stream:
        made = Successor([*command], stream)
    eventually(lambda: made.is_ready, within_s=30, what="it to stand by")
    assert made.is_alive
    called: subprocess.Popen[bytes] = made.activate()
    assert called.wait(10) == 2
    assert "not-written-yet.json" in log.read_text()
