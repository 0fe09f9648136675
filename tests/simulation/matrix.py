"""Matrix of crashes of a recorded run: a kill or a power loss at each operation, and another one during the start."""

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
from tests.simulation.log import open_table
from tests.simulation.tree import materialise

MEMORY: Final = Path("/dev/shm")

# Check of a directory after a crash before an operation; the last argument is True for a power loss.
Check = Callable[[Path, int, bool], None]


class Effort(NamedTuple):
    """Effort of a crash matrix.

    Kills are tried at every operation, power losses at every `power_lost_every`-th one, with the extremes and `draws`
    random remains. Some of the starts are crashed themselves. `piece` is a part of all operations as `(number from 0,
    count)`.
    """

    power_lost_every: int = 1
    draws: int = 8
    starts_crashed_every: int = 1
    piece: tuple[int, int] = (0, 1)

    def steps(self, first: int, end: int) -> range:
        """Returns the part of the operations from `first` up to `end` that is in the piece."""
        number, count = self.piece
        return range(first + (end - first) * number // count, first + (end - first) * (number + 1) // count)


class CrashCounts(NamedTuple):
    """Numbers of crashes and of starts on different remains."""

    crashes: int
    starts: int


@contextmanager
def quick_directory() -> Iterator[Path]:
    """Yields a temporary directory, in memory if possible, because thousands of directories are made in it."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as result:
        yield Path(result)


class _Remains:
    """Directories that are made from listings, once for each different listing."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._seen_digests: set[tuple[object, ...]] = set()
        self._top = home / "0"
        self.count = 0

    def is_first(self, listing: Listing, *facts: object) -> bool:
        digest = hashlib.sha256(repr(sorted(listing.items())).encode()).digest()
        count_before = len(self._seen_digests)
        self._seen_digests.add((digest, *facts))
        return len(self._seen_digests) > count_before

    def create(self, listing: Listing) -> Path:
        shutil.rmtree(self._top, ignore_errors=True)
        self.count += 1
        self._top = self._home / str(self.count)
        materialise(listing, self._top)
        return self._top


def crashes(
    disk: Disk, dice: random.Random, effort: Effort, first_step: int = 0
) -> Iterator[tuple[int, bool, Listing]]:
    """Yields (operation, is power loss, remains)."""
    for step in effort.steps(first_step, len(disk.ops) + 1):
        for listing in after_kill(disk.start, disk.ops, step):
            yield step, False, listing
        if step % effort.power_lost_every == 0:
            for listing in after_power_loss(disk.start, disk.ops, step, dice, effort.draws):
                yield step, True, listing


def _record_start(top: Path) -> Disk:
    """Records a start on the remains of a crash, and ends its process."""
    disk = Disk(top)
    with disk.recording():
        open_table(top)
    disk.end_process()
    return disk


def crash_everywhere(
    home: Path, disk: Disk, check: Check, effort: Effort, facts: Callable[[int], object], first_step: int = 0
) -> CrashCounts:
    """Runs `check` on all possible remains of crashes.

    `facts` returns the promises at an operation; equal remains are checked once for equal promises. Raises
    AssertionError with the history that leads there.
    """
    remains = _Remains(home)
    dice = random.Random(len(disk.ops))
    count = checked_count = 0
    for step, power_lost, listing in crashes(disk, dice, effort, first_step):
        count += 1
        if not remains.is_first(listing, power_lost, facts(step)):
            continue
        checked_count += 1
        try:
            check(remains.create(listing), step, power_lost)
            if checked_count % effort.starts_crashed_every:
                continue
            start = _record_start(remains.create(listing))
            for _, lost_again, remains_again in crashes(start, dice, effort._replace(draws=0, piece=(0, 1))):
                if remains.is_first(remains_again, power_lost or lost_again, facts(step)):
                    check(remains.create(remains_again), step, power_lost or lost_again)
        except AssertionError as failure:
            raise AssertionError(_failure_text(failure, disk, step, power_lost, listing)) from failure
    return CrashCounts(count, remains.count)


def _failure_text(failure: AssertionError, disk: Disk, step: int, power_lost: bool, listing: Listing) -> str:
    operations = [f"{number:4} {op}" for number, op in enumerate(disk.ops[: step + 1])]
    files = [f"{name} {'' if data is None else len(data)}" for name, data in sorted(listing.items())]
    crash = "the power went" if power_lost else "the process was killed"
    return "\n".join([str(failure), f"{crash} before or within the last of", *operations, "which left", *files])
