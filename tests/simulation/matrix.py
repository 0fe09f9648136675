"""Every crash of a recorded run, tried: killed or without power at each operation, and once more during the start."""

from __future__ import annotations

import hashlib
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.simulation.crashes import Listing, after_kill, after_power_loss
from tests.simulation.disk import Disk
from tests.simulation.log import opened
from tests.simulation.tree import materialise

MEMORY: Final = Path("/dev/shm")

# What is left in this directory, of a crash before this operation, with the power lost or not, is as it must be.
Check = Callable[[Path, int, bool], None]


class Effort(NamedTuple):
    """Kills are tried at every operation. Power losses at every so manieth, with the extremes and some `draws`; every
    so manieth start is crashed itself. Of all operations a piece `(number from 0, of how many)`.
    """

    power_lost_every: int = 1
    draws: int = 8
    starts_crashed_every: int = 1
    piece: tuple[int, int] = (0, 1)

    def steps(self, first: int, end: int) -> range:
        """The piece of the operations from `first` to before `end`."""
        number, count = self.piece
        return range(first + (end - first) * number // count, first + (end - first) * (number + 1) // count)


class Tried(NamedTuple):
    """How many crashes there were, and how many starts on different remains."""

    crashes: int
    starts: int


@contextmanager
def quick_directory() -> Iterator[Path]:
    """In memory where that can be had: thousands of directories come and go."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as result:
        yield Path(result)


class _Remains:
    """Directories made of listings, each different one once."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._seen: set[tuple[object, ...]] = set()
        self._top = home / "0"
        self.count = 0

    def is_first(self, listing: Listing, *facts: object) -> bool:
        digest = hashlib.sha256(repr(sorted(listing.items())).encode()).digest()
        known = len(self._seen)
        self._seen.add((digest, *facts))
        return len(self._seen) > known

    def made(self, listing: Listing) -> Path:
        shutil.rmtree(self._top, ignore_errors=True)
        self.count += 1
        self._top = self._home / str(self.count)
        materialise(listing, self._top)
        return self._top


def crashes(
    disk: Disk, dice: random.Random, effort: Effort, first_step: int = 0
) -> Iterator[tuple[int, bool, Listing]]:
    """(operation, whether power was lost, what is left)."""
    for step in effort.steps(first_step, len(disk.ops) + 1):
        for listing in after_kill(disk.start, disk.ops, step):
            yield step, False, listing
        if step % effort.power_lost_every == 0:
            for listing in after_power_loss(disk.start, disk.ops, step, dice, effort.draws):
                yield step, True, listing


def _started(top: Path) -> Disk:
    """A start on what is left, recorded, with its process gone after it."""
    disk = Disk(top)
    with disk.recording():
        opened(top)
    disk.end_process()
    return disk


def crash_everywhere(
    home: Path, disk: Disk, check: Check, effort: Effort, facts: Callable[[int], object], first_step: int = 0
) -> Tried:
    """Runs `check` on everything that a crash may leave. `facts`: what was promised by an operation; the same remains
    are looked at once for the same promises. Raises AssertionError with the history that leads there.
    """
    remains = _Remains(home)
    dice = random.Random(len(disk.ops))
    count = tried = 0
    for step, power_lost, listing in crashes(disk, dice, effort, first_step):
        count += 1
        if not remains.is_first(listing, power_lost, facts(step)):
            continue
        tried += 1
        try:
            check(remains.made(listing), step, power_lost)
            if tried % effort.starts_crashed_every:
                continue
            start = _started(remains.made(listing))
            for _, lost_again, left in crashes(start, dice, effort._replace(draws=0, piece=(0, 1))):
                if remains.is_first(left, power_lost or lost_again, facts(step)):
                    check(remains.made(left), step, power_lost or lost_again)
        except AssertionError as failure:
            raise AssertionError(_story(failure, disk, step, power_lost, listing)) from failure
    return Tried(count, remains.count)


def _story(failure: AssertionError, disk: Disk, step: int, power_lost: bool, listing: Listing) -> str:
    done = [f"{number:4} {op}" for number, op in enumerate(disk.ops[: step + 1])]
    left = [f"{name} {'' if data is None else len(data)}" for name, data in sorted(listing.items())]
    crash = "the power went" if power_lost else "the process was killed"
    return "\n".join([str(failure), f"{crash} before or within the last of", *done, "which left", *left])
