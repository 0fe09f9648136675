"""Every requirement that the tree cites (`REP-12`, `QUO-50…52`) stands in docs/spec/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from config.environment import BASE_DIR
from tests.shape.test_tidy import FOLDERS, name_of

SPEC = BASE_DIR / "docs" / "spec"
# A definition opens an item of a list or a row of a table.
DEFINITION = re.compile(r"^[-*|] ?\*{0,2}([A-Z]{2,4}-\d+)", re.MULTILINE)
BETWEEN = r"…|\.\.\.|–| to "  # the ends of a range


def definitions(text: str) -> set[str]:
    return set(DEFINITION.findall(text))


@cache
def defined() -> frozenset[str]:
    return frozenset(definitions((SPEC / "kafka-spec.md").read_text(encoding="utf-8")))


@cache
def citation() -> re.Pattern[str]:
    """An id, or its range, and the bare numbers behind it: those that a list's end or another number follows."""
    families = "|".join(sorted({name.split("-")[0] for name in defined()}))
    numbers = rf"\d+(?:(?:{BETWEEN})(?:(?:{families})-)?\d+)?"
    return re.compile(rf"(?<![\w-])({families})-({numbers}(?:(?:, |/){numbers}(?=[,/).;:\]`]|$))*)")


def cited(text: str) -> Iterator[str]:
    """Ids of a text, lists and ranges expanded: `QUO-50…52, 60` is four."""
    for family, numbers in citation().findall(text):
        for part in re.split(r", |/", numbers):
            ends = [int(end.split("-")[-1]) for end in re.split(BETWEEN, part)]
            yield from (f"{family}-{number}" for number in range(ends[0], ends[-1] + 1))


def texts() -> Iterator[Path]:
    for folder in (*FOLDERS, "docs"):
        for suffix in ("py", "md", "html", "json"):
            yield from (file for file in (BASE_DIR / folder).rglob(f"*.{suffix}") if "golden" not in file.parts)
    yield from (BASE_DIR / name for name in ("README.md", "CHANGELOG.md", "Makefile", "pyproject.toml"))


def test_every_requirement_that_is_cited_stands_in_the_spec() -> None:
    missing: dict[str, list[str]] = {}
    for file in texts():
        if file.is_relative_to(SPEC):
            continue
        for name in set(cited(file.read_text(encoding="utf-8"))) - defined():
            missing.setdefault(name, []).append(name_of(file))
    assert not missing, f"not in docs/spec/kafka-spec.md: {missing}"


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("(REP-12)", ["REP-12"]),
        ("QUO-50…52", ["QUO-50", "QUO-51", "QUO-52"]),
        ("REC-29, 53, LOG-29", ["REC-29", "REC-53", "LOG-29"]),
        ("TXN-3 to TXN-5, IDE-6", ["TXN-3", "TXN-4", "TXN-5", "IDE-6"]),
        ("WIRE-3, 10 ms later", ["WIRE-3"]),
        ("CRC-32 and KIP-101 are not ours", []),
    ],
)
def test_lists_and_ranges_of_a_citation_are_read(text: str, ids: list[str]) -> None:
    assert list(cited(text)) == ids
