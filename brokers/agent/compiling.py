"""Compilation of the broker's hot modules on a host, in a separate process after the brokers' start (decision 86).

`brokers.operations.compiled_uptake` decides per cluster when brokers start using them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import structlog

from brokers.limits import AGENT_COMPILE_AFTER_S, AGENT_STOP_TIMEOUT_S
from brokers.native import build as native
from brokers.native import finder, notes
from brokers.native.modules import COMPLETE, ROOT, build_directory
from brokers.native.notes import Build, Note

log = structlog.get_logger(__name__)

COMMAND: Final = (sys.executable, "-m", "brokers.native.build", "--give-way")
FINAL_STATES: Final = (Build.SWITCHED_OFF, Build.COMPLETE, Build.IMPOSSIBLE, Build.FAILED)


def predicted_note() -> Note:
    """Returns the note of a build that would begin on this machine: `PENDING`, or the state that makes it needless."""
    if os.environ.get(finder.SWITCH) == finder.OFF:
        return _new_note(Build.SWITCHED_OFF, f"{finder.SWITCH}={finder.OFF}")
    if (build_directory() / COMPLETE).exists():
        return _new_note(Build.COMPLETE)
    if native.failure_log().exists():
        return _new_note(Build.FAILED, f"the compiler refused the sources; see {native.failure_log()}")
    try:
        native.check_tools()
        native.check_builds_directory()
    except native.NotPossible as reason:
        return _new_note(Build.IMPOSSIBLE, str(reason))
    return _new_note(Build.PENDING)


class CompileStep(StrEnum):
    WAIT = "wait"
    BEGIN = "begin"
    POLL = "poll"
    NOTHING = "nothing"


def decide(build: Build, *, are_started: bool, waited_s: float) -> CompileStep:
    """Returns the next step. It begins `AGENT_COMPILE_AFTER_S` after all brokers have started. Pure."""
    if build in FINAL_STATES:
        return CompileStep.NOTHING
    if build is Build.RUNNING:
        return CompileStep.POLL
    return CompileStep.BEGIN if are_started and waited_s >= AGENT_COMPILE_AFTER_S else CompileStep.WAIT


class ModuleCompiler:
    """Runs at most one build per agent, and writes its state to `file`, from which brokers report it."""

    def __init__(
        self, file: Path, *, command: Sequence[str] = COMMAND, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file = file
        self._command = command
        self._clock = clock
        self._opened_at_s = clock()
        self._build_process: subprocess.Popen[bytes] | None = None
        self.note = notes.NOTHING_KNOWN

    def open(self) -> None:
        """Writes the predicted result, and passes the file to brokers that are started from now on."""
        os.environ[notes.VARIABLE] = str(self._file)
        self._opened_at_s = self._clock()
        self._write_note(predicted_note())

    def reconcile_once(self, *, are_started: bool) -> None:
        step = decide(self.note.build, are_started=are_started, waited_s=self._clock() - self._opened_at_s)
        if step is CompileStep.BEGIN:
            self._start_build()
        elif step is CompileStep.POLL and self._build_process is not None and self._build_process.poll() is not None:
            self._finish_build(self._build_process.returncode)

    def close(self) -> None:
        """Ends an incomplete build when the agent ends."""
        child, self._build_process = self._build_process, None
        if child is None or child.poll() is not None:
            return
        os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(AGENT_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    def _start_build(self) -> None:
        try:
            self._build_process = subprocess.Popen(
                list(self._command), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._write_note(_new_note(Build.IMPOSSIBLE, f"the build cannot be started: {error}"))
            return
        self._write_note(_new_note(Build.RUNNING))

    def _finish_build(self, code: int) -> None:
        result = predicted_note()
        if result.build is Build.PENDING:  # without modules or log: retried by the next agent
            result = _new_note(Build.IMPOSSIBLE, f"the build ended with code {code}")
        self._build_process = None
        self._write_note(result)

    def _write_note(self, note: Note) -> None:
        self.note = note
        log.info("native.build", build=note.build.value, reason=note.reason)
        try:
            notes.write(self._file, note)
        except OSError as error:
            log.warning("native.note_not_written", reason=str(error))


def _new_note(build: Build, reason: str = "") -> Note:
    return Note(build=build, reason=reason, since_ms=time.time_ns() // 1_000_000)
