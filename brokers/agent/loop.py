"""Loop of the agent: reads the wanted state of its host, acts on each process, records what it observes, and sleeps.

It sleeps in PostgreSQL's LISTEN, so that a restart requested by an operator begins immediately; without a notification
it polls every `AGENT_POLL_S`. While PostgreSQL is unavailable, it keeps the processes as they are and monitors them: a
dead process is restarted with its previous settings, and observations are written once PostgreSQL is back.

Each host has one agent: a second one would start the same processes, and stop them when it ends.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psycopg
import structlog
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import close_old_connections, connection
from django.utils import timezone

from brokers import services
from brokers.agent import broker_certificates
from brokers.agent.compiling import Compiling
from brokers.agent.defaults import cluster_defaults
from brokers.agent.host_checks import HostChecks
from brokers.agent.process import BeforeExec, BrokerProcess
from brokers.agent.successor import Successor
from brokers.agent.supervision import Act, Seen, decide, failures_after_end
from brokers.choices import ProcessState, WantedState
from brokers.contract.agent_channel import AGENT_CHANNEL
from brokers.contract.process import BrokerProcessSettings
from brokers.contract.process_identity import CA_FILE, PLAINTEXT
from brokers.infra.zookeeper import ensemble_of, identity
from brokers.limits import AGENT_POLL_S, AGENT_STAND_BY_TIMEOUT_S, AGENT_STOP_TIMEOUT_S, AGENT_WATCH_S
from brokers.models import Broker, Host
from tenants.errors import Unavailable

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
class Charge:
    """Broker managed by the agent; instants in monotonic seconds."""

    process: BrokerProcess
    failures: int = 0
    started_at_s: float = 0.0
    ended_at_s: float = 0.0
    done_restarts: int = 0
    is_stopping: bool = False
    stop_by_s: float = 0.0
    # During a restart, from before the process is asked to stop until it has stopped.
    successor: Successor | None = None
    stand_by_until_s: float = 0.0
    declared: ProcessState | None = field(default=None)
    # State that is not written to PostgreSQL yet.
    undeclared: dict[str, object] = field(default_factory=dict)


class Agent:
    """Keeps the broker processes of one host in their wanted state.

    Without a `standing_command_for`, a restart starts the next process after the previous one has ended.
    """

    def __init__(
        self,
        host_name: str,
        *,
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
        self._charges: dict[str, Charge] = {}
        self._wanted: dict[str, Broker] = {}
        self._listening_on: object | None = None
        self._certificates = broker_certificates.Renewal()
        self._checks = HostChecks(self._run_dir)
        self._host: Host | None = None
        self.must_stop = False

    def run(self) -> None:
        """Runs until `must_stop`, then stops every process. Raises `AnotherAgent`."""
        with self._alone():
            if self._compiling is not None:
                self._compiling.open()
            while not self.must_stop:
                close_old_connections()
                self.reconcile_once()
                self._sleep()
            self.stop_all()

    def reconcile_once(self) -> None:
        """Reconciles all brokers of this host once."""
        try:
            self._read_wanted()
        except DatabaseError as error:
            log.warning("agent.no_database", reason=type(error).__name__)
        self._certificates.renew(self._wanted.values(), self._clock())
        for broker in self._wanted.values():
            try:
                self._tend(broker)
            except OSError as error:  # a failing directory of one broker must not affect others
                log.warning("agent.trouble", broker_id=broker.number, reason=str(error))
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
        host = self._host = Host.objects.filter(name=self._host_name, removed_at=None).first()
        if host is None:
            return
        Host.objects.filter(pk=host.pk).update(agent_seen_at=timezone.now())
        rows = Broker.objects.filter(host=host).select_related("cluster", "host").order_by("number")
        self._wanted = {broker.pk: broker for broker in rows}

    def _tend(self, broker: Broker) -> None:
        charge = self._charges.get(broker.pk) or self._take_charge(broker)
        self._say(broker.pk, charge)
        self._notice_end(broker, charge)
        charge.process.note()
        charge.process.rotate_log()
        now_s = self._clock()
        act = decide(
            Seen(
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

    def _take_charge(self, broker: Broker) -> Charge:
        directory = self._run_dir / broker.cluster_id / str(broker.number)
        process = BrokerProcess(
            directory=directory,
            command=self._command_for(directory / "settings.json"),
            before_exec=self._before_exec,
        )
        charge = Charge(process=process, done_restarts=broker.process_restart_generation)
        self._charges[broker.pk] = charge
        if process.adopt():
            charge.started_at_s = self._clock()
            log.info("broker.adopted", broker_id=broker.number, pid=process.pid)
            self._tell(broker.pk, charge, ProcessState.RUNNING, process_pid=process.pid)
        return charge

    def _start(self, broker: Broker, charge: Charge) -> None:
        try:
            _apply_settings(broker, charge.process.directory / "settings.json")
            if charge.successor is not None and charge.successor.is_alive:
                charge.process.succeed(charge.successor)
                charge.successor = None
            else:
                _dismiss(charge)
                charge.process.start()
        except (OSError, DatabaseError) as error:
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
            process_has_tls=settings.INTERNAL_SECURITY != PLAINTEXT,
        )

    def _note_no_start(self, broker: Broker, charge: Charge, reason: str) -> None:
        """Records a failed start: a full disk, a foreign directory, or too little memory."""
        charge.failures += 1
        charge.ended_at_s = self._clock()
        log.warning("broker.not_started", broker_id=broker.number, reason=reason)
        self._tell(broker.pk, charge, ProcessState.BACKING_OFF, process_pid=None, process_error=reason[:500])

    def _has_successor(self, broker: Broker, charge: Charge, now_s: float) -> bool:
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

    def _stop(self, broker: Broker, charge: Charge, now_s: float) -> None:
        if not charge.is_stopping:
            charge.is_stopping = True
            charge.stop_by_s = now_s + AGENT_STOP_TIMEOUT_S
            charge.process.ask_to_stop()
            log.info("broker.stopping", broker_id=broker.number, pid=charge.process.pid)
            self._tell(broker.pk, charge, ProcessState.STOPPING)
        elif now_s >= charge.stop_by_s:
            log.warning("broker.killed", broker_id=broker.number, pid=charge.process.pid)
            charge.process.kill()

    def _notice_end(self, broker: Broker, charge: Charge) -> None:
        if charge.process.pid is None or charge.process.is_running:
            return
        code = charge.process.exit_code()
        last_words = charge.process.last_words() if code else ""
        charge.process.forget()
        charge.ended_at_s = self._clock()
        if charge.is_stopping:
            charge.is_stopping, charge.failures = False, 0
            self._tell(broker.pk, charge, ProcessState.STOPPED, process_pid=None)
            return
        charge.failures = failures_after_end(charge.failures, charge.ended_at_s - charge.started_at_s)
        log.warning("broker.ended", broker_id=broker.number, code=code, last_words=last_words)
        try:
            services.note_restart(broker.pk)
        except DatabaseError as error:
            log.warning("agent.no_database", reason=type(error).__name__)
        self._tell(broker.pk, charge, ProcessState.BACKING_OFF, process_pid=None, process_error=last_words)

    def _tell(self, broker_id: str, charge: Charge, state: ProcessState, **fields: object) -> None:
        """Records the observed state if it changed."""
        if charge.declared is state and not (fields.get("process_pid") or fields.get("process_error")):
            return
        if charge.declared is not state:
            fields["process_since"] = timezone.now()
        charge.declared = state
        charge.undeclared |= {"process_state": state, **fields}
        self._say(broker_id, charge)

    def _say(self, broker_id: str, charge: Charge) -> None:
        if not charge.undeclared:
            return
        try:
            services.note_process(broker_id, **charge.undeclared)
        except DatabaseError as error:
            log.warning("agent.no_database", reason=type(error).__name__)
        else:
            charge.undeclared = {}

    def _sleep(self) -> None:
        """Sleeps until a notification, an expected change of a process, or the poll interval."""
        if any(charge.is_stopping or charge.successor for charge in self._charges.values()):
            self._watch()
            return
        try:
            connection.ensure_connection()
            raw = connection.connection
            if self._listening_on is not raw:  # a new connection has no LISTEN
                with connection.cursor() as cursor:
                    cursor.execute(f"LISTEN {AGENT_CHANNEL}")
                self._listening_on = raw
            for _ in raw.notifies(timeout=AGENT_POLL_S, stop_after=1):
                return
        except (DatabaseError, psycopg.Error) as error:
            log.warning("agent.no_database", reason=type(error).__name__)
            connection.close()
            time.sleep(AGENT_POLL_S)

    def _watch(self) -> None:
        """Waits for the expected change of a process; notifications meanwhile wait in PostgreSQL."""
        until_s = self._clock() + AGENT_POLL_S
        while self._clock() < until_s and not any(map(_has_news, self._charges.values())):
            time.sleep(AGENT_WATCH_S)


def _has_news(charge: Charge) -> bool:
    """True if the expected change of a process has happened."""
    if charge.is_stopping:
        return not charge.process.is_running
    successor = charge.successor
    return successor is not None and (successor.is_ready or not successor.is_alive)


def _dismiss(charge: Charge) -> None:
    """Ends a standby process that is not needed any more."""
    successor, charge.successor = charge.successor, None
    if successor is not None:
        successor.end()


def _apply_settings(broker: Broker, file: Path) -> None:
    """Writes the settings file. Without PostgreSQL the file of the last start is used."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        process_settings(broker).write(file)
    except DatabaseError as error:
        if not file.exists():
            raise
        log.warning("agent.no_database", reason=type(error).__name__)
    except Unavailable as error:
        raise OSError(error.detail) from error


def process_settings(broker: Broker) -> BrokerProcessSettings:
    """Returns the settings of a broker's process."""
    brokers = Broker.objects.filter(cluster=broker.cluster_id, removed_at=None).count()
    own = identity()
    return BrokerProcessSettings(
        broker_id=broker.number,
        cluster_id=broker.cluster_id,
        zookeeper=f"{ensemble_of(broker.cluster)}{broker.cluster.chroot}",
        data_dirs=tuple(broker.data_dirs),
        bind_host=broker.host.bind_host,
        internal_host=broker.host.internal_host,
        internal_port=broker.internal_port,
        admin_port=broker.admin_port,
        control_secret_file=broker.cluster.control_secret_file,
        zookeeper_credentials_file=settings.ZOOKEEPER_BROKER_FILE if own else "",
        zookeeper_control_digest=own.access.control if own else "",
        zookeeper_ca_file=settings.ZOOKEEPER_TLS.ca_file if settings.ZOOKEEPER_TLS else "",
        zookeeper_certificate_file=settings.ZOOKEEPER_BROKER_CERTIFICATE_FILE,
        tls_certificate_file=str(broker_certificates.file_of(broker)),
        internal_security=settings.INTERNAL_SECURITY,
        internal_certificate_file=str(broker_certificates.internal_file_of(broker)),
        internal_ca_file=str(settings.INTERNAL_TLS_DIR / CA_FILE),
        rack=broker.effective_rack or None,
        overrides=cluster_defaults(brokers) | {str(key): str(value) for key, value in broker.overrides.items()},
    )
