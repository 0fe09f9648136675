"""How deep a run goes: `make test` runs a part of what is random or swept, PENSTOCK_TESTS=long (`make test-long`) the
whole (docs/decisions/0085). Every reduction uses this module or the marker `long`: `grep -rnE "depth|mark.long" tests`.
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
# Of the examples and of the day's part. The test processes that this one starts inherit it.
SEED: Final = int(os.environ.setdefault("PENSTOCK_TESTS_SEED", str(int(time.time()))))
SECONDS_OF_DAY: Final = 86_400
MAIN: Final = ("origin/main", "main")
# The commit against which changes are counted, instead of `_base`: of what a run before this one has seen.
SINCE: Final = "PENSTOCK_TESTS_SINCE"
GIT_TIMEOUT_S: Final = 20


def number_from(variable: str, short: int, long: int) -> int:
    """How many examples, seeds or tries: what the environment says, else by the depth of the run."""
    return int(os.environ.get(variable) or (long if LONG else short))


def names_from(variable: str, short: Sequence[str], long: Sequence[str]) -> Sequence[str]:
    """Which of several: what the environment says, separated by commas, else by the depth of the run."""
    named = os.environ.get(variable)
    return named.split(",") if named else (long if LONG else short)


def examples(long: int) -> int:
    """Of a property that is tried with so many in a long run: a quarter."""
    return long if LONG else max(1, long // 4)


def part_of_day(parts: int, behind: int = 0) -> int:
    """The part, from 0, that the day of the seed has, or so many days before it: on `parts` days in a row each comes
    once.
    """
    return (SEED // SECONDS_OF_DAY - behind) % parts


def day_share(candidates: Sequence[T], parts: int, covers: Sequence[str] = (), behind: int = 0) -> list[T]:
    """Every so manieth of them, beginning at the part of the day or of one so many days before it; all of them in a
    long run, or when a file at or below one of `covers` was changed.
    """
    is_whole = LONG or (covers and is_changed(covers))
    return list(candidates if is_whole else candidates[part_of_day(parts, behind) :: parts])


def _git(*arguments: str) -> str:
    said = subprocess.run(
        ["git", *arguments], cwd=BASE_DIR, capture_output=True, text=True, check=True, timeout=GIT_TIMEOUT_S
    )
    return said.stdout.strip()


def _base() -> str:
    """Where this branch left main; on main itself the commit before the last one."""
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
    """What differs from `_base`, uncommitted and new files included; None where git cannot say (a shallow clone)."""
    try:
        differing = _git("diff", "--name-only", "--no-renames", _base())
        return frozenset((differing + "\n" + _git("ls-files", "--others", "--exclude-standard")).split())
    except (OSError, subprocess.SubprocessError):
        return None


def is_changed(paths: Iterable[str]) -> bool:
    """Whether a file at or below one of `paths` was changed."""
    below = tuple(f"{path.rstrip('/')}/" for path in paths)
    return any(f"{file}/".startswith(below) for file in changed_files() or ())


# Light and dark, each every other day: what differs between them is colours.
THEMES: Final = day_share(("light", "dark"), 2)


def describe() -> str:
    """The line at the head of a run and at the end of one that failed."""
    depth = "long" if LONG else "short"
    line = f"depth: {depth}; the same examples again: PENSTOCK_TESTS={depth} PENSTOCK_TESTS_SEED={SEED}"
    return line if LONG or changed_files() is not None else f"{line}; git cannot say what changed"
