"""Which modules run today, which on another day, and which because of a change (`tests/testkit/rotation.py`)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from config.environment import BASE_DIR
from tests.testkit import depth, rotation

DAY = 20_000
# A room of three modules that takes turns, and one beside it that does not.
ROOMS = {"tests/turning": rotation.Room(3, ("brokers/checked",))}
FAILS_WHEN_IMPORTED = "raise AssertionError('imported')\n"
PASSES = "def test_it() -> None:\n    pass\n"
TURNING = """
from pathlib import Path

from tests.testkit import depth, rotation

rotation.BASE_DIR = Path(__file__).parent
rotation.ROOMS = {"turning": rotation.Room(2)}
depth.changed_files = frozenset

from tests.testkit.depth_plugin import *
"""

Change = Callable[..., None]


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """Clears the caches after each test."""
    yield
    rotation.left_for_other_days.cache_clear()
    rotation.room_of.cache_clear()


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> Change:
    """Says which files were changed; it is a short run of the same day each time."""

    def change(*files: str, day: int = DAY) -> None:
        monkeypatch.setattr(depth, "SEED", day * depth.SECONDS_OF_DAY + 12_345)
        monkeypatch.setattr(depth, "LONG", False)
        monkeypatch.setattr(depth, "changed_files", lambda: frozenset(files))
        rotation.left_for_other_days.cache_clear()

    return change


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A house whose only room that takes turns has three modules."""
    monkeypatch.setattr(rotation, "BASE_DIR", tmp_path)
    monkeypatch.setattr(rotation, "ROOMS", ROOMS)
    rotation.room_of.cache_clear()
    room = tmp_path / "tests/turning"
    room.mkdir(parents=True)
    (room / "test_a.py").write_text("from brokers.wire import (\n    frames,\n    varints,\n)\n")
    (room / "test_b.py").write_text("from brokers import wire\n")
    (room / "test_c.py").write_text("import brokers.records\n")
    return room


def _today(room: Path) -> set[str]:
    return {module.stem for module in room.rglob("test_*.py") if rotation.runs_today(module)}


def test_each_module_of_a_room_that_takes_turns_has_its_day(changed: Change) -> None:
    for room, (days, _) in rotation.ROOMS.items():
        modules = rotation.modules_of(room)
        ran: set[Path] = set()
        for day in range(DAY, DAY + days):
            changed(day=day)
            today = {module for module in modules if rotation.runs_today(module)}
            assert len(today) <= len(modules) // days + 1
            ran |= today
        assert ran == set(modules), room


def test_rooms_that_take_turns_and_what_they_check_are_there() -> None:
    for room in rotation.ROOMS:
        assert all((BASE_DIR / path).exists() for path in (room, *rotation.covers_of(room))), room


def test_a_run_on_each_of_the_days_has_a_module_once(tree: Path, changed: Change) -> None:
    ran = []
    for day in range(DAY, DAY + 3):
        changed(day=day)
        ran += _today(tree)
    assert sorted(ran) == ["test_a", "test_b", "test_c"]


def test_a_new_or_changed_module_runs_each_day(tree: Path, changed: Change) -> None:
    (tree / "test_new.py").write_text("")
    for day in range(DAY, DAY + 3):
        changed("tests/turning/test_new.py", "tests/turning/test_b.py", day=day)
        assert {"test_new", "test_b"} <= _today(tree)


@pytest.mark.parametrize(
    ("file", "concerned"),
    [
        ("brokers/wire/frames.py", {"test_a"}),
        ("brokers/wire/varints.py", {"test_a"}),
        ("brokers/wire/__init__.py", {"test_a", "test_b"}),
        ("brokers/records.py", {"test_c"}),
        ("brokers/wire/other.py", set()),
        ("docs/wire.md", set()),
        ("tests/conftest.py", set()),
    ],
)
def test_a_module_runs_each_day_when_something_that_it_imports_was_changed(
    file: str, concerned: set[str], tree: Path, changed: Change
) -> None:
    always = {"test_a", "test_b", "test_c"}
    for day in range(DAY, DAY + 3):
        changed(file, day=day)
        always &= _today(tree)
    assert always == concerned


@pytest.mark.parametrize(
    "file",
    ["tests/turning/conftest.py", "tests/turning/stage.py", "brokers/checked/deep/a.py",
     "requirements.txt"],
)  # fmt: skip
def test_a_change_of_what_a_room_shares_or_checks_brings_all_of_it(file: str, tree: Path, changed: Change) -> None:
    changed(file)
    assert _today(tree) == {"test_a", "test_b", "test_c"}


def test_a_room_of_unit_tests_checks_the_folder_that_it_mirrors() -> None:
    assert "brokers/engine/protocol" in rotation.covers_of("tests/unit/brokers/engine/protocol")


def test_a_room_inside_another_has_turns_of_its_own(
    tree: Path, changed: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "inner").mkdir()
    (tree / "inner/test_d.py").write_text("")
    monkeypatch.setattr(rotation, "ROOMS", {**ROOMS, "tests/turning/inner": rotation.Room(1)})
    rotation.room_of.cache_clear()
    for day in range(DAY, DAY + 3):
        changed(day=day)
        assert "test_d" in _today(tree)
        assert len(_today(tree)) == 2


def test_a_room_may_be_one_module(tree: Path, changed: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "ROOMS", {"tests/turning/test_b.py": rotation.Room(3, ("brokers/checked",))})
    rotation.room_of.cache_clear()
    ran = []
    for day in range(DAY, DAY + 3):
        changed(day=day)
        ran += _today(tree)
    assert sorted(ran) == ["test_a"] * 3 + ["test_b"] + ["test_c"] * 3


def test_modules_that_ran_plain_run_compiled_the_day_after(
    tree: Path, changed: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = {}
    for compiled in "01":
        monkeypatch.setenv("PENSTOCK_NATIVE", compiled)
        for day in range(DAY, DAY + 4):
            changed(day=day)
            ran[compiled, day] = _today(tree)
    assert all(ran["1", day + 1] == ran["0", day] for day in range(DAY, DAY + 3))


def test_without_gits_history_a_room_takes_its_turns(
    tree: Path, changed: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed()
    monkeypatch.setattr(depth, "changed_files", lambda: None)
    assert len(_today(tree)) == 1


def test_a_long_run_has_every_module(tree: Path, changed: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    changed()
    monkeypatch.setenv(rotation.SWITCH, "1")
    assert rotation.is_on()
    monkeypatch.setattr(depth, "LONG", True)
    assert not rotation.is_on()
    assert _today(tree) == {"test_a", "test_b", "test_c"}


@pytest.mark.parametrize("day", [DAY, DAY + 1])
def test_modules_of_another_day_are_not_imported(day: int, tmp_path: Path) -> None:
    (tmp_path / "turning").mkdir()
    files = [tmp_path / "turning/test_a.py", tmp_path / "turning/test_b.py"]
    for number, file in enumerate(files):
        file.write_text(PASSES if number == day % 2 else FAILS_WHEN_IMPORTED)
    (tmp_path / "conftest.py").write_text(TURNING)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "no:django",
         "-p", "no:cacheprovider", "-p", "no:randomly", "-W", "ignore", str(tmp_path)],
        cwd=BASE_DIR, capture_output=True, text=True, timeout=120, check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        | {"PENSTOCK_TESTS": "short", "PENSTOCK_TESTS_SEED": str(day * depth.SECONDS_OF_DAY), rotation.SWITCH: "1"},
    )  # fmt: skip
    assert "1 passed" in ran.stdout and not ran.returncode, ran.stdout + ran.stderr
