"""Selection of the modules of the slowest folders ("rooms") that `make test` runs today: another part each day
(decision 85).

A module also runs when it is new or was changed, when it imports something that was changed, and when the code
that its room checks was changed. Modules that do not run are not imported. Modules named on the command line always
run. Rooms that take little time are not listed here and always run as a whole.
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
# Files whose change runs all modules.
SHOWS_EVERYWHERE: Final = ("requirements.txt", "requirements-dev.txt")
# Shared by all tests. Its change runs no further modules, because the modules of any day would show a fault in it.
OF_ALL_TESTS: Final = PurePosixPath("tests/conftest.py")
UNIT: Final = PurePosixPath("tests/unit")
IMPORT: Final = re.compile(
    r"^[ \t]*(?:import ([\w.]+)|from ([\w.]+) import (?:\(([^)]*)\)|([^(\n][^\n]*)))", re.MULTILINE
)
NAME: Final = re.compile(r"\w+")


class Room(NamedTuple):
    """Number of days in which a room comes round, and the files whose change runs all of it."""

    days: int
    covers: Sequence[str] = ()


# Rooms by path. A room may be a single module, and may lie inside another room, which then does not include it.
ROOMS: Final[Mapping[str, Room]] = {
    "tests/product/browser": Room(8, ("tenants/static",)),
    "tests/product/quiet": Room(2, ("quotas", "brokers/engine/throttling", "config/web")),
    "tests/product/system": Room(4, ("config/embedded", "config/supervisor")),
    "tests/adversarial": Room(5, ("brokers/engine/network", "brokers/engine/throttling")),
    "tests/interop": Room(4, ("brokers/engine/protocol/messages",)),
    "tests/component/archives": Room(2, ("archives",)),
    "tests/component/billing": Room(2, ("billing",)),
    "tests/component/brokers": Room(4, ("brokers/provisioning", "brokers/rebalancing")),
    "tests/component/config": Room(4, ("config",)),
    "tests/component/console": Room(
        4,
        (
            "tenants/views",
            "tenants/templates",
            "instances/views",
            "instances/templates",
            "billing/views",
            "notifications/views",
            "archives/views",
        ),
    ),
    "tests/component/engine": Room(4, ("brokers/engine/assembly",)),
    "tests/component/notifications": Room(2, ("notifications",)),
    "tests/component/instances": Room(3, ("instances",)),
    "tests/component/pipeline": Room(6, ("billing/pipeline", "archives")),
    "tests/component/tenants": Room(3, ("tenants",)),
    "tests/unit/brokers/engine/handlers": Room(3),
    "tests/unit/brokers/engine/inspect": Room(2),
    "tests/unit/brokers/engine/partitions": Room(2),
    "tests/unit/brokers/engine/protocol": Room(3),
    "tests/unit/brokers/engine/records": Room(2),
    "tests/unit/brokers/engine/storage": Room(3),
    "tests/unit/brokers/native": Room(2),
}


def is_on() -> bool:
    return os.environ.get(SWITCH) == "1" and not depth.LONG


def is_compiled() -> bool:
    """True if the run is compiled: it tries the modules that ran plain the day before."""
    return os.environ.get("PENSTOCK_NATIVE", "0") != "0"


@cache
def room_of(path: Path) -> str | None:
    """Returns the innermost room that has the folder or module."""
    for candidate in (path, *path.parents):
        if candidate == BASE_DIR:
            break
        if candidate.is_relative_to(BASE_DIR) and (name := candidate.relative_to(BASE_DIR).as_posix()) in ROOMS:
            return name
    return None


def covers_of(room: str) -> tuple[str, ...]:
    """Returns the paths that a room checks: the folder that a room of unit tests mirrors, and those that it
    declares.
    """
    path = PurePosixPath(room)
    mirrored = (path.relative_to(UNIT).as_posix(),) if path.is_relative_to(UNIT) and not path.suffix else ()
    return (*mirrored, *ROOMS[room].covers)


def modules_of(room: str) -> list[Path]:
    """Returns the modules of a room, without those of rooms inside it."""
    place = BASE_DIR / room
    modules = [place] if place.is_file() else place.rglob("test_*.py")
    return sorted(module for module in modules if room_of(module) == room)


@cache
def left_for_other_days(room: str) -> frozenset[Path]:
    """Returns the modules of a room that do not run today."""
    if depth.is_changed((*SHOWS_EVERYWHERE, *covers_of(room))):
        return frozenset()
    modules = modules_of(room)
    others = frozenset(modules) - frozenset(depth.day_share(modules, ROOMS[room].days, behind=is_compiled()))
    changed = depth.changed_files() or frozenset()
    return frozenset(module for module in others if not _is_concerned(module, changed))


def runs_today(module: Path) -> bool:
    """True if this module has its turn, or belongs to no room that rotates."""
    room = room_of(module)
    return room is None or module not in left_for_other_days(room)


def describe() -> str:
    """Returns the line at the head of a run that leaves out modules."""
    left = sum(len(left_for_other_days(room)) for room in ROOMS)
    return (
        f"rotation: {left} of {sum(len(modules_of(room)) for room in ROOMS)} modules that take turns run on other days"
    )


def _is_concerned(module: Path, changed: Iterable[str]) -> bool:
    """True if a change is in this module, in files that its folders share, or in a module that it imports."""
    own = PurePosixPath(module.relative_to(BASE_DIR).as_posix())
    imported = imports_of(module.read_text(encoding="utf-8"))
    return any(file == own or _is_shared(file, own) or dotted(file) in imported for file in map(PurePosixPath, changed))


def _is_shared(file: PurePosixPath, module: PurePosixPath) -> bool:
    if file.name == "conftest.py":
        return file != OF_ALL_TESTS and module.is_relative_to(file.parent)
    return file.parent == module.parent and not file.name.startswith("test_")


def dotted(file: PurePosixPath) -> str:
    """Returns the import path of a file."""
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(text: str) -> frozenset[str]:
    """Returns the modules that a module imports, and the names that it imports from them, which may be modules."""
    result: set[str] = set()
    for whole, package, in_parentheses, in_line in IMPORT.findall(text):
        result.add(whole or package)
        result.update(f"{package}.{name}" for name in NAME.findall(in_parentheses or in_line))
    return frozenset(result)
