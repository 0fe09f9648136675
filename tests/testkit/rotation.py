"""Which modules of the dearest rooms `make test` runs today: a part of each, another one each day (decision 85).

A module also runs when it is new or was changed, when it imports something that was changed, and when what its room
checks was changed. What does not run is not imported either. What is named on a command line always runs. A room is
here if it takes a large part of the time; a room that is not here runs whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from config.environment import BASE_DIR
from tests.testkit import depth

# Set by `make test` alone.
SWITCH: Final = "PENSTOCK_TESTS_ROTATE"
# A change of these may show anywhere.
SHOWS_EVERYWHERE: Final = ("requirements.txt", "requirements-dev.txt", "tests/conftest.py")
UNIT: Final = PurePosixPath("tests/unit")
IMPORT: Final = re.compile(
    r"^[ \t]*(?:import ([\w.]+)|from ([\w.]+) import (?:\(([^)]*)\)|([^(\n][^\n]*)))", re.MULTILINE
)
NAME: Final = re.compile(r"\w+")


class Room(NamedTuple):
    """In how many days it comes round, and the files whose change brings all of it."""

    days: int
    covers: Sequence[str] = ()


# A folder below a room may be a room of its own.
ROOMS: Final[Mapping[str, Room]] = {
    "tests/product/browser": Room(4, ("tenants/static",)),
    "tests/product/system": Room(3, ("config/embedded",)),
    "tests/adversarial": Room(3, ("brokers/engine/network", "brokers/engine/throttling")),
    "tests/component/engine": Room(2, ("brokers/engine/assembly",)),
    "tests/component/brokers": Room(2, ("brokers/provisioning", "brokers/rebalancing")),
    "tests/component/pipeline": Room(2, ("billing/pipeline",)),
    "tests/unit/brokers/engine/protocol": Room(2),
}


def is_on() -> bool:
    return os.environ.get(SWITCH) == "1" and not depth.LONG


@cache
def room_of(folder: Path) -> str | None:
    """The innermost room that has the folder."""
    for candidate in (folder, *folder.parents):
        if candidate == BASE_DIR:
            break
        if candidate.is_relative_to(BASE_DIR) and (name := candidate.relative_to(BASE_DIR).as_posix()) in ROOMS:
            return name
    return None


def covers_of(room: str) -> tuple[str, ...]:
    """What a room checks: the folder that a room of unit tests mirrors, and what it names."""
    path = PurePosixPath(room)
    mirrored = (path.relative_to(UNIT).as_posix(),) if path.is_relative_to(UNIT) else ()
    return (*mirrored, *ROOMS[room].covers)


def modules_of(room: str) -> list[Path]:
    """Without those of rooms inside it."""
    return sorted(module for module in (BASE_DIR / room).rglob("test_*.py") if room_of(module.parent) == room)


@cache
def left_for_other_days(room: str) -> frozenset[Path]:
    """Modules of the room that do not run today."""
    if depth.is_changed((*SHOWS_EVERYWHERE, *covers_of(room))):
        return frozenset()
    modules = modules_of(room)
    others = frozenset(modules) - frozenset(depth.day_share(modules, ROOMS[room].days))
    changed = depth.changed_files() or frozenset()
    return frozenset(module for module in others if not _is_concerned(module, changed))


def runs_today(module: Path) -> bool:
    """Whether this module has its turn, or is of no room that takes turns."""
    room = room_of(module.parent)
    return room is None or module not in left_for_other_days(room)


def describe() -> str:
    """The line at the head of a run that leaves modules to other days."""
    left = sum(len(left_for_other_days(room)) for room in ROOMS)
    return (
        f"rotation: {left} of {sum(len(modules_of(room)) for room in ROOMS)} modules that take turns run on other days"
    )


def _is_concerned(module: Path, changed: Iterable[str]) -> bool:
    """Whether a change is of this module, of what its folders share, or of something that it imports."""
    own = PurePosixPath(module.relative_to(BASE_DIR).as_posix())
    imported = imports_of(module.read_text(encoding="utf-8"))
    return any(file == own or _is_shared(file, own) or dotted(file) in imported for file in map(PurePosixPath, changed))


def _is_shared(file: PurePosixPath, module: PurePosixPath) -> bool:
    if file.name == "conftest.py":
        return module.is_relative_to(file.parent)
    return file.parent == module.parent and not file.name.startswith("test_")


def dotted(file: PurePosixPath) -> str:
    """How a file is imported."""
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(text: str) -> frozenset[str]:
    """Modules that a module imports, and what it imports of them: both may be changed files."""
    result: set[str] = set()
    for whole, package, in_parentheses, in_line in IMPORT.findall(text):
        result.add(whole or package)
        result.update(f"{package}.{name}" for name in NAME.findall(in_parentheses or in_line))
    return frozenset(result)
