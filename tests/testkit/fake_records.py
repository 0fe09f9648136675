"""The port to stored records, kept in lists: batches as bytes with their number of records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from instances.copying.interfaces import Chunk, CopiedBatch
from instances.interfaces import DataPlane
from tenants.errors import DomainError, OutcomeUnknown

Log = dict[int, list[bytes]]


@dataclass
class FakeRecords:
    """Implements `instances.copying.interfaces.record_log`.

    A chunk has up to `per_batch` records in each of two batches. `lost` writes are stored or not
    (`stores_what_is_lost`), and not answered.
    """

    data_plane: DataPlane
    logs: dict[tuple[str, str], Log] = field(default_factory=dict)
    first_offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    per_batch: int = 2
    lost: int = 0
    stores_what_is_lost: bool = True
    refused: DomainError | None = None
    trouble: DomainError | None = None
    reads: int = 0
    # Batch size of the last read.
    batch_bytes_max: int = 0

    def __call__(self, instance_id: str, topic: str) -> FakeTopicRecords:
        partitions = self.data_plane.topic(instance_id, topic).partitions
        log = self.logs.setdefault((instance_id, topic), {})
        for partition in partitions:
            log.setdefault(partition.index, [])
        return FakeTopicRecords(self, instance_id, topic, log)

    def fill(self, instance_id: str, topic: str, per_partition: int) -> None:
        self(instance_id, topic)
        for index, kept in self.logs[instance_id, topic].items():
            kept += [b"%d-%d" % (index, number) for number in range(per_partition)]


@dataclass
class FakeTopicRecords:
    kept: FakeRecords
    instance_id: str
    topic: str
    log: Log

    def bounds(self) -> Mapping[int, tuple[int, int]]:
        return {index: (self._first(index), len(kept)) for index, kept in self.log.items()}

    def end(self, partition: int) -> int:
        return len(self.log[partition])

    def read(self, partition: int, start: int, stop: int, *, batch_bytes_max: int) -> Chunk:
        self.kept.reads += 1
        self.kept.batch_bytes_max = batch_bytes_max
        if self.kept.trouble:
            raise self.kept.trouble
        self.kept.data_plane.topic(self.instance_id, self.topic)
        first = self._first(partition)
        if start < first:
            return Chunk(next_offset=min(first, stop), missed_offsets=min(first, stop) - start)
        batches = []
        at = start
        for _ in range(2):
            records = self.log[partition][at : min(at + self.kept.per_batch, stop)]
            if records:
                at += len(records)
                batches.append(CopiedBatch(data=b",".join(records), records=len(records), next_offset=at))
        return Chunk(batches=tuple(batches), next_offset=at, read_bytes=sum(len(batch.data) for batch in batches))

    def append(self, partition: int, data: bytes) -> int:
        if self.kept.refused:
            raise self.kept.refused
        is_lost = self.kept.lost > 0
        first = len(self.log[partition])
        if not is_lost or self.kept.stores_what_is_lost:
            self.log[partition] += data.split(b",")
        if is_lost:
            self.kept.lost -= 1
            raise OutcomeUnknown
        return first

    def _first(self, partition: int) -> int:
        return self.kept.first_offsets.get((self.instance_id, self.topic, partition), 0)
