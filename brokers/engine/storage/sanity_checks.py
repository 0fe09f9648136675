"""What a clean stop left, held against itself before it is believed (LOG-14, LOG-37); and what was found wrong.

Files of the Kafka format other than logs and snapshots carry no checksum: that a bit flipped shows where two of them
disagree.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from brokers.engine.records.batch import BatchHeader, checksum
from brokers.engine.storage.indexes import AbortedIndex
from brokers.engine.storage.log import RELATIVE_OFFSET_MAX, Log
from brokers.engine.storage.segment import Segment

# A log has few leader epochs; of one that has many the latest are what its replicas ask for.
EPOCHS_CHECKED_MAX: Final = 16
# Of a segment with more aborted transactions the latest: each costs two lookups at every start.
ABORTED_CHECKED_MAX: Final = 1_000


def out_of_range(header: BatchHeader, next_offset: int, limit_offset: int) -> bool:
    """LOG-36: the batch cannot be what follows; neither its base offset nor its length is under its checksum."""
    if header.last_offset_delta < 0 or header.record_count < 0:
        return True
    return header.base_offset < next_offset or header.next_offset > limit_offset


def intact(data: bytes, header: BatchHeader) -> bool:
    """Whether these bytes are the batch that `header` begins."""
    return len(data) == header.size_bytes and checksum(data) == header.crc


class Damage(NamedTuple):
    """What opening a log found wrong: in which file, from which byte (-1: all of it) and offset on (-1: none known)."""

    file: str
    position: int
    offset: int
    what: str


def wrong_index(segment: Segment, is_dense: bool) -> str:
    """Takes over a segment's indexes as they lie on disk; the path of the first that is missing or contradicts the log,
    empty if none does (LOG-14). `is_dense`: no cleaner has taken anything out.

    Kafka looks at the last entries' numbers alone. Here the last entry of each index must also name a batch of the log
    as it is: of the positions depend which offsets an append gets, and of the times what retention deletes.
    """
    if not segment.size_bytes:
        for index in segment.indexes():
            index.reset()
        return ""
    offsets, times, aborted = segment.offset_index, segment.time_index, segment.aborted
    if not offsets.sane(segment.size_bytes):
        return offsets.path
    if not os.path.exists(times.path) or not times.sane():  # noqa: PTH110
        return times.path
    if aborted is not None and not _sane_aborted(segment, aborted, is_dense):
        return aborted.path
    last = offsets.last
    if last is not None:
        header = next((header for _, header in segment.headers(last.position)), None)
        if header is None or not segment.base_offset <= header.base_offset <= last.offset:
            return offsets.path
    latest = times.last
    if not len(times):
        # Then no record may carry a time.
        if segment.load_first_timestamp() >= 0:
            return times.path
    else:
        result = segment.locate(latest.offset)
        if result is None or result[1].max_timestamp != latest.timestamp_ms:
            return times.path
    segment.max_timestamp, segment.max_timestamp_offset = latest
    segment.indexed_timestamp = segment.max_timestamp
    segment.bytes_since_entry = segment.size_bytes - offsets.last_position()
    return ""


def _sane_aborted(segment: Segment, aborted: AbortedIndex, is_dense: bool) -> bool:
    """Whether no entry contradicts the batches it names. One of another producer would tell readers of committed
    records that what was taken back is committed. The cleaner leaves entries whose batches are gone.
    """
    if not aborted.sane(segment.base_offset + RELATIVE_OFFSET_MAX + 1):
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
            named = (offset, producer_id, is_control)
            if header is not None and (header.base_offset, header.producer_id, header.is_control) != named:
                return False
    return True


def _batch_with(segment: Segment, offset: int) -> BatchHeader | None:
    result = segment.locate(offset)
    return result[1] if result is not None and result[1].base_offset <= offset else None


def indexes_trusted(segment: Segment, is_dense: bool) -> bool:
    return not wrong_index(segment, is_dense)


def epochs_contradicted(log: Log, start_offset: int) -> bool:
    """Whether the batches say otherwise than `leader-epoch-checkpoint` at either end of the log or where one epoch
    follows another.

    A leader with a wrong list would tell followers to keep what others do not have (LOG-31).
    """
    end = log.log_end_offset
    starts = {start for _, start in log.epochs.entries[-EPOCHS_CHECKED_MAX:]}
    for offset in sorted({start_offset, end - 1, *starts, *(start - 1 for start in starts)}):
        header = _batch_at(log, offset) if start_offset <= offset < end else None
        if header is None:
            continue
        if log.epochs.epoch_at(max(header.base_offset, start_offset)) != header.leader_epoch:
            return True
        if offset in starts and header.base_offset < offset > start_offset:
            return True  # no epoch begins within a batch
    return False


def _batch_at(log: Log, offset: int) -> BatchHeader | None:
    for segment in reversed(log.segments):
        if segment.base_offset <= offset:
            result = segment.locate(offset)
            return None if result is None else result[1]
    return None
