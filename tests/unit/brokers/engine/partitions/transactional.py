"""Transactional batches, and a read_committed reader that drops aborted records like clients (TXN-21)."""

from __future__ import annotations

from brokers.engine.partitions import transactions
from brokers.engine.partitions.partition import READ_COMMITTED, Partition
from brokers.engine.partitions.producers import AbortedByPartition, list_aborted
from brokers.engine.partitions.results import AppendResult
from brokers.engine.partitions.transactions import append_marker
from brokers.engine.records import batch as layout
from brokers.engine.records.builder import Record, build_batch, read_records
from brokers.engine.records.control import ABORT, read_marker

NOW_MS = 1_700_000_000_000
KEY = b"orders"
TOPIC_ID = bytes(range(16))


def of_transaction(
    producer_id: int, sequence: int, *values: bytes, epoch: int = 0, transactional: bool = True
) -> memoryview:
    return memoryview(
        build_batch(
            [Record(NOW_MS, None, value) for value in values or (b"v",)],
            attributes=layout.TRANSACTIONAL if transactional else 0,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
    )


def verified(partition: Partition, producer_id: int, sequence: int = 0, epoch: int = 0) -> int:
    """Returns the token of a successful verification."""
    return transactions.begin_verification(partition, producer_id, epoch, sequence, NOW_MS)


def append(partition: Partition, data: memoryview, verification_token: int, *, acks: int = 1) -> AppendResult:
    return partition.append(data, NOW_MS, acks=acks, produce_version=9, verification_token=verification_token)


def write(partition: Partition, producer_id: int, sequence: int, *values: bytes, epoch: int = 0) -> AppendResult:
    """Appends a batch of a transaction that the coordinator confirmed."""
    verification_token = verified(partition, producer_id, sequence, epoch)
    return append(partition, of_transaction(producer_id, sequence, *values, epoch=epoch), verification_token)


def end(
    partition: Partition, producer_id: int, *, committed: bool, epoch: int = 0, coordinator_epoch: int = 0
) -> AppendResult:
    return append_marker(partition, producer_id, epoch, coordinator_epoch, committed, NOW_MS)


def committed_records(
    partition: Partition, offset: int = 0, *, max_bytes: int = 1 << 20
) -> list[tuple[int, bytes | None]]:
    """Returns (offset, value) of all records that a read_committed client passes to its application from `offset`
    on.
    """
    shown: list[tuple[int, bytes | None]] = []
    while True:
        result = partition.read(offset, max_bytes, min_one_batch=True, isolation=READ_COMMITTED)
        assert result.error_code == 0, result
        if result.slice is None:
            return shown
        listed: AbortedByPartition = {}
        list_aborted(listed, KEY, partition, offset, result.slice, True)
        data = result.slice.read()
        result.slice.release()
        more, offset = _shown(
            data, sorted(listed[KEY, partition.index], key=lambda transaction: transaction[1]), offset
        )
        shown += more


def _shown(data: bytes, aborted: list[tuple[int, int]], offset: int) -> tuple[list[tuple[int, bytes | None]], int]:
    shown: list[tuple[int, bytes | None]] = []
    dropped: set[int] = set()
    for position, header in layout.scan_headers(data):
        batch = data[position : position + header.size_bytes]
        while aborted and aborted[0][1] <= header.last_offset:
            dropped.add(aborted.pop(0)[0])
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and marker.kind == ABORT:
                dropped.discard(header.producer_id)
        elif not header.is_transactional or header.producer_id not in dropped:
            shown += [(at, record.value) for at, record in read_records(batch) if at >= offset]
        offset = max(offset, header.next_offset)
    return shown, offset


def aborted(partition: Partition, offset: int = 0, max_bytes: int = 1 << 20) -> list[tuple[int, int]] | None:
    """Returns the aborted transactions that a fetch from `offset` lists; None if there is nothing to read."""
    result = partition.read(offset, max_bytes, min_one_batch=True, isolation=READ_COMMITTED)
    if result.slice is None:
        return None
    listed: AbortedByPartition = {}
    list_aborted(listed, KEY, partition, offset, result.slice, True)
    result.slice.release()
    return listed[KEY, partition.index]
