"""Start offsets of leader epochs (LOG-30, LOG-31, LOG-33) and their file `leader-epoch-checkpoint`.

Epochs and offsets are strictly increasing. A list of pairs is sufficient, because a partition has few epochs in the
lifetime of its segments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Final

from brokers.engine.storage.checkpoints import UnreadableCheckpoint, parse_lines, render_lines
from brokers.engine.storage.files import write_atomically

FILE_NAME: Final = "leader-epoch-checkpoint"
UNDEFINED: Final = (-1, -1)


def without_decreasing_epochs(batches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the first base offset of each epoch, from the (epoch, base offset) of each batch, without epochs that
    decrease.

    Epochs of a log never decrease, but no checksum covers the epoch of a batch. Where one decreases, a bit has flipped
    in the run with fewer batches, which is left out.
    """
    runs: list[tuple[int, int, int]] = []  # (epoch, base offset, number of batches)
    rising: list[tuple[int, int, int]] = []
    for epoch, base_offset in batches:
        if runs and runs[-1][0] == epoch:
            runs[-1] = (epoch, runs[-1][1], runs[-1][2] + 1)
        else:
            runs.append((epoch, base_offset, 1))
    for epoch, base_offset, count in runs:
        above = len(rising)
        while above and rising[above - 1][0] > epoch:
            above -= 1
        if sum(previous for _, _, previous in rising[above:]) > count:
            continue
        del rising[above:]
        if rising and rising[-1][0] == epoch:
            base_offset, count = rising[-1][1], rising[-1][2] + count
            rising.pop()
        rising.append((epoch, base_offset, count))
    return [(epoch, base_offset) for epoch, base_offset, _ in rising]


class LeaderEpochs:
    """Leader epoch cache of one partition.

    An epoch is saved before its first batch is written; a lost file is rebuilt from the batches.
    """

    __slots__ = ("_directory", "_root", "entries", "is_damaged", "saves", "unsaved")

    def __init__(self, directory: str, root: Path) -> None:
        self._directory = directory
        self._root = root
        self.entries: list[tuple[int, int]] = []
        self.saves = 0  # number of saves since the log was opened or last flushed
        self.unsaved = False
        self.is_damaged = False  # the loaded file was no valid list of epochs

    @property
    def path(self) -> str:
        return f"{self._directory}/{FILE_NAME}"

    @property
    def latest(self) -> int:
        """The latest epoch, -1 if there is none."""
        return self.entries[-1][0] if self.entries else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """Assigns `epoch` to batches from `start_offset` on, removes entries that contradict this, and saves the
        file.
        """
        if epoch < 0 or (self.entries and self.entries[-1][0] == epoch and self.entries[-1][1] <= start_offset):
            return
        self._enter(epoch, start_offset)
        self.save()

    def begin(self, epoch: int, start_offset: int) -> None:
        """Assigns `epoch` like `assign`, but leaves the saving to the first batch of the epoch (`save_unsaved`).

        A broker that becomes the leader of a thousand partitions at once must not write a thousand files before it
        serves.
        """
        if epoch < 0 or (self.entries and self.entries[-1][0] == epoch and self.entries[-1][1] <= start_offset):
            return
        self._enter(epoch, start_offset)
        self.unsaved = True

    def _enter(self, epoch: int, start_offset: int) -> None:
        kept = [entry for entry in self.entries if entry[0] < epoch and entry[1] < start_offset]
        self.entries = [*kept, (epoch, start_offset)]

    def replay(self, batches: Iterable[tuple[int, int]], start_offset: int, end_offset: int) -> None:
        """Replaces the entries between two offsets by the epochs of the batches there, given as (epoch, base offset).

        An epoch that starts at `end_offset` stays: nothing was written in it yet.
        """
        previous = self.entries
        self.entries = [entry for entry in previous if entry[1] < start_offset]
        for epoch, base_offset in without_decreasing_epochs(batches):
            if epoch > self.latest:
                self._enter(epoch, base_offset)
        for epoch, start in previous:
            if start == end_offset and epoch > self.latest:
                self._enter(epoch, start)
        if self.entries != previous:
            self.save()

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Returns (epoch, end offset) for OffsetForLeaderEpoch (LOG-31), (-1, -1) if the epoch is unknown."""
        if epoch == -1 or not self.entries or epoch > self.latest:
            return UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        after = bisect_right(self.entries, epoch, key=lambda entry: entry[0])
        if after == 0:
            return epoch, self.entries[0][1]
        return self.entries[after - 1][0], self.entries[after][1]

    def epoch_at(self, offset: int) -> int:
        """Returns the epoch of the batch at `offset`, -1 if unknown."""
        after = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[after - 1][0] if after else -1

    def truncate_end(self, offset: int) -> None:
        """Removes the entries at or above `offset`, the new log end offset."""
        if self.entries and self.entries[-1][1] >= offset:
            self.entries = [entry for entry in self.entries if entry[1] < offset]
            self.save()

    def truncate_start(self, offset: int) -> None:
        """Removes obsolete entries below the new log start offset and raises the first remaining one to it."""
        at = bisect_right(self.entries, offset, key=lambda entry: entry[1]) - 1
        if at >= 0 and (at > 0 or self.entries[0][1] < offset):
            self.entries = [(self.entries[at][0], offset), *self.entries[at + 1 :]]
            self.save()

    def clear(self) -> None:
        """Removes all entries, for a log that starts empty again."""
        if self.entries:
            self.entries = []
            self.save()

    def save(self) -> None:
        # Not fsynced before the log is: recovery takes the epochs of unflushed records from the batches.
        self.unsaved = True
        write_atomically(Path(self.path), render_lines(self.entries), self._root, durable=False)
        self.saves += 1
        self.unsaved = False

    def save_unsaved(self) -> None:
        """Saves pending epochs before a batch is written, before a flush and before a clean stop.

        Raises StorageFailed.
        """
        if self.unsaved:
            self.save()

    def load(self) -> bool:
        """Reads the file and returns True if it has any epoch; an unreadable file counts as empty."""
        try:
            rows = parse_lines(Path(self.path), 2, self._root)
            entries = [(int(epoch), int(start)) for epoch, start in rows]
        except (UnreadableCheckpoint, ValueError):
            entries = []
            self.is_damaged = True
        increasing = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))
        self.entries = entries if increasing else []
        self.is_damaged |= not increasing
        return bool(self.entries)
