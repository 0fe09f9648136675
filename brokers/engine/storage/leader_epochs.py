"""Which leader epoch began at which offset (LOG-30, LOG-31, LOG-33), and its file `leader-epoch-checkpoint`.

Strictly increasing in both; a list of pairs, because a partition sees few epochs in a lifetime of segments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Final

from brokers.engine.storage.checkpoints import Unreadable, parse_lines, render_lines
from brokers.engine.storage.files import write_atomically

FILE_NAME: Final = "leader-epoch-checkpoint"
UNDEFINED: Final = (-1, -1)


def never_falling(batches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of (epoch, base offset) of each batch, each epoch where it begins, and none that falls.

    Epochs of a log never fall, and a batch's is under no checksum: where one does, a bit of those has flipped that are
    told by fewer batches.
    """
    runs: list[tuple[int, int, int]] = []  # and by how many batches
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
    """The cache of one partition. Saved before a batch that it tells of is written; a lost file is rebuilt from the
    batches.
    """

    __slots__ = ("_directory", "_root", "entries", "is_damaged", "saves", "unsaved")

    def __init__(self, directory: str, root: Path) -> None:
        self._directory = directory
        self._root = root
        self.entries: list[tuple[int, int]] = []
        self.saves = 0  # since the log was opened
        self.unsaved = False
        self.is_damaged = False  # what the file held when it was loaded was no list of epochs

    @property
    def path(self) -> str:
        return f"{self._directory}/{FILE_NAME}"

    @property
    def latest(self) -> int:
        return self.entries[-1][0] if self.entries else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """From `start_offset` on batches carry `epoch`. Entries that this contradicts go."""
        if epoch < 0 or (self.entries and self.entries[-1][0] == epoch and self.entries[-1][1] <= start_offset):
            return
        self._enter(epoch, start_offset)
        self.save()

    def begin(self, epoch: int, start_offset: int) -> None:
        """As `assign`, to be saved with the first batch of the epoch (`save_unsaved`): a broker that comes to lead a
        thousand partitions at once must not write a thousand files before it serves.
        """
        if epoch < 0 or (self.entries and self.entries[-1][0] == epoch and self.entries[-1][1] <= start_offset):
            return
        self._enter(epoch, start_offset)
        self.unsaved = True

    def _enter(self, epoch: int, start_offset: int) -> None:
        kept = [entry for entry in self.entries if entry[0] < epoch and entry[1] < start_offset]
        self.entries = [*kept, (epoch, start_offset)]

    def replay(self, batches: Iterable[tuple[int, int]], start_offset: int, end_offset: int) -> None:
        """From `start_offset` to `end_offset` the batches, as (epoch, base offset), are right and not the file; of what
        it tells stays an epoch in which nothing was written yet.
        """
        previous = self.entries
        self.entries = [entry for entry in previous if entry[1] < start_offset]
        for epoch, base_offset in never_falling(batches):
            if epoch > self.latest:
                self._enter(epoch, base_offset)
        for epoch, start in previous:
            if start == end_offset and epoch > self.latest:
                self._enter(epoch, start)
        if self.entries != previous:
            self.save()

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) for OffsetForLeaderEpoch (LOG-31); (-1, -1) when unknown. Any but -1 may be asked for."""
        if epoch == -1 or not self.entries or epoch > self.latest:
            return UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        after = bisect_right(self.entries, epoch, key=lambda entry: entry[0])
        if after == 0:
            return epoch, self.entries[0][1]
        return self.entries[after - 1][0], self.entries[after][1]

    def epoch_at(self, offset: int) -> int:
        """The epoch of the batch at `offset`, -1 if unknown."""
        after = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[after - 1][0] if after else -1

    def truncate_end(self, offset: int) -> None:
        """The log now ends at `offset`."""
        if self.entries and self.entries[-1][1] >= offset:
            self.entries = [entry for entry in self.entries if entry[1] < offset]
            self.save()

    def truncate_start(self, offset: int) -> None:
        """The log now starts at `offset`: obsolete entries go and the first one left is lifted to it."""
        at = bisect_right(self.entries, offset, key=lambda entry: entry[1]) - 1
        if at >= 0 and (at > 0 or self.entries[0][1] < offset):
            self.entries = [(self.entries[at][0], offset), *self.entries[at + 1 :]]
            self.save()

    def clear(self) -> None:
        """The log begins again."""
        if self.entries:
            self.entries = []
            self.save()

    def save(self) -> None:
        # Not fsynced, until the log is: recovery reads the epochs of what was not flushed out of the batches.
        self.unsaved = True
        write_atomically(Path(self.path), render_lines(self.entries), self._root, durable=False)
        self.saves += 1
        self.unsaved = False

    def save_unsaved(self) -> None:
        """Before a batch is written, and before a flush or a clean stop. Raises StorageFailed."""
        if self.unsaved:
            self.save()

    def load(self) -> bool:
        """Reads the file; an unreadable one counts as empty. Whether it told of any epoch."""
        try:
            rows = parse_lines(Path(self.path), 2, self._root)
            entries = [(int(epoch), int(start)) for epoch, start in rows]
        except (Unreadable, ValueError):
            entries = []
            self.is_damaged = True
        increasing = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))
        self.entries = entries if increasing else []
        self.is_damaged |= not increasing
        return bool(self.entries)
