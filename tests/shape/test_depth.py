"""Tests that a short run leaves out run on the following days (`tests/testkit/depth.py`, decision 85)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from config.environment import BASE_DIR
from tests.testkit import depth

MARKED = """
import pytest
from tests.testkit import depth

depth.changed_files = lambda: frozenset({"brokers/here.py"})

@pytest.mark.long("brokers/there.py")
def test_of_what_stayed():
    pass

@pytest.mark.long("brokers")
def test_of_what_changed():
    pass

def test_as_ever():
    pass
"""


def _on_day(monkeypatch: pytest.MonkeyPatch, day: int) -> None:
    monkeypatch.setattr(depth, "SEED", day * depth.SECONDS_OF_DAY + 12_345)
    monkeypatch.setattr(depth, "LONG", False)


def test_short_runs_of_a_week_have_together_what_a_long_one_has(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    for day in range(20_000, 20_007):
        _on_day(monkeypatch, day)
        seen += depth.day_share(range(100), 7)
    assert sorted(seen) == list(range(100))
    monkeypatch.setattr(depth, "LONG", True)
    assert depth.day_share(range(100), 7) == list(range(100))


def test_the_environment_says_how_many_whatever_the_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    _on_day(monkeypatch, 1)
    assert depth.number_from("PENSTOCK_NO_SUCH_EXAMPLES", short=5, long=50) == 5
    monkeypatch.setenv("PENSTOCK_NO_SUCH_EXAMPLES", "7")
    assert depth.number_from("PENSTOCK_NO_SUCH_EXAMPLES", short=5, long=50) == 7


def test_a_change_at_or_below_a_path_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth, "changed_files", lambda: frozenset({"tests/simulation/cluster/run.py"}))
    assert depth.is_changed(["tests/simulation"])
    assert depth.is_changed(["docs", "tests/simulation/cluster/run.py"])
    assert not depth.is_changed(["tests/simul", "brokers"])
    monkeypatch.setattr(depth, "changed_files", lambda: None)
    assert not depth.is_changed(["tests/simulation"])


@pytest.mark.parametrize(("known_as", "passed"), [("short", 2), ("long", 3)])
def test_tests_marked_long_are_left_to_a_long_run_unless_their_subject_has_changed(
    known_as: str, passed: int, tmp_path: Path
) -> None:
    (tmp_path / "test_depths.py").write_text(MARKED)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "no:django",
         "-p", "no:cacheprovider", "-W", "ignore", "-p", "tests.testkit.depth_plugin",
         str(tmp_path / "test_depths.py")],
        cwd=BASE_DIR, capture_output=True, text=True, timeout=120, check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        | {"PENSTOCK_TESTS": known_as},
    )  # fmt: skip
    assert f"{passed} passed" in ran.stdout, ran.stdout + ran.stderr


def test_changes_are_counted_from_the_commit_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def git(*arguments: str) -> str:
        asked.append(arguments)
        return {"rev-parse": "0123abcd", "diff": "brokers/a.py", "ls-files": "tests/test_new.py"}[arguments[0]]

    monkeypatch.setattr(depth, "_git", git)
    monkeypatch.setenv(depth.SINCE, "v1")
    assert depth.changed_files.__wrapped__() == {"brokers/a.py", "tests/test_new.py"}
    assert ("diff", "--name-only", "--no-renames", "0123abcd") in asked
    assert not any("merge-base" in arguments for arguments in asked)
