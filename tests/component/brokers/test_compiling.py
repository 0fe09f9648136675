"""Compilation of the hot modules by the agent after the start, once, with its result in a note."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from brokers.agent.compiling import CompileStep, ModuleCompiler, decide, predicted_note
from brokers.limits import AGENT_COMPILE_AFTER_S
from brokers.native import build as native
from brokers.native import finder, modules, notes
from brokers.native.notes import Build
from config.supervisor.up import modules_line
from tests.testkit.waiting import eventually

SUCCEEDS = "import pathlib, sys; d = pathlib.Path(sys.argv[1]); d.mkdir(parents=True); (d / 'complete').touch()"
REFUSES = "import pathlib, sys; f = pathlib.Path(sys.argv[1] + '.log'); f.parent.mkdir(); f.touch(); sys.exit(4)"
IS_ENDED = "import sys; sys.exit(1)"
GOES_ON = "import signal; signal.pause()"


@pytest.mark.parametrize(
    ("build", "are_started", "waited_s", "step"),
    [
        (Build.PENDING, True, AGENT_COMPILE_AFTER_S, CompileStep.BEGIN),
        (Build.PENDING, False, AGENT_COMPILE_AFTER_S, CompileStep.WAIT),
        (Build.PENDING, True, AGENT_COMPILE_AFTER_S - 1, CompileStep.WAIT),
        (Build.RUNNING, True, AGENT_COMPILE_AFTER_S, CompileStep.POLL),
        (Build.COMPLETE, True, AGENT_COMPILE_AFTER_S, CompileStep.NOTHING),
        (Build.FAILED, True, AGENT_COMPILE_AFTER_S, CompileStep.NOTHING),
        (Build.IMPOSSIBLE, True, AGENT_COMPILE_AFTER_S, CompileStep.NOTHING),
        (Build.SWITCHED_OFF, True, AGENT_COMPILE_AFTER_S, CompileStep.NOTHING),
    ],
)
def test_a_build_begins_when_the_start_is_over(
    build: Build, are_started: bool, waited_s: float, step: CompileStep
) -> None:
    assert decide(build, are_started=are_started, waited_s=waited_s) is step


@pytest.fixture(autouse=True)
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(modules, "BUILDS", tmp_path / "builds")
    monkeypatch.setenv(finder.SWITCH, "1")
    monkeypatch.setenv(notes.VARIABLE, "")
    monkeypatch.setattr(native, "check_tools", lambda: None)
    return tmp_path / "builds"


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture()
def made() -> Iterator[list[ModuleCompiler]]:
    result: list[ModuleCompiler] = []
    yield result
    for item in result:
        item.close()


def opened(made: list[ModuleCompiler], tmp_path: Path, code: str) -> ModuleCompiler:
    """Returns an open `ModuleCompiler` of an agent whose brokers have run for long enough."""
    clock = Clock()
    command = (sys.executable, "-c", code, str(modules.build_directory()))
    compiling = ModuleCompiler(tmp_path / "note.json", command=command, clock=clock)
    made.append(compiling)
    compiling.open()
    clock.now_s = AGENT_COMPILE_AFTER_S
    return compiling


@pytest.mark.parametrize(
    ("code", "build", "reason"),
    [(SUCCEEDS, Build.COMPLETE, ""), (REFUSES, Build.FAILED, ".log"), (IS_ENDED, Build.IMPOSSIBLE, "code 1")],
)
def test_the_result_of_a_build_is_written_down_for_the_brokers(
    made: list[ModuleCompiler], tmp_path: Path, code: str, build: Build, reason: str
) -> None:
    compiling = opened(made, tmp_path, code)
    assert notes.of_this_host().build is Build.PENDING
    compiling.reconcile_once(are_started=True)
    assert notes.of_this_host().build is Build.RUNNING

    def is_complete() -> bool:
        compiling.reconcile_once(are_started=True)
        return notes.of_this_host().build is not Build.RUNNING

    eventually(is_complete, what="the end of the build")
    assert notes.of_this_host().build is build
    assert reason in notes.of_this_host().reason


def test_a_refusal_is_not_tried_again_until_the_sources_change(
    made: list[ModuleCompiler], tmp_path: Path, builds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds.mkdir()
    native.failure_log().touch()
    compiling = opened(made, tmp_path, SUCCEEDS)
    compiling.reconcile_once(are_started=True)
    assert compiling.note.build is Build.FAILED
    assert str(native.failure_log()) in compiling.note.reason
    monkeypatch.setattr(modules, "digest", lambda: "0123456789abcdef")
    assert predicted_note().build is Build.PENDING


def test_an_agent_that_ends_takes_its_build_along(made: list[ModuleCompiler], tmp_path: Path) -> None:
    compiling = opened(made, tmp_path, GOES_ON)
    compiling.reconcile_once(are_started=True)
    (child,) = (item for item in psutil.Process().children() if GOES_ON in item.cmdline())
    compiling.close()
    assert not child.is_running()


def test_switched_off_nothing_is_built(
    made: list[ModuleCompiler], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(finder.SWITCH, finder.OFF)
    compiling = opened(made, tmp_path, SUCCEEDS)
    compiling.reconcile_once(are_started=True)
    assert compiling.note.build is Build.SWITCHED_OFF
    assert "PENSTOCK_NATIVE=0" in modules_line(compiling.note)


def test_without_a_compiler_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv(finder.SWITCH, "1")
    monkeypatch.setenv("CC", "/no/such/cc")
    monkeypatch.setattr(modules, "digest", lambda: "0123456789abcdef")
    assert modules_line(predicted_note()) == (
        "Brokers run plain modules, which take more CPU: there is no C compiler (/no/such/cc)"
    )


def test_a_note_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    for text in ("", "[]", '{"build": "magic", "reason": "", "since_ms": 1}'):
        (tmp_path / "note.json").write_text(text)
        assert notes.read(tmp_path / "note.json") == notes.NOTHING_KNOWN
