"""Depth of a run: `make test` runs a part of random and swept tests, PENSTOCK_TESTS=long (`make test-long`) all of them
(docs/decisions/0085). Every reduction uses this module or the marker `long`: `grep -rnE "depth|mark.long" tests`.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final, TypeVar

from config.environment import BASE_DIR

T = TypeVar("T")
LONG: Final = os.environ.get("PENSTOCK_TESTS") == "long"
# Seed of the examples, and of the part of the tests that runs today. Child processes inherit it.
SEED: Final = int(os.environ.setdefault("PENSTOCK_TESTS_SEED", str(int(time.time()))))
SECONDS_OF_DAY: Final = 86_400
MAIN: Final = ("origin/main", "main")
# Variable with the commit of an earlier run, against which changes are counted instead of `_base`.
SINCE: Final = "PENSTOCK_TESTS_SINCE"
GIT_TIMEOUT_S: Final = 20


def number_from(variable: str, short: int, long: int) -> int:
    """Returns a number of examples, seeds or tries: from the environment, else by the depth of the run."""
    return int(os.environ.get(variable) or (long if LONG else short))


def names_from(variable: str, short: Sequence[str], long: Sequence[str]) -> Sequence[str]:
    """Returns a selection of names: from the environment, separated by commas, else by the depth of the run."""
    selection = os.environ.get(variable)
    return selection.split(",") if selection else (long if LONG else short)


def examples(long: int) -> int:
    """Returns the number of Hypothesis examples: `long` in a long run, else a quarter."""
    return long if LONG else max(1, long // 4)


def part_of_day(parts: int, behind: int = 0) -> int:
    """Returns the part, from 0, of the seed's day or of a number of days before: each part comes once in `parts`
    consecutive days.
    """
    return (SEED // SECONDS_OF_DAY - behind) % parts


def day_share(candidates: Sequence[T], parts: int, covers: Sequence[str] = (), behind: int = 0) -> list[T]:
    """Returns every `parts`-th of the items, beginning at the part of the day or of a number of days before; all of
    them in a long run, or when a file at or below one of `covers` was changed.
    """
    is_whole = LONG or (covers and is_changed(covers))
    return list(candidates if is_whole else candidates[part_of_day(parts, behind) :: parts])


def _git(*arguments: str) -> str:
    process = subprocess.run(
        ["git", *arguments], cwd=BASE_DIR, capture_output=True, text=True, check=True, timeout=GIT_TIMEOUT_S
    )
    return process.stdout.strip()


def _base() -> str:
    """Returns the commit where this branch left main; on main itself, the commit before the last one."""
    if since := os.environ.get(SINCE):
        return _git("rev-parse", "--verify", f"{since}^{{commit}}")
    head = _git("rev-parse", "HEAD")
    for main in MAIN:
        try:
            base = _git("merge-base", "HEAD", main)
        except subprocess.CalledProcessError:
            continue
        if base != head:
            return base
    return _git("rev-parse", "HEAD~1")


@cache
def changed_files() -> frozenset[str] | None:
    """Returns the files that differ from `_base`, uncommitted and new ones included; None if git does not know (a
    shallow clone).
    """
    try:
        differing = _git("diff", "--name-only", "--no-renames", _base())
        return frozenset((differing + "\n" + _git("ls-files", "--others", "--exclude-standard")).split())
    except (OSError, subprocess.SubprocessError):
        return None


def is_changed(paths: Iterable[str]) -> bool:
    """True if a file at or below one of `paths` was changed."""
    below = tuple(f"{path.rstrip('/')}/" for path in paths)
    return any(f"{file}/".startswith(below) for file in changed_files() or ())


# Light and dark, each every other day: what differs between them is colours.
THEMES: Final = day_share(("light", "dark"), 2)


def describe() -> str:
    """Returns the line at the head of a run and at the end of a failed one."""
    depth = "long" if LONG else "short"
    line = f"depth: {depth}; the same examples again: PENSTOCK_TESTS={depth} PENSTOCK_TESTS_SEED={SEED}"
    return line if LONG or changed_files() is not None else f"{line}; git cannot say what changed"
