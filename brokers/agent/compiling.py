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
    """Predicts the result of a build on this machine."""
    if os.environ.get(finder.SWITCH) == finder.OFF:
        return _note_now(Build.SWITCHED_OFF, f"{finder.SWITCH}={finder.OFF}")
    if (build_directory() / COMPLETE).exists():
        return _note_now(Build.COMPLETE)
    if native.failure_log().exists():
        return _note_now(Build.FAILED, f"the compiler refused the sources; see {native.failure_log()}")
    try:
        native.check_tools()
        native.check_builds_directory()
    except native.NotPossible as reason:
        return _note_now(Build.IMPOSSIBLE, str(reason))
    return _note_now(Build.PENDING)


class CompileStep(StrEnum):
    WAIT = "wait"
    BEGIN = "begin"
    POLL = "poll"
    NOTHING = "nothing"


def decide(build: Build, *, are_started: bool, waited_s: float) -> CompileStep:
    """Returns the step that is due. A build begins some time after all brokers of the host have started. Pure."""
    if build in FINAL_STATES:
        return CompileStep.NOTHING
    if build is Build.RUNNING:
        return CompileStep.POLL
    return CompileStep.BEGIN if are_started and waited_s >= AGENT_COMPILE_AFTER_S else CompileStep.WAIT


class Compiling:
    """Runs at most one build per agent; `file` contains the note that brokers report."""

    def __init__(
        self, file: Path, *, command: Sequence[str] = COMMAND, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file = file
        self._command = command
        self._clock = clock
        self._began_s = clock()
        self._child: subprocess.Popen[bytes] | None = None
        self.note = notes.NOTHING_KNOWN

    def open(self) -> None:
        """Writes the predicted result, and passes the file to brokers that are started from now on."""
        os.environ[notes.VARIABLE] = str(self._file)
        self._began_s = self._clock()
        self._write(predicted_note())

    def reconcile_once(self, *, are_started: bool) -> None:
        step = decide(self.note.build, are_started=are_started, waited_s=self._clock() - self._began_s)
        if step is CompileStep.BEGIN:
            self._begin()
        elif step is CompileStep.POLL and self._child is not None and self._child.poll() is not None:
            self._end(self._child.returncode)

    def close(self) -> None:
        """Ends an incomplete build when the agent ends."""
        child, self._child = self._child, None
        if child is None or child.poll() is not None:
            return
        os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(AGENT_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    def _begin(self) -> None:
        try:
            self._child = subprocess.Popen(
                list(self._command), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._write(_note_now(Build.IMPOSSIBLE, f"the build cannot be started: {error}"))
            return
        self._write(_note_now(Build.RUNNING))

    def _end(self, code: int) -> None:
        result = predicted_note()
        if result.build is Build.PENDING:  # without modules or log: retried by the next agent
            result = _note_now(Build.IMPOSSIBLE, f"the build ended with code {code}")
        self._child = None
        self._write(result)

    def _write(self, note: Note) -> None:
        self.note = note
        log.info("native.build", build=note.build.value, reason=note.reason)
        try:
            notes.write(self._file, note)
        except OSError as error:
            log.warning("native.note_not_written", reason=str(error))


def _note_now(build: Build, reason: str = "") -> Note:
    return Note(build=build, reason=reason, since_ms=time.time_ns() // 1_000_000)
