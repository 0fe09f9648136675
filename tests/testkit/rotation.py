"""Which modules of the dearest rooms `make test` runs today: a part of each, another one each day (decision 85).

What is named on a command line always runs, so does a module that was changed, and all of a room when what it checks
was. A room is here if it takes a large part of the time and other rooms would notice most of what it would: pages have
tests without a browser, brokers in processes and the whole product have tests of their parts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from config.environment import BASE_DIR
from tests.testkit import depth

# Set by `make test` alone.
SWITCH: Final = "PENSTOCK_TESTS_ROTATE"


class Room(NamedTuple):
    """In how many days it comes round, and the files whose change brings all of it."""

    days: int
    covers: Sequence[str]


ROOMS: Final[Mapping[str, Room]] = {
    "tests/product/browser": Room(4, ("tests/product/browser/conftest.py", "tenants/static")),
    "tests/product/system": Room(3, ("tests/product/system/fleet.py", "config/embedded")),
    "tests/adversarial": Room(
        3, ("tests/adversarial/hostile.py", "brokers/engine/network", "brokers/engine/throttling")
    ),
    "tests/component/engine": Room(2, ("brokers/engine/assembly",)),
    "tests/component/brokers": Room(2, ("brokers/provisioning", "brokers/rebalancing")),
    "tests/component/pipeline": Room(2, ("billing/pipeline",)),
    "tests/unit/brokers/engine/protocol": Room(2, ("brokers/engine/protocol",)),
}


def is_on() -> bool:
    return os.environ.get(SWITCH) == "1" and not depth.LONG


@cache
def left_for_other_days(room: str) -> frozenset[Path]:
    """Modules of the room that do not run today."""
    days, covers = ROOMS[room]
    if depth.is_changed(covers):
        return frozenset()
    modules = sorted((BASE_DIR / room).rglob("test_*.py"))
    changed = {BASE_DIR / file for file in depth.changed_files() or ()}
    return frozenset(modules) - frozenset(depth.day_share(modules, days)) - changed


def runs_today(module: Path) -> bool:
    """Whether this module has its turn, or is of no room that takes turns."""
    return not any(module in left_for_other_days(room) for room in ROOMS)
