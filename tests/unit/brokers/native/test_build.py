"""A build is made once, by one process at a time; a refusal is kept until the sources change."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from brokers.native import build, modules

FAKE = "import pathlib; pathlib.Path('out').mkdir()"


@pytest.fixture()
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(modules, "BUILDS", tmp_path / "builds")
    return tmp_path / "builds"


def compiler(monkeypatch: pytest.MonkeyPatch, compiles: str, loads: str = "") -> list[str]:
    """Two programs in place of the compiler and of the trial; the words of each call."""
    real, calls = build._run_python, []

    def run(words: Sequence[str], folder: Path, log: Path) -> None:
        calls.append(words[0])
        real(["-c", compiles if words[0] == "setup.py" else loads], folder, log)

    monkeypatch.setattr(build, "_run_python", run)
    return calls


def test_a_build_is_made_once_and_old_ones_are_removed(builds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = compiler(monkeypatch, FAKE)
    for left in ("0123456789abcdef", "scratch-x", "somebody's"):
        (builds / left).mkdir(parents=True)
    directory = build.build()
    assert (directory / modules.COMPLETE).exists()
    assert {item.name for item in builds.iterdir()} == {build.LOCK_FILE, directory.name, "somebody's"}
    assert build.build() == directory
    assert calls == ["setup.py", "-c"]


@pytest.mark.parametrize("programs", [("print('no such type'); exit(1)", ""), (FAKE, "print('no such type'); exit(1)")])
def test_a_refusal_leaves_what_the_compiler_said(
    builds: Path, monkeypatch: pytest.MonkeyPatch, programs: tuple[str, str]
) -> None:
    compiler(monkeypatch, *programs)
    with pytest.raises(build.CompilationRefused, match=str(build.failure_log())):
        build.build()
    assert build.failure_log().read_text() == "no such type\n"
    assert not modules.build_directory().exists()


def test_a_compiler_that_somebody_ends_has_refused_nothing(builds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(monkeypatch, "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(build.NotPossible, match="signal 9") as caught:
        build.build()
    assert not isinstance(caught.value, build.CompilationRefused)
    assert not build.failure_log().exists()


def test_sources_that_change_meanwhile_are_not_taken_for_what_was_compiled(
    builds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(monkeypatch, FAKE)
    names = iter(["a" * 16, "b" * 16, "b" * 16])
    monkeypatch.setattr(build, "build_directory", lambda: builds / next(names, "b" * 16))
    with pytest.raises(build.NotPossible, match="changed"):
        build.build()
    assert {item.name for item in builds.iterdir()} == {build.LOCK_FILE}


def test_the_second_of_two_waits_and_finds_what_the_first_has_made(
    builds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[[Path], Any] = build._build_lock
    calls = compiler(monkeypatch, FAKE)

    @contextmanager
    def after_the_other(place: Path) -> Iterator[None]:
        with real(place):
            made = modules.build_directory()
            made.mkdir()
            (made / modules.COMPLETE).touch()
            yield

    monkeypatch.setattr(build, "_build_lock", after_the_other)
    assert build.build() == modules.build_directory()
    assert calls == []


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(modules, "BUILDS", tmp_path / "file" / "builds")
    monkeypatch.setattr(build.os, "access", lambda path, mode: path != tmp_path / "file")
    with pytest.raises(build.NotPossible, match="PENSTOCK_NATIVE_DIR"):
        build.build()


def test_builds_may_lie_outside_the_checkout(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", "from brokers.native import modules; print(modules.build_directory().parent)"],
        cwd=modules.ROOT, env={"PENSTOCK_NATIVE_DIR": str(tmp_path)}, capture_output=True, text=True, check=True,
        timeout=60,
    ).stdout  # fmt: skip
    assert said.strip() == str(tmp_path)


def test_modules_built_by_the_real_compiler_are_accepted(builds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        build.check_tools()
    except build.NotPossible as reason:
        pytest.skip(str(reason))
    few = ("quotas.pacing", "quotas.rates", "quotas.throttle")
    monkeypatch.setattr(build, "MODULES", few)
    monkeypatch.setattr(modules, "MODULES", few)
    directory = build.build()
    made = {item.relative_to(directory).as_posix().split(".")[0] for item in directory.rglob("*.so")}
    assert {name.replace(".", "/") for name in few} < made
