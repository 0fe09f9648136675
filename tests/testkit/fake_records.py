"""In-memory record log of topics: values in lists, which are read as batches."""

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

    A chunk has up to `records_per_batch` records in each of two batches. The next `lost_writes` writes have an unknown
    outcome; they are stored if `stores_lost_writes`.
    """

    data_plane: DataPlane
    logs: dict[tuple[str, str], Log] = field(default_factory=dict)
    first_offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    records_per_batch: int = 2
    lost_writes: int = 0
    stores_lost_writes: bool = True
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
        for index, values in self.logs[instance_id, topic].items():
            values += [b"%d-%d" % (index, number) for number in range(per_partition)]


@dataclass
class FakeTopicRecords:
    store: FakeRecords
    instance_id: str
    topic: str
    log: Log

    def bounds(self) -> Mapping[int, tuple[int, int]]:
        return {index: (self._first(index), len(values)) for index, values in self.log.items()}

    def end(self, partition: int) -> int:
        return len(self.log[partition])

    def read(self, partition: int, start: int, stop: int, *, batch_bytes_max: int) -> Chunk:
        self.store.reads += 1
        self.store.batch_bytes_max = batch_bytes_max
        if self.store.trouble:
            raise self.store.trouble
        self.store.data_plane.topic(self.instance_id, self.topic)
        first_offset = self._first(partition)
        if start < first_offset:
            return Chunk(next_offset=min(first_offset, stop), missed_offsets=min(first_offset, stop) - start)
        batches = []
        offset = start
        for _ in range(2):
            records = self.log[partition][offset : min(offset + self.store.records_per_batch, stop)]
            if records:
                offset += len(records)
                batches.append(CopiedBatch(data=b",".join(records), records=len(records), next_offset=offset))
        return Chunk(batches=tuple(batches), next_offset=offset, read_bytes=sum(len(batch.data) for batch in batches))

    def append(self, partition: int, data: bytes) -> int:
        if self.store.refused:
            raise self.store.refused
        is_lost = self.store.lost_writes > 0
        first = len(self.log[partition])
        if not is_lost or self.store.stores_lost_writes:
            self.log[partition] += data.split(b",")
        if is_lost:
            self.store.lost_writes -= 1
            raise OutcomeUnknown
        return first

    def _first(self, partition: int) -> int:
        return self.store.first_offsets.get((self.instance_id, self.topic, partition), 0)
