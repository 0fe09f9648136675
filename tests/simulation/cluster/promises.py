"""Promises of the cluster to its clients: each committed batch stays for ever.

A batch counts as committed as soon as a leader's high watermark, an acknowledgement or a consumer shows it. From then
on no other batch may be at its offsets.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.simulation.cluster.records import Held

# An offset above all others.
NOWHERE: Final = 1 << 62


class BrokenPromise(AssertionError):
    pass


class Expected(NamedTuple):
    crc: int
    who: str


class Promises:
    """Promises by partition: committed batches without a hole from offset 0, and batches that must become committed."""

    def __init__(self, partitions: int) -> None:
        self.committed: list[list[Held]] = [[] for _ in range(partitions)]
        self._at: list[dict[int, Held]] = [{} for _ in range(partitions)]
        self._expected: list[dict[int, Expected]] = [{} for _ in range(partitions)]
        self._sent: list[set[int]] = [set() for _ in range(partitions)]
        self._next_sequence: dict[tuple[int, int], int] = {}
        self._last_offset: dict[tuple[int, int], int] = {}
        # Maximum start of a log, as requested by deleters; and minimum start, with the client that it was reported to.
        self._starts_max = [0] * partitions
        self.starts_min = [(0, "nobody")] * partitions
        self.acknowledgements = 0
        # Highest start of any log so far.
        self.starts_seen = [0] * partitions
        # False if retention may delete committed batches.
        self.is_kept = True

    def end(self, index: int) -> int:
        committed = self.committed[index]
        return committed[-1].last_offset + 1 if committed else 0

    def sent(self, index: int, crc: int) -> None:
        self._sent[index].add(crc)

    def start_max(self, index: int) -> int:
        """Returns the maximum start of a log."""
        return self._starts_max[index] if self.is_kept else self.end(index)

    def given_up(self, index: int, offset: int) -> None:
        """Notes a request to delete everything below an offset, which may or may not be carried out."""
        self._starts_max[index] = max(self._starts_max[index], offset)

    def gone(self, index: int, offset: int, who: str) -> None:
        """Notes an acknowledged deletion of all records below an offset."""
        if offset > self.start_max(index):
            raise BrokenPromise(
                f"{who} is told that partition {index} starts at {offset}, beyond all requested deletions"
            )
        self.starts_min[index] = max(self.starts_min[index], (offset, who))

    def acknowledged(self, index: int, base_offset: int, crc: int, who: str) -> None:
        """Notes an acknowledgement to a producer with acks=all."""
        self.acknowledgements += 1
        self._expect(index, base_offset, crc, f"{who} was told")

    def read(self, index: int, position: int, held: Held, who: str) -> None:
        """Notes a batch that a consumer at `position` read."""
        if held.base_offset > position:
            raise BrokenPromise(f"{who} at {index}:{position} gets {held}, after a gap")
        self._expect(index, held.base_offset, held.crc, f"{who} read")

    def _expect(self, index: int, base_offset: int, crc: int, who: str) -> None:
        held = self._at[index].get(base_offset)
        if held is not None:
            self._compare(index, held, Expected(crc, who))
        elif base_offset < self.end(index):
            raise BrokenPromise(f"{who} {crc:08x} at {index}:{base_offset}, which is within another batch")
        else:
            known = self._expected[index].setdefault(base_offset, Expected(crc, who))
            if known.crc != crc:
                raise BrokenPromise(f"{who} {crc:08x} at {index}:{base_offset}, but {known.who} {known.crc:08x}")

    def _compare(self, index: int, held: Held, expected: Expected) -> None:
        if held.crc != expected.crc:
            raise BrokenPromise(f"{expected.who} {expected.crc:08x} at {index}:{held.base_offset}, which holds {held}")

    def commit(self, index: int, held: Held, who: str) -> None:
        """Notes the next batch below a leader's high watermark."""
        end = self.end(index)
        if held.base_offset != end:
            raise BrokenPromise(
                f"{who} holds {held} in partition {index}, where offset {end} comes next: offsets are not dense"
            )
        if held.crc not in self._sent[index]:
            raise BrokenPromise(f"{who} holds {held} in partition {index}, which was never sent")
        expected = self._expected[index].pop(end, None)
        if expected is not None:
            self._compare(index, held, expected)
        if held.producer_id >= 0:
            key = (index, held.producer_id)
            following = self._next_sequence.get(key, 0)
            if held.base_sequence != following and not self._is_forgotten(key):
                raise BrokenPromise(
                    f"{who} holds {held} in partition {index}, where sequence number {following} comes next"
                )
            self._next_sequence[key] = held.base_sequence + held.last_offset - held.base_offset + 1
            self._last_offset[key] = held.last_offset
        self.committed[index].append(held)
        self._at[index][held.base_offset] = held

    def _is_forgotten(self, key: tuple[int, int]) -> bool:
        """True if no record of a producer is left, so that any sequence number is accepted next (KIP-360)."""
        return self._last_offset.get(key, NOWHERE) < self.starts_seen[key[0]]

    def confirm(self, index: int, held: Held, who: str) -> None:
        """Checks a batch below a replica's high watermark against the committed ones."""
        known = self._at[index].get(held.base_offset)
        if known is None or known != held:
            raise BrokenPromise(f"{who} holds {held} in partition {index}, but {known} is committed")

    def nothing_open(self) -> None:
        """Checks at the end that everything acknowledged or read is committed."""
        for index, expected in enumerate(self._expected):
            for base_offset, (crc, who) in expected.items():
                raise BrokenPromise(
                    f"{who} {crc:08x} at {index}:{base_offset}, which is lost: the log ends at {self.end(index)}"
                )
