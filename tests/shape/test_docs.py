"""The documentation holds together: links lead somewhere, prose fits the page, indexes are whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.environment import BASE_DIR

DOCS = BASE_DIR / "docs"
PROSE_COLUMNS_MAX = 130
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
CODE = re.compile(r"`([^`\n]+)`")
TOP = (
    "archives", "benchmarks", "billing", "brokers", "config", "docs", "examples", "instances", "locale",
    "notifications", "quotas", "tenants", "tests",
)  # fmt: skip
# `brokers/engine/config.py`, `tests/unit/`: below a top-level folder, or a module wherever it is said to lie.
PATH = re.compile(rf"(?:(?:{'|'.join(TOP)})/[\w./-]*|[\w./-]+/[\w-]+\.py)")
MADE_BY_THE_READER = {"tests/unit/quotas/test_limits.py": "the test that docs/CONTRIBUTING.md has written"}
# Of this repository, not of an address.
DOCUMENT = re.compile(r"(?<![\w/.])docs/[\w/.-]+\.md")
QUESTIONS = 20
FENCE = re.compile(r"^\s*```")
NOT_PROSE = ("|", "#", "<", "!", "[!")


def documents() -> list[Path]:
    return [BASE_DIR / "README.md", *sorted(DOCS.rglob("*.md"))]


def own_documents() -> list[Path]:
    """Without docs/spec/: one requirement a line, however long."""
    return [file for file in documents() if not file.is_relative_to(DOCS / "spec")]


def text_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines outside of code, with their numbers."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            is_code = not is_code
        elif not is_code:
            yield number, line


def anchors(text: str) -> set[str]:
    """Returns GitHub's anchors of the headings."""
    headings = (line.lstrip("#").strip() for _, line in text_lines(text) if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def too_wide(text: str) -> list[int]:
    lines = text_lines(text)
    return [number for number, line in lines if len(line) > PROSE_COLUMNS_MAX and not line.startswith(NOT_PROSE)]


def named_paths(text: str) -> set[str]:
    """Paths of the tree that a text names in backticks."""
    return {code for code in CODE.findall(text) if PATH.fullmatch(code)}


def broken_links(file: Path) -> list[str]:
    broken = []
    for _, line in text_lines(file.read_text(encoding="utf-8")):
        for target, anchor in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            if "://" in target or target.startswith("mailto:"):
                continue
            goal = (file.parent / target) if target else file
            if not goal.exists():
                broken.append(target)
            elif anchor and anchor not in anchors(goal.read_text(encoding="utf-8")):
                broken.append(f"{target}#{anchor}")
    return broken


@pytest.mark.parametrize("file", [*own_documents(), BASE_DIR / "CHANGELOG.md"], ids=lambda file: file.name)
def test_links_lead_somewhere(file: Path) -> None:
    assert not broken_links(file)


@pytest.mark.parametrize("file", own_documents(), ids=lambda file: file.name)
def test_prose_fits_the_page(file: Path) -> None:
    assert not too_wide(file.read_text(encoding="utf-8")), f"wrap at {PROSE_COLUMNS_MAX} columns"


@pytest.mark.parametrize("file", own_documents(), ids=lambda file: file.name)
def test_paths_that_are_named_exist(file: Path) -> None:
    paths = named_paths(file.read_text(encoding="utf-8")) - set(MADE_BY_THE_READER)
    assert not [path for path in sorted(paths) if not (BASE_DIR / path).exists()]


def test_documents_that_code_names_exist() -> None:
    code = (file for top in TOP if top not in ("docs", "tests", "locale") for file in (BASE_DIR / top).rglob("*.py"))
    named = {(file, found) for file in code for found in DOCUMENT.findall(file.read_text())}
    assert named
    assert [f"{file.relative_to(BASE_DIR)}: {found}" for file, found in named if not (BASE_DIR / found).exists()] == []


def test_the_map_of_hacking_answers_twenty_questions_at_least() -> None:
    text = (DOCS / "HACKING.md").read_text(encoding="utf-8").split("## The map")[1].split("\n## ")[0]
    answers = [CODE.findall(line)[-1] for line in text.splitlines() if line.startswith("|") and "`" in line]
    assert len(set(answers)) == len(answers) >= QUESTIONS
    assert not [path for path in answers if not (BASE_DIR / path).is_file()]


def test_every_folder_that_the_readme_maps_exists() -> None:
    text = (BASE_DIR / "README.md").read_text(encoding="utf-8").split("## The map")[1].split("```")[1]
    rooms = {word for line in text.splitlines() for word in re.findall(r"^[\w/.]+|(?<=  )[\w]+/(?=\s|$)", line)}
    assert {f"{folder}/" for folder in ("config", "tests", "brokers")} <= rooms
    assert not [room for room in sorted(rooms) if not (BASE_DIR / room).exists()]


@pytest.mark.parametrize("folder", ["tutorial", "how-to", "reference", "explanation"])
def test_every_page_is_on_the_map(folder: str) -> None:
    linked = {target for target, _ in LINK.findall((DOCS / "README.md").read_text(encoding="utf-8"))}
    pages = {file.relative_to(DOCS).as_posix() for file in (DOCS / folder).glob("*.md")}
    assert pages
    assert not pages - linked


def test_every_decision_is_in_the_index_once() -> None:
    index = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    entries = re.findall(r"^\* \[(\d+)\]\(([^)]*)\)", index, re.MULTILINE)
    files = sorted(file.name for file in (DOCS / "decisions").glob("0*.md"))
    assert sorted(name for _, name in entries) == files
    assert all(int(number) == int(name[:4]) for number, name in entries)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("a " * 66, [1]), ("| " + "a" * 140 + " |", []), ("```\n" + "a" * 140 + "\n```", []), ("a" * 130, [])],
)
def test_only_prose_is_measured(text: str, numbers: list[int]) -> None:
    assert too_wide(text) == numbers


def test_anchors_are_those_of_headings() -> None:
    assert anchors("# The log, after a crash\n\n## `readyz` is 503\n") == {"the-log-after-a-crash", "readyz-is-503"}


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("in `brokers/engine/config.py`, not `a.py`", {"brokers/engine/config.py"}),
        ("`storage/gone.py` and `tests/unit/`", {"storage/gone.py", "tests/unit/"}),
        ("`penstock/…` and `tests/<app>/`", set()),
    ],
)
def test_paths_in_backticks_are_recognised(text: str, paths: set[str]) -> None:
    assert named_paths(text) == paths
