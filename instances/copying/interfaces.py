"""Stored records of a topic, as an interface that `brokers` implements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tenants.interfaces import Interface


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedBatch:
    """Batch ready to be written: the same records in the same order, with keys, values, headers and timestamps.

    `next_offset` is the source's offset after its last record.
    """

    data: bytes
    records: int
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Records of one read of a partition. `next_offset` is where the next read begins.

    `skipped_records` are those of batches that cannot be read, `missed_offsets` were deleted before they were read.
    Records of aborted transactions and markers are in neither.
    """

    batches: Sequence[CopiedBatch] = ()
    next_offset: int
    read_bytes: int = 0
    skipped_records: int = 0
    missed_offsets: int = 0

    @property
    def records(self) -> int:
        return sum(batch.records for batch in self.batches)


class RecordLog(Protocol):
    """Records of one topic, read and written as the instance's owner; the bytes count against the instance's bandwidth.

    Raises `NotFound` for an unknown topic, and `Unavailable` if no broker answers.
    """

    def bounds(self) -> Mapping[int, tuple[int, int]]:
        """Returns first offset and last stable offset of every partition."""
        ...

    def end(self, partition: int) -> int:
        """Returns the next offset of a partition."""
        ...

    def read(self, partition: int, start: int, stop: int, *, batch_bytes_max: int) -> Chunk:
        """Returns committed records of `[start, stop)`, of at most `COPY_READ_BYTES_MAX` or one batch."""
        ...

    def append(self, partition: int, data: bytes) -> int:
        """Stores one batch and returns its first offset. Raises the error of a refusal, and `OutcomeUnknown`."""
        ...


# Takes (instance id, topic): returns the log of the topic.
record_log: Interface[Callable[[str, str], RecordLog]] = Interface("instances.copying.interfaces.record_log")
