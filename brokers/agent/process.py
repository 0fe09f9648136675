"""One broker process: its settings file, its log, its pid file, its start and its end.

A process survives its agent: the next agent finds it by the pid file and takes it over (`adopt`). The pid alone is not
believed, because pids are used again: the process must also have the birth that was written beside it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from brokers.agent.successor import Successor
from brokers.infra.child_environment import broker_variables
from brokers.infra.log_rotation import open_log, rotate
from brokers.infra.process_identity import identity_of

LOG_TAIL_BYTES = 2_048
START_TIME_SLACK_S = 0.05

BeforeExec = Callable[[], None]


@dataclass(slots=True, kw_only=True)
class BrokerProcess:
    """A process with a directory of its own; `command` gets nothing from a shell."""

    directory: Path
    command: Sequence[str]
    before_exec: BeforeExec | None = None
    _child: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _adopted: psutil.Process | None = field(default=None, init=False)
    _is_noted: bool = field(default=False, init=False)

    @property
    def pid_file(self) -> Path:
        return self.directory / "pid.json"

    @property
    def log_file(self) -> Path:
        return self.directory / "broker.log"

    @property
    def pid(self) -> int | None:
        if self._child is not None:
            return self._child.pid
        return self._adopted.pid if self._adopted is not None else None

    def adopt(self) -> bool:
        """Take over a process that an earlier agent started; False when there is none."""
        if not self.pid_file.exists():
            return False
        try:
            body = json.loads(self.pid_file.read_text(encoding="ascii"))
            process = psutil.Process(int(body["pid"]))
            if not _is_same(process, body) or process.status() == psutil.STATUS_ZOMBIE:
                return False
        except (psutil.NoSuchProcess, OSError, ValueError, KeyError, TypeError):
            return False
        self._adopted = process
        return True

    def start(self) -> None:
        """Start it, in a session of its own, with its log appended to."""
        with self._log() as log:
            child = subprocess.Popen(
                list(self.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=broker_variables(),
                preexec_fn=self.before_exec,
            )
        self._own(child)

    def prepare(self, command: Sequence[str]) -> Successor:
        """Another process that gets ready beside this one."""
        with self._log() as log:
            return Successor(command, log, self.before_exec)

    def succeed(self, successor: Successor) -> None:
        """The successor is the process, once the one before has ended. It is written down before it is called, so that
        the next agent finds it if this one dies in between.
        """
        self._own(successor.child)
        successor.call()

    def rotate_log(self) -> None:
        """While it runs; an adopted process as well."""
        rotate(self.log_file)

    def _log(self) -> IO[bytes]:
        return open_log(self.log_file)

    def _own(self, child: subprocess.Popen[bytes]) -> None:
        self._child, self._adopted, self._is_noted = child, None, False
        self.note()

    def note(self) -> None:
        """Write down which process it is, in one step. A disk that is full now is tried again by the next call: the
        process serves all the same, only an agent that comes after this one would not find it.
        """
        if self._child is None or self._is_noted:
            return
        draft = self.pid_file.with_suffix(".draft")
        try:
            body = {
                "pid": self._child.pid,
                "birth": identity_of(self._child.pid),
                "started_at": psutil.Process(self._child.pid).create_time(),
            }
            draft.write_text(json.dumps(body), encoding="ascii")
            draft.replace(self.pid_file)
        except (OSError, psutil.NoSuchProcess):
            return  # or it ended while it stood by, which is noticed next
        self._is_noted = True

    def exit_code(self) -> int | None:
        """None while it runs; else how it ended (0 for an adopted one, whose code nobody can know)."""
        if self._child is not None:
            return self._child.poll()
        try:
            if self._adopted is not None and self._adopted.is_running():
                return None if self._adopted.status() != psutil.STATUS_ZOMBIE else 0
        except psutil.NoSuchProcess:
            return 0  # between the two questions
        return 0

    @property
    def is_running(self) -> bool:
        return self.pid is not None and self.exit_code() is None

    def ask_to_stop(self) -> None:
        """SIGTERM; the broker flushes and ends within seconds."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to its whole session."""
        if self.pid is not None and self.is_running:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end; False when it still runs."""
        try:
            if self._child is not None:
                self._child.wait(timeout_s)
            elif self._adopted is not None:
                self._adopted.wait(timeout_s)
        except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
            return False
        return True

    def forget(self) -> None:
        """The process has ended: nobody is to adopt it."""
        self._child = self._adopted = None
        self.pid_file.unlink(missing_ok=True)

    def last_words(self) -> str:
        """The last line it wrote, for the operator."""
        if not self.log_file.exists():
            return ""
        with self.log_file.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - LOG_TAIL_BYTES))
            lines = stream.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:500] if lines else ""

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is None or not self.is_running:
            return
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return


def _is_same(found: psutil.Process, body: dict[str, object]) -> bool:
    if "birth" in body:
        return identity_of(found.pid) == body["birth"]
    return abs(found.create_time() - float(str(body["started_at"]))) < START_TIME_SLACK_S
