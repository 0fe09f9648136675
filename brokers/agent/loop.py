"""Loop of the agent: reads the wanted state of its host, acts on each process, records what it observes, and sleeps.

It sleeps until the control plane notifies it, so that a restart requested by an operator begins immediately; without a
notification it polls every `AGENT_POLL_S`. While the control plane is away, it keeps the processes as they are and
monitors them: a dead process is restarted with its previous settings, and observations are reported afterwards.

Each host has one agent: a second one would start the same processes, and stop them when it ends.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import structlog
from django.conf import settings
from django.utils import timezone

from brokers.agent.compiling import Compiling
from brokers.agent.control_plane import ControlPlane, ControlPlaneAway
from brokers.agent.database import DatabaseControlPlane
from brokers.agent.host_checks import HostChecks
from brokers.agent.process import BeforeExec, BrokerProcess
from brokers.agent.successor import Successor
from brokers.agent.supervision import Act, ObservedProcess, decide, failures_after_end
from brokers.choices import ProcessState, WantedState
from brokers.contract.process import BrokerProcessSettings
from brokers.contract.process_identity import PLAINTEXT
from brokers.limits import AGENT_POLL_S, AGENT_STAND_BY_TIMEOUT_S, AGENT_STOP_TIMEOUT_S, AGENT_WATCH_S
from brokers.models import Broker, Host

log = structlog.get_logger(__name__)

CommandFor = Callable[[Path], Sequence[str]]


class AnotherAgent(Exception):
    """An agent for this host is already running on this machine."""


def engine_command(settings_file: Path) -> Sequence[str]:
    """Returns the command of a broker process."""
    return (sys.executable, "-m", "brokers.engine", "--settings", str(settings_file))


def standing_engine_command(settings_file: Path) -> Sequence[str]:
    """Returns the command of a broker process that waits for another one to end."""
    return (*engine_command(settings_file), "--stand-by")


@dataclass(slots=True, kw_only=True)
class ManagedBroker:
    """Broker managed by the agent; instants in monotonic seconds."""

    process: BrokerProcess
    failures: int = 0
    started_at_s: float = 0.0
    ended_at_s: float = 0.0
    done_restarts: int = 0
    is_stopping: bool = False
    has_tls: bool = True
    stop_by_s: float = 0.0
    # During a restart, from before the process is asked to stop until it has stopped.
    successor: Successor | None = None
    stand_by_until_s: float = 0.0
    declared: ProcessState | None = field(default=None)
    # State that is not reported yet.
    undeclared: dict[str, object] = field(default_factory=dict)


class Agent:
    """Keeps the broker processes of one host in their wanted state.

    Without a `standing_command_for`, a restart starts the next process after the previous one has ended.
    """

    def __init__(
        self,
        host_name: str,
        *,
        control_plane: ControlPlane | None = None,
        run_dir: Path | None = None,
        command_for: CommandFor = engine_command,
        standing_command_for: CommandFor | None = None,
        before_exec: BeforeExec | None = None,
        compiling: Compiling | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host_name = host_name
        self._run_dir = run_dir or settings.STATE_DIR / "agent"
        self._command_for = command_for
        self._standing_command_for = standing_command_for
        self._before_exec = before_exec
        self._compiling = compiling
        self._clock = clock
        self._charges: dict[str, ManagedBroker] = {}
        self._wanted: dict[str, Broker] = {}
        self._control_plane: ControlPlane = control_plane or DatabaseControlPlane(host_name)
        self._checks = HostChecks(self._run_dir, self._control_plane.facts)
        self._host: Host | None = None
        self.must_stop = False

    def run(self) -> None:
        """Runs until `must_stop`, then stops every process. Raises `AnotherAgent`."""
        with self._alone():
            if self._compiling is not None:
                self._compiling.open()
            while not self.must_stop:
                self._control_plane.begin_round()
                self.reconcile_once()
                self._sleep()
            self.stop_all()
            self._control_plane.close()

    def reconcile_once(self) -> None:
        """Reconciles all brokers of this host once."""
        with suppress(ControlPlaneAway):
            self._read_wanted()
        self._control_plane.renew_certificates(list(self._wanted.values()), self._clock())
        for broker in self._wanted.values():
            try:
                self._supervise(broker)
            except OSError as error:  # a failing directory of one broker must not affect others
                log.warning("agent.broker_failed", broker_id=broker.number, reason=str(error))
        if self._compiling is not None:
            self._compiling.reconcile_once(are_started=self._are_started())
        if self._host is not None:
            self._checks.start_if_due(self._host, self._clock())

    def _are_started(self) -> bool:
        wanted = [pk for pk, broker in self._wanted.items() if broker.wanted == WantedState.RUNNING]
        return bool(wanted) and all(self._charges[pk].process.is_running for pk in wanted if pk in self._charges)

    def stop_all(self) -> None:
        """Stops every process gracefully and concurrently, and kills those that do not end in time."""
        if self._compiling is not None:
            self._compiling.close()
        for charge in self._charges.values():
            _dismiss(charge)
        running = [charge for charge in self._charges.values() if charge.process.is_running]
        for charge in running:
            charge.process.ask_to_stop()
        deadline_s = self._clock() + AGENT_STOP_TIMEOUT_S
        for charge in running:
            if not charge.process.wait(max(0.0, deadline_s - self._clock())):
                charge.process.kill()
                charge.process.wait(AGENT_STOP_TIMEOUT_S)
        self._checks.finish()
        for broker_id, charge in self._charges.items():
            charge.process.forget()
            self._tell(broker_id, charge, ProcessState.STOPPED, process_pid=None)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._run_dir.mkdir(parents=True, exist_ok=True)
        file = self._run_dir / f"{quote(self._host_name, safe='')}.lock"
        with file.open("a+", encoding="ascii") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held.seek(0)
                who = held.read().strip() or "another process"
                raise AnotherAgent(f"The agent of host {self._host_name} runs already (process {who}).") from None
            held.truncate(0)
            held.write(f"{os.getpid()}\n")
            held.flush()
            yield

    # --- one broker -----------------------------------------------------------------------------------------------

    def _read_wanted(self) -> None:
        wanted = self._control_plane.wanted()
        self._host = wanted.host if wanted else None
        if wanted is not None:
            self._wanted = {broker.pk: broker for broker in wanted.brokers}

    def _supervise(self, broker: Broker) -> None:
        charge = self._charges.get(broker.pk) or self._take_charge(broker)
        self._say(broker.pk, charge)
        self._notice_end(broker, charge)
        charge.process.note()
        charge.process.rotate_log()
        now_s = self._clock()
        act = decide(
            ObservedProcess(
                is_wanted=broker.wanted == WantedState.RUNNING,
                is_running=charge.process.is_running,
                wanted_restarts=broker.restart_generation,
                done_restarts=charge.done_restarts,
                failures=charge.failures,
                ended_at_s=charge.ended_at_s,
            ),
            now_s,
        )
        if act is Act.START:
            self._start(broker, charge)
        elif act is Act.STOP or (charge.is_stopping and charge.process.is_running):
            # A stopping process is stopped completely, even if it is wanted again meanwhile.
            if charge.is_stopping or self._has_successor(broker, charge, now_s):
                self._stop(broker, charge, now_s)
        else:
            _dismiss(charge)
            if act is Act.WAIT:
                self._tell(broker.pk, charge, ProcessState.BACKING_OFF, process_pid=None)
            elif not charge.process.is_running and broker.process_state != ProcessState.STOPPED:
                # It died before it was asked to stop, and is not wanted any more.
                self._tell(broker.pk, charge, ProcessState.STOPPED, process_pid=None)

    def _take_charge(self, broker: Broker) -> ManagedBroker:
        directory = self._run_dir / broker.cluster_id / str(broker.number)
        process = BrokerProcess(
            directory=directory,
            command=self._command_for(directory / "settings.json"),
            before_exec=self._before_exec,
        )
        charge = ManagedBroker(process=process, done_restarts=broker.process_restart_generation)
        self._charges[broker.pk] = charge
        if process.adopt():
            charge.started_at_s = self._clock()
            log.info("broker.adopted", broker_id=broker.number, pid=process.pid)
            self._tell(broker.pk, charge, ProcessState.RUNNING, process_pid=process.pid)
        return charge

    def _start(self, broker: Broker, charge: ManagedBroker) -> None:
        try:
            self._apply_settings(broker, charge)
            if charge.successor is not None and charge.successor.is_alive:
                charge.process.succeed(charge.successor)
                charge.successor = None
            else:
                _dismiss(charge)
                charge.process.start()
        except (OSError, ControlPlaneAway) as error:
            self._note_no_start(broker, charge, f"cannot be started: {error}")
            return
        charge.started_at_s = self._clock()
        charge.done_restarts = broker.restart_generation
        charge.is_stopping = False
        log.info("broker.started", broker_id=broker.number, pid=charge.process.pid)
        self._tell(
            broker.pk,
            charge,
            ProcessState.RUNNING,
            process_pid=charge.process.pid,
            process_restart_generation=broker.restart_generation,
            process_has_tls=charge.has_tls,
        )

    def _apply_settings(self, broker: Broker, charge: ManagedBroker) -> None:
        """Writes the settings file. While the control plane is away the file of the last start is used."""
        file = charge.process.directory / "settings.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            applied = self._control_plane.settings_of(broker)
            applied.write(file)
        except ControlPlaneAway:
            if not file.exists():
                raise
            applied = BrokerProcessSettings.read(file)
        charge.has_tls = applied.internal_security != PLAINTEXT

    def _note_no_start(self, broker: Broker, charge: ManagedBroker, reason: str) -> None:
        """Records a failed start: a full disk, a foreign directory, or too little memory."""
        charge.failures += 1
        charge.ended_at_s = self._clock()
        log.warning("broker.not_started", broker_id=broker.number, reason=reason)
        self._tell(broker.pk, charge, ProcessState.BACKING_OFF, process_pid=None, process_error=reason[:500])

    def _has_successor(self, broker: Broker, charge: ManagedBroker, now_s: float) -> bool:
        """True if the process may be stopped: a restart first waits for a standby process or a timeout."""
        if broker.wanted != WantedState.RUNNING or self._standing_command_for is None:
            _dismiss(charge)
            return True
        if charge.successor is None:
            settings_file = charge.process.directory / "settings.json"
            try:
                charge.successor = charge.process.prepare(self._standing_command_for(settings_file))
            except OSError as error:  # not enough memory for two processes
                log.warning("broker.no_successor", broker_id=broker.number, reason=str(error))
                return True
            charge.stand_by_until_s = now_s + AGENT_STAND_BY_TIMEOUT_S
            log.info("broker.successor", broker_id=broker.number, pid=charge.successor.child.pid)
        successor = charge.successor
        return successor.is_ready or not successor.is_alive or now_s >= charge.stand_by_until_s

    def _stop(self, broker: Broker, charge: ManagedBroker, now_s: float) -> None:
        if not charge.is_stopping:
            charge.is_stopping = True
            charge.stop_by_s = now_s + AGENT_STOP_TIMEOUT_S
            charge.process.ask_to_stop()
            log.info("broker.stopping", broker_id=broker.number, pid=charge.process.pid)
            self._tell(broker.pk, charge, ProcessState.STOPPING)
        elif now_s >= charge.stop_by_s:
            log.warning("broker.killed", broker_id=broker.number, pid=charge.process.pid)
            charge.process.kill()

    def _notice_end(self, broker: Broker, charge: ManagedBroker) -> None:
        if charge.process.pid is None or charge.process.is_running:
            return
        code = charge.process.exit_code()
        last_line = charge.process.last_line() if code else ""
        charge.process.forget()
        charge.ended_at_s = self._clock()
        if charge.is_stopping:
            charge.is_stopping, charge.failures = False, 0
            self._tell(broker.pk, charge, ProcessState.STOPPED, process_pid=None)
            return
        charge.failures = failures_after_end(charge.failures, charge.ended_at_s - charge.started_at_s)
        log.warning("broker.ended", broker_id=broker.number, code=code, last_line=last_line)
        with suppress(ControlPlaneAway):
            self._control_plane.count_restart(broker.pk)
        self._tell(broker.pk, charge, ProcessState.BACKING_OFF, process_pid=None, process_error=last_line)

    def _tell(self, broker_id: str, charge: ManagedBroker, state: ProcessState, **fields: object) -> None:
        """Records the observed state if it changed."""
        if charge.declared is state and not (fields.get("process_pid") or fields.get("process_error")):
            return
        if charge.declared is not state:
            fields["process_since"] = timezone.now()
        charge.declared = state
        charge.undeclared |= {"process_state": state, **fields}
        self._say(broker_id, charge)

    def _say(self, broker_id: str, charge: ManagedBroker) -> None:
        if not charge.undeclared:
            return
        with suppress(ControlPlaneAway):
            self._control_plane.store_process_state(broker_id, charge.undeclared)
            charge.undeclared = {}

    def _sleep(self) -> None:
        """Sleeps until a notification, an expected change of a process, or the poll interval."""
        if any(charge.is_stopping or charge.successor for charge in self._charges.values()):
            self._watch()
            return
        self._control_plane.wait(AGENT_POLL_S)

    def _watch(self) -> None:
        """Waits for the expected change of a process; notifications meanwhile are received afterwards."""
        until_s = self._clock() + AGENT_POLL_S
        while self._clock() < until_s and not any(map(_has_news, self._charges.values())):
            time.sleep(AGENT_WATCH_S)


def _has_news(charge: ManagedBroker) -> bool:
    """True if the expected change of a process has happened."""
    if charge.is_stopping:
        return not charge.process.is_running
    successor = charge.successor
    return successor is not None and (successor.is_ready or not successor.is_alive)


def _dismiss(charge: ManagedBroker) -> None:
    """Ends a standby process that is not needed any more."""
    successor, charge.successor = charge.successor, None
    if successor is not None:
        successor.end()
