"""Changes of producer state and transaction index by transactional batches and markers (TXN-14, TXN-20, LOG-12).

Leader append, follower append and replay at start share these functions. `find_aborted` returns the aborted
transactions that a read_committed consumer needs (TXN-21).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokers.engine.records import batch as layout
from brokers.engine.records.batch import BatchHeader
from brokers.engine.records.control import ABORT, read_marker
from brokers.engine.storage.files import FileSlice
from brokers.engine.storage.indexes import Aborted
from brokers.engine.storage.open_transactions import NO_OFFSET
from brokers.engine.storage.segment import Segment

if TYPE_CHECKING:
    from brokers.engine.storage.log import Log


def apply_control_batch(
    log: Log,
    segment: Segment | None,
    producer_id: int,
    producer_epoch: int,
    last_offset: int,
    max_timestamp: int,
    data: memoryview | bytes,
) -> None:
    """Ends the transaction whose marker is in `data`; other control batches change nothing.

    `segment` contains the batch; it is None if the index already has the entries of aborted transactions.
    """
    producers = log.producers
    marker = read_marker(data)
    if marker is None:
        return
    first_offset = producers.end_transaction(
        producer_id, producer_epoch, marker.coordinator_epoch, last_offset, max_timestamp
    )
    if first_offset < 0 or marker.kind != ABORT or segment is None:
        return
    first_open_offset = producers.transactions.first_open_offset
    stable_offset = last_offset + 1 if first_open_offset == NO_OFFSET else first_open_offset
    segment.add_aborted(Aborted(producer_id, first_offset, last_offset, stable_offset))
    log.may_have_aborts = True


def replay_batch(log: Log, header: BatchHeader, data: memoryview | bytes = b"", segment: Segment | None = None) -> None:
    """Replays one stored batch into the producer state; `data` and `segment` as in `apply_control_batch`."""
    # fmt: off
    (base_offset, _, _, _, _, attributes, last_delta, _, max_timestamp,
     producer_id, epoch, sequence, _) = header
    # fmt: on
    if producer_id < 0:
        return
    last_offset = base_offset + last_delta
    if attributes & layout.CONTROL:
        apply_control_batch(log, segment, producer_id, epoch, last_offset, max_timestamp, data)
    elif attributes & layout.TRANSACTIONAL:
        log.producers.update_in_transaction(producer_id, epoch, sequence, last_delta, last_offset, max_timestamp)
    else:
        log.producers.update(producer_id, epoch, sequence, last_delta, last_offset, max_timestamp)


def find_aborted(log: Log, offset: int, records: FileSlice, may_wait: bool = True) -> list[tuple[int, int]]:
    """Returns (producer id, first offset) of the aborted transactions that a reader of `records` from `offset` on
    needs.

    As in Kafka, the list may have a few more than the slice touches, because the offset index gives its upper bound.
    Raises StorageFailed; without `may_wait`, NotCached instead of waiting for the disk.
    """
    segments = log.segments
    number = next(
        (segment_number for segment_number, candidate in enumerate(segments) if candidate.file is records.file),
        len(segments),
    )
    if number == len(segments):
        return []
    segment = segments[number]
    if not may_wait:
        segment.offset_index.require_cached()
    upper_offset = segment.offset_index.offset_at_or_after(records.position + records.length)
    if upper_offset < 0:
        upper_offset = segments[number + 1].base_offset if number + 1 < len(segments) else log.log_end_offset
    aborted: list[tuple[int, int]] = []
    for segment_number in range(number, len(segments)):
        index = segments[segment_number].aborted
        if index is None:
            continue
        if not may_wait:
            index.require_cached()
        for entry_number in range(index.first_number_from(offset), len(index)):
            producer_id, first_offset, _, stable_offset = index.entry(entry_number)
            if first_offset < upper_offset:
                aborted.append((producer_id, first_offset))
            if stable_offset >= upper_offset:
                return aborted
    return aborted
