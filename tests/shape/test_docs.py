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
    """As GitHub makes them of headings."""
    headings = (line.lstrip("#").strip() for _, line in text_lines(text) if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def too_wide(text: str) -> list[int]:
    lines = text_lines(text)
    return [number for number, line in lines if len(line) > PROSE_COLUMNS_MAX and not line.startswith(NOT_PROSE)]


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
