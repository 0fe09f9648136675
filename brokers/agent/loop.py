"""Main loop of the agent: reads the wanted state of its host, acts on each broker process, records states, and sleeps.

It sleeps until the control plane notifies it, so that a restart requested by an operator begins immediately; without a
notification it polls every `AGENT_POLL_S`. While the control plane is unavailable, it continues with the last wanted
state: a dead process is restarted with its previous settings, and states are reported afterwards.

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

from brokers.agent.compiling import ModuleCompiler
from brokers.agent.control_plane import ControlPlane, ControlPlaneUnavailable
from brokers.agent.database import DatabaseControlPlane
from brokers.agent.host_checks import HostChecks
from brokers.agent.process import BeforeExec, BrokerProcess
from brokers.agent.successor import Successor
from brokers.agent.supervision import ObservedProcess, ProcessAction, decide, failures_after_end
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


def standby_engine_command(settings_file: Path) -> Sequence[str]:
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
    kill_at_s: float = 0.0
    # Standby process during a restart.
    successor: Successor | None = None
    standby_deadline_s: float = 0.0
    recorded_state: ProcessState | None = field(default=None)
    # State that is not reported yet.
    unreported_fields: dict[str, object] = field(default_factory=dict)


class Agent:
    """Keeps the broker processes of one host in their wanted state.

    Without a `standby_command_for`, a restart starts the next process after the previous one has ended.
    """

    def __init__(
        self,
        host_name: str,
        *,
        control_plane: ControlPlane | None = None,
        run_dir: Path | None = None,
        command_for: CommandFor = engine_command,
        standby_command_for: CommandFor | None = None,
        before_exec: BeforeExec | None = None,
        compiling: ModuleCompiler | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host_name = host_name
        self._run_dir = run_dir or settings.STATE_DIR / "agent"
        self._command_for = command_for
        self._standby_command_for = standby_command_for
        self._before_exec = before_exec
        self._compiling = compiling
        self._clock = clock
        self._brokers: dict[str, ManagedBroker] = {}
        self._wanted: dict[str, Broker] = {}
        self._control_plane: ControlPlane = control_plane or DatabaseControlPlane(host_name)
        self._checks = HostChecks(self._run_dir, self._control_plane.facts)
        self._host: Host | None = None
        self.must_stop = False

    def run(self) -> None:
        """Runs until `must_stop`, then stops every process. Raises `AnotherAgent`."""
        with self._lock_host():
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
        with suppress(ControlPlaneUnavailable):
            self._read_wanted()
        self._control_plane.renew_certificates(list(self._wanted.values()), self._clock())
        for broker in self._wanted.values():
            try:
                self._supervise(broker)
            except OSError as error:  # a failing directory of one broker must not affect others
                log.warning("agent.broker_failed", broker_id=broker.number, reason=str(error))
        if self._compiling is not None:
            self._compiling.reconcile_once(are_started=self._are_brokers_running())
        if self._host is not None:
            self._checks.start_if_due(self._host, self._clock())

    def _are_brokers_running(self) -> bool:
        ids_to_run = [pk for pk, broker in self._wanted.items() if broker.wanted == WantedState.RUNNING]
        return bool(ids_to_run) and all(
            self._brokers[pk].process.is_running for pk in ids_to_run if pk in self._brokers
        )

    def stop_all(self) -> None:
        """Stops every process gracefully and concurrently, and kills those that do not end in time."""
        if self._compiling is not None:
            self._compiling.close()
        for managed in self._brokers.values():
            _end_successor(managed)
        running = [managed for managed in self._brokers.values() if managed.process.is_running]
        for managed in running:
            managed.process.terminate()
        deadline_s = self._clock() + AGENT_STOP_TIMEOUT_S
        for managed in running:
            if not managed.process.wait(max(0.0, deadline_s - self._clock())):
                managed.process.kill()
                managed.process.wait(AGENT_STOP_TIMEOUT_S)
        self._checks.finish()
        for broker_id, managed in self._brokers.items():
            managed.process.remove_record()
            self._record_state(broker_id, managed, ProcessState.STOPPED, process_pid=None)

    @contextmanager
    def _lock_host(self) -> Iterator[None]:
        self._run_dir.mkdir(parents=True, exist_ok=True)
        file = self._run_dir / f"{quote(self._host_name, safe='')}.lock"
        with file.open("a+", encoding="ascii") as lock_file:
            try:
                fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock_file.seek(0)
                holder = lock_file.read().strip() or "another process"
                raise AnotherAgent(f"The agent of host {self._host_name} runs already (process {holder}).") from None
            lock_file.truncate(0)
            lock_file.write(f"{os.getpid()}\n")
            lock_file.flush()
            yield

    # --- one broker -----------------------------------------------------------------------------------------------

    def _read_wanted(self) -> None:
        wanted_host = self._control_plane.wanted_host()
        self._host = wanted_host.host if wanted_host else None
        if wanted_host is not None:
            self._wanted = {broker.pk: broker for broker in wanted_host.brokers}

    def _supervise(self, broker: Broker) -> None:
        managed = self._brokers.get(broker.pk) or self._add_managed_broker(broker)
        self._report_state(broker.pk, managed)
        self._handle_end(broker, managed)
        managed.process.record()
        managed.process.rotate_log()
        now_s = self._clock()
        action = decide(
            ObservedProcess(
                is_wanted=broker.wanted == WantedState.RUNNING,
                is_running=managed.process.is_running,
                wanted_restarts=broker.restart_generation,
                done_restarts=managed.done_restarts,
                failures=managed.failures,
                ended_at_s=managed.ended_at_s,
            ),
            now_s,
        )
        if action is ProcessAction.START:
            self._start(broker, managed)
        elif action is ProcessAction.STOP or (managed.is_stopping and managed.process.is_running):
            # A stopping process is stopped completely, even if it is wanted again meanwhile.
            if managed.is_stopping or self._prepare_successor(broker, managed, now_s):
                self._stop(broker, managed, now_s)
        else:
            _end_successor(managed)
            if action is ProcessAction.WAIT:
                self._record_state(broker.pk, managed, ProcessState.BACKING_OFF, process_pid=None)
            elif not managed.process.is_running and broker.process_state != ProcessState.STOPPED:
                # It died before it was asked to stop, and is not wanted any more.
                self._record_state(broker.pk, managed, ProcessState.STOPPED, process_pid=None)

    def _add_managed_broker(self, broker: Broker) -> ManagedBroker:
        directory = self._run_dir / broker.cluster_id / str(broker.number)
        process = BrokerProcess(
            directory=directory,
            command=self._command_for(directory / "settings.json"),
            before_exec=self._before_exec,
        )
        managed = ManagedBroker(process=process, done_restarts=broker.process_restart_generation)
        self._brokers[broker.pk] = managed
        if process.adopt():
            managed.started_at_s = self._clock()
            log.info("broker.adopted", broker_id=broker.number, pid=process.pid)
            self._record_state(broker.pk, managed, ProcessState.RUNNING, process_pid=process.pid)
        return managed

    def _start(self, broker: Broker, managed: ManagedBroker) -> None:
        try:
            self._apply_settings(broker, managed)
            if managed.successor is not None and managed.successor.is_alive:
                managed.process.replace_with(managed.successor)
                managed.successor = None
            else:
                _end_successor(managed)
                managed.process.start()
        except (OSError, ControlPlaneUnavailable) as error:
            self._record_failed_start(broker, managed, f"cannot be started: {error}")
            return
        managed.started_at_s = self._clock()
        managed.done_restarts = broker.restart_generation
        managed.is_stopping = False
        log.info("broker.started", broker_id=broker.number, pid=managed.process.pid)
        self._record_state(
            broker.pk,
            managed,
            ProcessState.RUNNING,
            process_pid=managed.process.pid,
            process_restart_generation=broker.restart_generation,
            process_has_tls=managed.has_tls,
        )

    def _apply_settings(self, broker: Broker, managed: ManagedBroker) -> None:
        """Writes the settings file. While the control plane is unavailable, the file of the last start is used."""
        file = managed.process.directory / "settings.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            broker_settings = self._control_plane.settings_of(broker)
            broker_settings.write(file)
        except ControlPlaneUnavailable:
            if not file.exists():
                raise
            broker_settings = BrokerProcessSettings.read(file)
        managed.has_tls = broker_settings.internal_security != PLAINTEXT

    def _record_failed_start(self, broker: Broker, managed: ManagedBroker, reason: str) -> None:
        """Records a failed start: a full disk, a foreign directory, or too little memory."""
        managed.failures += 1
        managed.ended_at_s = self._clock()
        log.warning("broker.not_started", broker_id=broker.number, reason=reason)
        self._record_state(broker.pk, managed, ProcessState.BACKING_OFF, process_pid=None, process_error=reason[:500])

    def _prepare_successor(self, broker: Broker, managed: ManagedBroker, now_s: float) -> bool:
        """Starts the standby process of a restart if there is none yet. Returns True if the broker may be stopped.

        It may if the standby process is ready, has ended or has taken too long, and if no process is to follow.
        """
        if broker.wanted != WantedState.RUNNING or self._standby_command_for is None:
            _end_successor(managed)
            return True
        if managed.successor is None:
            settings_file = managed.process.directory / "settings.json"
            try:
                managed.successor = managed.process.prepare(self._standby_command_for(settings_file))
            except OSError as error:  # not enough memory for two processes
                log.warning("broker.no_successor", broker_id=broker.number, reason=str(error))
                return True
            managed.standby_deadline_s = now_s + AGENT_STAND_BY_TIMEOUT_S
            log.info("broker.successor", broker_id=broker.number, pid=managed.successor.child.pid)
        successor = managed.successor
        return successor.is_ready or not successor.is_alive or now_s >= managed.standby_deadline_s

    def _stop(self, broker: Broker, managed: ManagedBroker, now_s: float) -> None:
        if not managed.is_stopping:
            managed.is_stopping = True
            managed.kill_at_s = now_s + AGENT_STOP_TIMEOUT_S
            managed.process.terminate()
            log.info("broker.stopping", broker_id=broker.number, pid=managed.process.pid)
            self._record_state(broker.pk, managed, ProcessState.STOPPING)
        elif now_s >= managed.kill_at_s:
            log.warning("broker.killed", broker_id=broker.number, pid=managed.process.pid)
            managed.process.kill()

    def _handle_end(self, broker: Broker, managed: ManagedBroker) -> None:
        if managed.process.pid is None or managed.process.is_running:
            return
        code = managed.process.exit_code()
        last_line = managed.process.last_line() if code else ""
        managed.process.remove_record()
        managed.ended_at_s = self._clock()
        if managed.is_stopping:
            managed.is_stopping, managed.failures = False, 0
            self._record_state(broker.pk, managed, ProcessState.STOPPED, process_pid=None)
            return
        managed.failures = failures_after_end(managed.failures, managed.ended_at_s - managed.started_at_s)
        log.warning("broker.ended", broker_id=broker.number, code=code, last_line=last_line)
        with suppress(ControlPlaneUnavailable):
            self._control_plane.count_restart(broker.pk)
        self._record_state(broker.pk, managed, ProcessState.BACKING_OFF, process_pid=None, process_error=last_line)

    def _record_state(self, broker_id: str, managed: ManagedBroker, state: ProcessState, **fields: object) -> None:
        """Records the observed state if it changed."""
        if managed.recorded_state is state and not (fields.get("process_pid") or fields.get("process_error")):
            return
        if managed.recorded_state is not state:
            fields["process_since"] = timezone.now()
        managed.recorded_state = state
        managed.unreported_fields |= {"process_state": state, **fields}
        self._report_state(broker_id, managed)

    def _report_state(self, broker_id: str, managed: ManagedBroker) -> None:
        if not managed.unreported_fields:
            return
        with suppress(ControlPlaneUnavailable):
            self._control_plane.store_process_state(broker_id, managed.unreported_fields)
            managed.unreported_fields = {}

    def _sleep(self) -> None:
        """Sleeps until a notification, an expected change of a process, or the poll interval."""
        if any(managed.is_stopping or managed.successor for managed in self._brokers.values()):
            self._wait_for_process_change()
            return
        self._control_plane.wait(AGENT_POLL_S)

    def _wait_for_process_change(self) -> None:
        """Waits for the expected change of a process; notifications meanwhile are received afterwards."""
        until_s = self._clock() + AGENT_POLL_S
        while self._clock() < until_s and not any(map(_has_changed, self._brokers.values())):
            time.sleep(AGENT_WATCH_S)


def _has_changed(managed: ManagedBroker) -> bool:
    """True if the expected change of a process has happened."""
    if managed.is_stopping:
        return not managed.process.is_running
    successor = managed.successor
    return successor is not None and (successor.is_ready or not successor.is_alive)


def _end_successor(managed: ManagedBroker) -> None:
    """Ends a standby process that is not needed any more."""
    successor, managed.successor = managed.successor, None
    if successor is not None:
        successor.end()
