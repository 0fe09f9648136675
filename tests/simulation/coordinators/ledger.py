"""Committed batches of the partitions that transactions write to, as their leaders show them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from brokers.engine.partitions.partition import Partition
from brokers.engine.records import batch as layout
from brokers.engine.records.builder import read_records
from brokers.engine.records.control import COMMIT, read_marker
from tests.simulation.cluster.broker import Host, Process
from tests.simulation.cluster.disks import Disks
from tests.simulation.cluster.promises import BrokenPromise

READ_BYTES: Final = 1 << 16


class Entry(NamedTuple):
    """A batch. `committed` is the outcome in a marker, None for data; `values` are those of its records."""

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    committed: bool | None
    coordinator_epoch: int
    values: tuple[bytes, ...]

    def __str__(self) -> str:
        if self.committed is not None:
            kind = f"{'commit' if self.committed else 'abort'} by coordinator epoch {self.coordinator_epoch}"
        else:
            kind = f"{[value.decode() for value in self.values]}"
        return f"{self.base_offset}: {kind} of producer {self.producer_id} epoch {self.producer_epoch}"


def parse(data: bytes | memoryview) -> list[Entry]:
    """Parses the complete batches at the start of `data`."""
    result, position = [], 0
    while position + layout.HEADER_BYTES <= len(data):
        header = layout.read_header(data, position)
        end = position + header.size_bytes
        if end > len(data):
            break
        batch = memoryview(data)[position:end]
        marker = read_marker(batch) if header.is_control else None
        values = () if header.is_control else tuple(record.value or b"" for _, record in read_records(batch))
        result.append(
            Entry(
                header.base_offset,
                header.last_offset,
                header.producer_id,
                header.producer_epoch,
                header.is_transactional,
                None if marker is None else marker.kind == COMMIT,
                -1 if marker is None else marker.coordinator_epoch,
                values,
            )
        )
        position = end
    return result


class Ledger:
    """Committed batches of `topic`; `on_entry(index, entry)` is called once for each, in order."""

    def __init__(self, topic: str, partitions: int, disks: Disks, on_entry: Callable[[int, Entry], object]) -> None:
        self.topic = topic
        self.entries: list[list[Entry]] = [[] for _ in range(partitions)]
        self._disks = disks
        self._on_entry = on_entry

    def end(self, index: int) -> int:
        entries = self.entries[index]
        return entries[-1].last_offset + 1 if entries else 0

    def check_invariants(self, hosts: Iterable[Host]) -> None:
        for host in hosts:
            process = host.process
            if process is None or process.loop.is_paused:
                continue
            for index, entries in enumerate(self.entries):
                partition = process.table.get(self.topic, index)
                if partition is None or partition.offline or not partition.is_leader:
                    continue
                end = self.end(index)
                if partition.high_watermark > end:
                    for entry in self.read(process, partition, end, partition.high_watermark):
                        entries.append(entry)
                        self._on_entry(index, entry)

    def read(self, process: Process, partition: Partition, start: int, until: int) -> list[Entry]:
        """Returns the batches of a log from offset `start` to offset `until`."""
        result: list[Entry] = []
        self._disks.current = process.host.disk
        try:
            while start < until:
                piece = partition.log.read(start, READ_BYTES, until, min_one_batch=True, may_wait=True)
                if piece is None:
                    raise BrokenPromise(f"b{process.id} has no batch at {partition.index}:{start}, below {until}")
                batches = parse(os.pread(piece.fd, piece.length, piece.position))
                piece.release()
                result += [entry for entry in batches if entry.base_offset >= start]
                start = batches[-1].last_offset + 1
        finally:
            self._disks.current = None
        return result

    def compare(self, process: Process, index: int) -> None:
        """Checks at the end that a whole log consists of the committed batches."""
        partition = process.table.get(self.topic, index)
        assert partition is not None
        if self.read(process, partition, partition.log_start_offset, partition.log_end_offset) != self.entries[index]:
            raise BrokenPromise(f"the log of partition {index} on b{process.id} differs from the committed batches")
