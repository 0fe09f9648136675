"""Broker process with its settings file, log, and pid file.

A process survives its agent: the next agent finds it by the pid file and adopts it. Since pids are reused, the process
must also have the identity (`birth`) that the file records.
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
    """Process with a directory of its own; `command` is executed without a shell."""

    directory: Path
    command: Sequence[str]
    before_exec: BeforeExec | None = None
    _child: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _adopted: psutil.Process | None = field(default=None, init=False)
    _is_recorded: bool = field(default=False, init=False)

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
        """Adopts a process started by an earlier agent; False if there is none."""
        if not self.pid_file.exists():
            return False
        try:
            body = json.loads(self.pid_file.read_text(encoding="ascii"))
            process = psutil.Process(int(body["pid"]))
            if not _is_same_process(process, body) or process.status() == psutil.STATUS_ZOMBIE:
                return False
        except (psutil.NoSuchProcess, OSError, ValueError, KeyError, TypeError):
            return False
        self._adopted = process
        return True

    def start(self) -> None:
        """Starts the process in a session of its own, appending to its log."""
        with self._open_log() as log:
            child = subprocess.Popen(
                list(self.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=broker_variables(),
                preexec_fn=self.before_exec,
            )
        self._set_child(child)

    def prepare(self, command: Sequence[str]) -> Successor:
        """Starts a standby process."""
        with self._open_log() as log:
            return Successor(command, log, self.before_exec)

    def replace_with(self, successor: Successor) -> None:
        """Makes the successor the current process after the previous one has ended.

        It is recorded before it is activated, so that the next agent finds it if this one dies in between.
        """
        self._set_child(successor.child)
        successor.activate()

    def rotate_log(self) -> None:
        """Rotates the log of a running process, including an adopted one."""
        rotate(self.log_file)

    def _open_log(self) -> IO[bytes]:
        return open_log(self.log_file)

    def _set_child(self, child: subprocess.Popen[bytes]) -> None:
        self._child, self._adopted, self._is_recorded = child, None, False
        self.record()

    def record(self) -> None:
        """Records the process atomically. On a full disk the next call retries.

        The process serves nevertheless; only a later agent would not find it.
        """
        if self._child is None or self._is_recorded:
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
            return  # the process may have ended while standing by, which is detected next
        self._is_recorded = True

    def exit_code(self) -> int | None:
        """Returns the exit code; None while the process runs, 0 for an adopted process, whose code is unknown."""
        if self._child is not None:
            return self._child.poll()
        try:
            if self._adopted is not None and self._adopted.is_running():
                return None if self._adopted.status() != psutil.STATUS_ZOMBIE else 0
        except psutil.NoSuchProcess:
            return 0  # ended between the two calls
        return 0

    @property
    def is_running(self) -> bool:
        return self.pid is not None and self.exit_code() is None

    def terminate(self) -> None:
        """Sends SIGTERM; the broker flushes and ends within seconds."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL to its whole session."""
        if self.pid is not None and self.is_running:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def wait(self, timeout_s: float) -> bool:
        """Waits for the end; False if it is still running."""
        try:
            if self._child is not None:
                self._child.wait(timeout_s)
            elif self._adopted is not None:
                self._adopted.wait(timeout_s)
        except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
            return False
        return True

    def remove_record(self) -> None:
        """Removes the record of an ended process, so that no agent adopts it."""
        self._child = self._adopted = None
        self.pid_file.unlink(missing_ok=True)

    def last_line(self) -> str:
        """Returns the last line of the log, for the operator."""
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


def _is_same_process(process: psutil.Process, body: dict[str, object]) -> bool:
    if "birth" in body:
        return identity_of(process.pid) == body["birth"]
    return abs(process.create_time() - float(str(body["started_at"]))) < START_TIME_SLACK_S
