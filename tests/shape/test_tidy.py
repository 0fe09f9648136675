"""Style as a test: sizes, docstrings, leftovers, and a map that names every room of the engine."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from config.environment import BASE_DIR

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
SCENARIO_LINES_MAX = 80  # a test tells one story from top to bottom
FOLDERS = (
    "config",
    "tenants",
    "instances",
    "brokers",
    "quotas",
    "billing",
    "notifications",
    "archives",
    "benchmarks",
    "tests",
)
GENERATED = ("migrations", "golden")
TABLES_OF_DATA = "brokers/engine/protocol/schemas"

# Longer than the limit, with the length they may not outgrow. Entries only ever leave this list.
LONG_FILES: dict[str, int] = {}
LONG_FUNCTIONS: dict[str, int] = {
    # One pass over a frame; a call per field would cost more than the work itself (docs/explanation/PERFORMANCE.md).
    "brokers/engine/protocol/fast_codec_fetch.py:_decode_flexible": 70,
    "brokers/engine/handlers/fetch/reading.py:read": 80,
}

LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|raise NotImplementedError|except Exception:\s*\n\s*pass\b")
SELF = "tests/shape/test_tidy.py"


def python_files() -> list[Path]:
    result = [file for folder in FOLDERS for file in (BASE_DIR / folder).rglob("*.py")]
    return sorted(file for file in result if not set(file.relative_to(BASE_DIR).parts) & set(GENERATED))


def name_of(file: Path) -> str:
    return file.relative_to(BASE_DIR).as_posix()


@dataclass(frozen=True)
class Survey:
    """Results of one reading of a file, for all these tests."""

    name: str
    text: str
    says_what_it_is: bool
    function_lines: list[tuple[str, int]]
    sleeps_outside_loops: list[int]


@cache
def surveys() -> list[Survey]:
    return [survey(name_of(file), file.read_text(encoding="utf-8")) for file in python_files()]


def survey(name: str, text: str) -> Survey:
    tree = ast.parse(text)
    return Survey(
        name=name,
        text=text,
        says_what_it_is=not text.strip() or ast.get_docstring(tree) is not None,
        function_lines=[
            (node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ],
        sleeps_outside_loops=sleeps_outside_loops(tree) if "time.sleep" in text else [],
    )


def sleeps_outside_loops(tree: ast.Module) -> list[int]:
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.While | ast.For | ast.AsyncFor)]
    inside = {id(call) for loop in loops for call in ast.walk(loop)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and id(node) not in inside]
    return [call.lineno for call in calls if ast.unparse(call.func) == "time.sleep"]


def test_no_file_is_too_long() -> None:
    lengths = {file.name: file.text.count("\n") for file in surveys()}
    too_long = {name: lines for name, lines in lengths.items() if lines > LONG_FILES.get(name, FILE_LINES_MAX)}
    assert not too_long, f"split these by reason to exist (limit {FILE_LINES_MAX} lines): {too_long}"


def test_no_function_is_too_long() -> None:
    too_long = {}
    for file in surveys():
        usual = SCENARIO_LINES_MAX if file.name.startswith("tests/") else FUNCTION_LINES_MAX
        for function, lines in file.function_lines:
            place = f"{file.name}:{function}"
            if lines > LONG_FUNCTIONS.get(place, usual):
                too_long[place] = lines
    assert not too_long, f"split these (limit {FUNCTION_LINES_MAX} lines): {too_long}"


def test_every_module_says_what_it_is() -> None:
    silent = [file.name for file in surveys() if not file.says_what_it_is]
    assert not silent, f"modules without a docstring: {silent}"


def test_nothing_is_left_for_later() -> None:
    others = [file for file in surveys() if file.name != SELF]
    result = {file.name: match.group(0) for file in others if (match := LEFTOVERS.search(file.text))}
    assert not result, f"finish or delete: {result}"


def test_tests_wait_on_conditions_instead_of_sleeping() -> None:
    """A sleep is only for polling: inside a loop that has a deadline (see tests/testkit/waiting.py)."""
    files = [
        file for file in surveys() if file.name.startswith("tests/") and not file.name.startswith("tests/testkit/")
    ]
    sleeping = [f"{file.name}:{line}" for file in files for line in file.sleeps_outside_loops]
    assert not sleeping, f"wait on a condition with a deadline: {sleeping}"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("time.sleep(1)", [1]),
        ("while not done():\n    time.sleep(0.1)", []),
        ("for _ in ():\n  pass\ntime.sleep(1)", [3]),
    ],
)
def test_a_sleep_is_seen_where_nothing_is_polled(text: str, lines: list[int]) -> None:
    assert survey("tests/x.py", text).sleeps_outside_loops == lines


def test_every_room_of_the_engine_is_on_the_map() -> None:
    page = (BASE_DIR / "docs" / "explanation" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    engine = BASE_DIR / "brokers" / "engine"
    rooms = [entry for entry in engine.iterdir() if entry.is_dir() and (entry / "__init__.py").exists()]
    missing = sorted(room.name for room in rooms if f"`{room.name}/`" not in page and f"{room.name}/" not in page)
    assert not missing, f"docs/explanation/ARCHITECTURE.md does not name {missing}"


# Conventions of the REST interface that own a table; they are not views.
OWNERS_OF_ROWS = {"tenants/api/idempotency.py", "tenants/api/authentication.py"}


@pytest.mark.parametrize("app", ["tenants", "instances", "brokers", "quotas", "billing", "notifications", "archives"])
def test_views_reach_rows_through_the_fence(app: str) -> None:
    """Views use selectors and `access.py` instead of `Model.objects` (docs/explanation/ARCHITECTURE.md)."""
    folder = BASE_DIR / app
    rooms = ("api/**/*.py", "views*.py", "views/**/*.py", "admin*.py", "admin_views/**/*.py", "templatetags/*.py")
    views = [file for room in rooms for file in folder.glob(room)]
    around = {name_of(file) for file in views if ".objects." in file.read_text(encoding="utf-8")} - OWNERS_OF_ROWS
    assert not around, f"use a selector or access.py: {sorted(around)}"


def test_no_document_names_a_machine_path() -> None:
    files = [*(BASE_DIR / "docs").rglob("*.md"), BASE_DIR / "README.md", BASE_DIR / "CHANGELOG.md"]
    result = [name_of(file) for file in files if re.search(r"/(work|root|home)/\w", file.read_text(encoding="utf-8"))]
    assert not result
