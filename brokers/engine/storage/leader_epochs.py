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
UNDEFINED_EPOCH: Final = (-1, -1)


def without_decreasing_epochs(batches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the first base offset of each epoch, from the (epoch, base offset) of each batch, without epochs that
    decrease.

    Epochs of a log never decrease, but no checksum covers the epoch of a batch. Where one decreases, a bit has flipped
    in the run with fewer batches, which is left out.
    """
    runs: list[tuple[int, int, int]] = []  # (epoch, base offset, number of batches)
    increasing_runs: list[tuple[int, int, int]] = []
    for epoch, base_offset in batches:
        if runs and runs[-1][0] == epoch:
            runs[-1] = (epoch, runs[-1][1], runs[-1][2] + 1)
        else:
            runs.append((epoch, base_offset, 1))
    for epoch, base_offset, count in runs:
        run_number = len(increasing_runs)
        while run_number and increasing_runs[run_number - 1][0] > epoch:
            run_number -= 1
        if sum(batch_count for _, _, batch_count in increasing_runs[run_number:]) > count:
            continue
        del increasing_runs[run_number:]
        if increasing_runs and increasing_runs[-1][0] == epoch:
            base_offset, count = increasing_runs[-1][1], increasing_runs[-1][2] + count
            increasing_runs.pop()
        increasing_runs.append((epoch, base_offset, count))
    return [(epoch, base_offset) for epoch, base_offset, _ in increasing_runs]


class LeaderEpochs:
    """Leader epoch cache of one partition.

    An epoch is saved before its first batch is written; a lost file is rebuilt from the batches.
    """

    __slots__ = ("_directory", "_root", "entries", "has_unsaved", "is_damaged", "saves")

    def __init__(self, directory: str, root: Path) -> None:
        self._directory = directory
        self._root = root
        self.entries: list[tuple[int, int]] = []
        self.saves = 0  # number of saves since the log was opened or last flushed
        self.has_unsaved = False
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
        self._add_entry(epoch, start_offset)
        self.save()

    def assign_unsaved(self, epoch: int, start_offset: int) -> None:
        """Assigns `epoch` like `assign`, without saving: the append of its first batch saves it (`save_unsaved`).

        A broker that becomes the leader of a thousand partitions at once must not write a thousand files before it
        serves.
        """
        if epoch < 0 or (self.entries and self.entries[-1][0] == epoch and self.entries[-1][1] <= start_offset):
            return
        self._add_entry(epoch, start_offset)
        self.has_unsaved = True

    def _add_entry(self, epoch: int, start_offset: int) -> None:
        earlier_entries = [entry for entry in self.entries if entry[0] < epoch and entry[1] < start_offset]
        self.entries = [*earlier_entries, (epoch, start_offset)]

    def replay(self, batches: Iterable[tuple[int, int]], start_offset: int, end_offset: int) -> None:
        """Replaces the entries between two offsets by the epochs of the batches there, given as (epoch, base offset).

        An epoch that starts at `end_offset` stays: nothing was written in it yet.
        """
        previous_entries = self.entries
        self.entries = [entry for entry in previous_entries if entry[1] < start_offset]
        for epoch, base_offset in without_decreasing_epochs(batches):
            if epoch > self.latest:
                self._add_entry(epoch, base_offset)
        for epoch, start in previous_entries:
            if start == end_offset and epoch > self.latest:
                self._add_entry(epoch, start)
        if self.entries != previous_entries:
            self.save()

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Returns (epoch, end offset) for OffsetForLeaderEpoch (LOG-31), (-1, -1) if the epoch is unknown."""
        if epoch == -1 or not self.entries or epoch > self.latest:
            return UNDEFINED_EPOCH
        if epoch == self.latest:
            return epoch, log_end_offset
        number = bisect_right(self.entries, epoch, key=lambda entry: entry[0])
        if number == 0:
            return epoch, self.entries[0][1]
        return self.entries[number - 1][0], self.entries[number][1]

    def epoch_at(self, offset: int) -> int:
        """Returns the epoch of the batch at `offset`, -1 if unknown."""
        number = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[number - 1][0] if number else -1

    def truncate_end(self, offset: int) -> None:
        """Removes the entries at or above `offset`, the new log end offset."""
        if self.entries and self.entries[-1][1] >= offset:
            self.entries = [entry for entry in self.entries if entry[1] < offset]
            self.save()

    def truncate_start(self, offset: int) -> None:
        """Removes obsolete entries below the new log start offset and raises the first remaining one to it."""
        number = bisect_right(self.entries, offset, key=lambda entry: entry[1]) - 1
        if number >= 0 and (number > 0 or self.entries[0][1] < offset):
            self.entries = [(self.entries[number][0], offset), *self.entries[number + 1 :]]
            self.save()

    def clear(self) -> None:
        """Removes all entries, for a log that starts empty again."""
        if self.entries:
            self.entries = []
            self.save()

    def save(self) -> None:
        # Not fsynced before the log is: recovery takes the epochs of unflushed records from the batches.
        self.has_unsaved = True
        write_atomically(Path(self.path), render_lines(self.entries), self._root, durable=False)
        self.saves += 1
        self.has_unsaved = False

    def save_unsaved(self) -> None:
        """Saves pending epochs before a batch is written, before a flush and before a clean stop.

        Raises StorageFailed.
        """
        if self.has_unsaved:
            self.save()

    def load(self) -> bool:
        """Reads the file and returns True if it has any epoch; an unreadable file counts as empty."""
        try:
            rows = parse_lines(Path(self.path), 2, self._root)
            entries = [(int(epoch), int(start)) for epoch, start in rows]
        except (UnreadableCheckpoint, ValueError):
            entries = []
            self.is_damaged = True
        is_increasing = all(
            entry[0] < next_entry[0] and entry[1] < next_entry[1] for entry, next_entry in pairwise(entries)
        )
        self.entries = entries if is_increasing else []
        self.is_damaged |= not is_increasing
        return bool(self.entries)
