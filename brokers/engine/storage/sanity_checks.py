"""Consistency checks of the files that a clean stop left, before they are trusted (LOG-14, LOG-37).

In the Kafka format only logs and snapshots carry checksums: a flipped bit in another file shows where two files
contradict each other.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from brokers.engine.records.batch import BatchHeader, checksum
from brokers.engine.storage.indexes import AbortedIndex
from brokers.engine.storage.log import RELATIVE_OFFSET_MAX, Log
from brokers.engine.storage.segment import Segment

# Maximum number of leader epochs that are checked: the latest, which replicas request. A log usually has few.
EPOCHS_CHECKED_MAX: Final = 16
# Maximum number of aborted transactions checked per segment, the latest: each takes two lookups at every start.
ABORTED_CHECKED_MAX: Final = 1_000


def has_bad_offsets(header: BatchHeader, next_offset: int, limit_offset: int) -> bool:
    """True if the offsets of the batch are invalid, below `next_offset` or not below `limit_offset` (LOG-36).

    No checksum covers the base offset and the length of a batch.
    """
    if header.last_offset_delta < 0 or header.record_count < 0:
        return True
    return header.base_offset < next_offset or header.next_offset > limit_offset


def is_intact(data: bytes, header: BatchHeader) -> bool:
    """True if these bytes are the batch that `header` begins."""
    return len(data) == header.size_bytes and checksum(data) == header.crc


class Damage(NamedTuple):
    """Damage found when a log was opened.

    The first damaged byte is `position` (-1: the whole file), and `offset` its offset (-1: unknown).
    """

    file: str
    position: int
    offset: int
    description: str


def find_wrong_index(segment: Segment, is_dense: bool) -> str:
    """Loads a segment's indexes and returns the path of the first that is missing or contradicts the log, else ""
    (LOG-14).

    `is_dense` is true if compaction has not removed anything. Kafka checks only the numbers of the last entries. Here
    the last entry of each index must also name a batch of the log, because positions determine the next offset and
    timestamps determine what retention deletes.
    """
    if not segment.size_bytes:
        for index in segment.indexes():
            index.reset()
        return ""
    offset_index, time_index, aborted_index = segment.offset_index, segment.time_index, segment.aborted
    if not offset_index.is_sane(segment.size_bytes):
        return offset_index.path
    if not os.path.exists(time_index.path) or not time_index.is_sane():  # noqa: PTH110
        return time_index.path
    if aborted_index is not None and not _is_aborted_index_sane(segment, aborted_index, is_dense):
        return aborted_index.path
    last_entry = offset_index.last
    if last_entry is not None:
        header = next((header for _, header in segment.headers(last_entry.position)), None)
        if header is None or not segment.base_offset <= header.base_offset <= last_entry.offset:
            return offset_index.path
    latest_entry = time_index.last
    if not len(time_index):
        # An empty time index requires that no record has a timestamp.
        if segment.load_first_timestamp() >= 0:
            return time_index.path
    else:
        located = segment.locate(latest_entry.offset)
        if located is None or located[1].max_timestamp != latest_entry.timestamp_ms:
            return time_index.path
    segment.max_timestamp, segment.max_timestamp_offset = latest_entry
    segment.indexed_timestamp = segment.max_timestamp
    segment.bytes_since_entry = segment.size_bytes - offset_index.last_position()
    return ""


def _is_aborted_index_sane(segment: Segment, aborted: AbortedIndex, is_dense: bool) -> bool:
    """True if no entry contradicts the batches that it names.

    An entry with the wrong producer would present aborted records to read_committed consumers. Compaction may have
    removed the batches of an entry.
    """
    if not aborted.is_sane(segment.base_offset + RELATIVE_OFFSET_MAX + 1):
        return False
    for number in range(max(len(aborted) - ABORTED_CHECKED_MAX, 0), len(aborted)):
        producer_id, first_offset, marker_offset, stable_offset = aborted.entry(number)
        if stable_offset > marker_offset + 1:
            return False
        for offset, is_control in ((marker_offset, True), (first_offset, False)):
            if offset < segment.base_offset:
                continue
            header = _batch_with(segment, offset)
            if header is None and is_dense:
                return False
            expected = (offset, producer_id, is_control)
            if header is not None and (header.base_offset, header.producer_id, header.is_control) != expected:
                return False
    return True


def _batch_with(segment: Segment, offset: int) -> BatchHeader | None:
    located = segment.locate(offset)
    return located[1] if located is not None and located[1].base_offset <= offset else None


def are_indexes_trusted(segment: Segment, is_dense: bool) -> bool:
    """True if no index of the segment is missing or contradicts its log (`find_wrong_index`)."""
    return not find_wrong_index(segment, is_dense)


def contradicts_epochs(log: Log, start_offset: int) -> bool:
    """True if the batches contradict `leader-epoch-checkpoint` at either end of the log or at the start of an epoch.

    A leader with wrong epochs would make followers retain records that other replicas do not have (LOG-31).
    """
    end_offset = log.log_end_offset
    epoch_start_offsets = {start for _, start in log.epochs.entries[-EPOCHS_CHECKED_MAX:]}
    for offset in sorted(
        {start_offset, end_offset - 1, *epoch_start_offsets, *(start - 1 for start in epoch_start_offsets)}
    ):
        header = _batch_at(log, offset) if start_offset <= offset < end_offset else None
        if header is None:
            continue
        if log.epochs.epoch_at(max(header.base_offset, start_offset)) != header.leader_epoch:
            return True
        if offset in epoch_start_offsets and header.base_offset < offset > start_offset:
            return True  # no epoch begins within a batch
    return False


def _batch_at(log: Log, offset: int) -> BatchHeader | None:
    for segment in reversed(log.segments):
        if segment.base_offset <= offset:
            located = segment.locate(offset)
            return None if located is None else located[1]
    return None
