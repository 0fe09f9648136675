"""Promises of the cluster to its clients: each committed batch stays for ever.

A batch counts as committed as soon as a leader's high watermark, an acknowledgement or a consumer shows it. From then
on no other batch may be at its offsets.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.simulation.cluster.records import StoredBatch

# An offset above all others.
NOWHERE: Final = 1 << 62


class BrokenPromise(AssertionError):
    pass


class Expected(NamedTuple):
    crc: int
    client: str


class Promises:
    """Promises by partition: committed batches without a hole from offset 0, and batches that must become committed."""

    def __init__(self, partitions: int) -> None:
        self.committed: list[list[StoredBatch]] = [[] for _ in range(partitions)]
        self._batches_by_offset: list[dict[int, StoredBatch]] = [{} for _ in range(partitions)]
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

    def note_sent(self, index: int, crc: int) -> None:
        self._sent[index].add(crc)

    def start_max(self, index: int) -> int:
        """Returns the maximum start of a log."""
        return self._starts_max[index] if self.is_kept else self.end(index)

    def note_deletion_request(self, index: int, offset: int) -> None:
        """Notes a request to delete everything below an offset, which may or may not be carried out."""
        self._starts_max[index] = max(self._starts_max[index], offset)

    def note_deletion(self, index: int, offset: int, client: str) -> None:
        """Notes an acknowledged deletion of all records below an offset."""
        if offset > self.start_max(index):
            raise BrokenPromise(
                f"{client} is told that partition {index} starts at {offset}, beyond all requested deletions"
            )
        self.starts_min[index] = max(self.starts_min[index], (offset, client))

    def note_acknowledgement(self, index: int, base_offset: int, crc: int, client: str) -> None:
        """Notes an acknowledgement to a producer with acks=all."""
        self.acknowledgements += 1
        self._expect_batch(index, base_offset, crc, f"{client} was told")

    def note_read(self, index: int, position: int, batch: StoredBatch, client: str) -> None:
        """Notes a batch that a consumer at `position` read."""
        if batch.base_offset > position:
            raise BrokenPromise(f"{client} at {index}:{position} gets {batch}, after a gap")
        self._expect_batch(index, batch.base_offset, batch.crc, f"{client} read")

    def _expect_batch(self, index: int, base_offset: int, crc: int, client: str) -> None:
        batch = self._batches_by_offset[index].get(base_offset)
        if batch is not None:
            self._compare(index, batch, Expected(crc, client))
        elif base_offset < self.end(index):
            raise BrokenPromise(f"{client} {crc:08x} at {index}:{base_offset}, which is within another batch")
        else:
            earlier = self._expected[index].setdefault(base_offset, Expected(crc, client))
            if earlier.crc != crc:
                raise BrokenPromise(
                    f"{client} {crc:08x} at {index}:{base_offset}, but {earlier.client} {earlier.crc:08x}"
                )

    def _compare(self, index: int, batch: StoredBatch, expected: Expected) -> None:
        if batch.crc != expected.crc:
            raise BrokenPromise(
                f"{expected.client} {expected.crc:08x} at {index}:{batch.base_offset}, which holds {batch}"
            )

    def commit(self, index: int, batch: StoredBatch, client: str) -> None:
        """Notes the next batch below a leader's high watermark."""
        end = self.end(index)
        if batch.base_offset != end:
            raise BrokenPromise(
                f"{client} holds {batch} in partition {index}, where offset {end} comes next: offsets are not dense"
            )
        if batch.crc not in self._sent[index]:
            raise BrokenPromise(f"{client} holds {batch} in partition {index}, which was never sent")
        expected = self._expected[index].pop(end, None)
        if expected is not None:
            self._compare(index, batch, expected)
        if batch.producer_id >= 0:
            key = (index, batch.producer_id)
            following = self._next_sequence.get(key, 0)
            if batch.base_sequence != following and not self._is_forgotten(key):
                raise BrokenPromise(
                    f"{client} holds {batch} in partition {index}, where sequence number {following} comes next"
                )
            self._next_sequence[key] = batch.base_sequence + batch.last_offset - batch.base_offset + 1
            self._last_offset[key] = batch.last_offset
        self.committed[index].append(batch)
        self._batches_by_offset[index][batch.base_offset] = batch

    def _is_forgotten(self, key: tuple[int, int]) -> bool:
        """True if no record of a producer is left, so that any sequence number is accepted next (KIP-360)."""
        return self._last_offset.get(key, NOWHERE) < self.starts_seen[key[0]]

    def confirm(self, index: int, batch: StoredBatch, client: str) -> None:
        """Checks a batch below a replica's high watermark against the committed ones."""
        committed = self._batches_by_offset[index].get(batch.base_offset)
        if committed is None or committed != batch:
            raise BrokenPromise(f"{client} holds {batch} in partition {index}, but {committed} is committed")

    def check_nothing_open(self) -> None:
        """Checks at the end that everything acknowledged or read is committed."""
        for index, expected in enumerate(self._expected):
            for base_offset, (crc, client) in expected.items():
                raise BrokenPromise(
                    f"{client} {crc:08x} at {index}:{base_offset}, which is lost: the log ends at {self.end(index)}"
                )
