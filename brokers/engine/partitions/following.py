"""Appends on a follower: batches, high watermark and log start of its leader (REP-7, REP-8).

A batch keeps the offset and the leader epoch that the leader assigned. It is verified as in recovery: data damaged on
the network or on the leader's disk must not be stored, and is fetched again.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from brokers.engine.partitions.partition import Partition
from brokers.engine.records import batch as layout
from brokers.engine.storage.as_follower import FollowedBatch, append_as_follower, truncate_fully_and_start_at
from brokers.engine.storage.files import StorageFailed
from brokers.engine.wire.checksum import crc32c

_UNPACK = layout.HEADER.unpack_from
# Base offset, length, and after 11 other bytes the last offset delta.
_OFFSET_LENGTH_AND_DELTA: Final = Struct(">qi11xi")


class CorruptFetch(Exception):
    """The leader's response cannot follow the local log; the message gives the reason."""


class FollowerBehindLogStart(CorruptFetch):
    """All local records are below the leader's log start, which is within a batch: the log must restart there (REP-9).

    The leader does not know where epochs began among deleted records, so a divergence in them was not detected
    (LOG-46).
    """


def append_fetched(
    partition: Partition, records: memoryview, leader_high_watermark: int, leader_log_start_offset: int, now_ms: int
) -> int:
    """Appends batches as the leader wrote them (REP-7, REP-8) and returns the number of bytes appended.

    Raises CorruptFetch: the faulty batch and those after it are not appended. Raises StorageFailed after reporting it
    to the table.
    """
    if partition.is_leader:
        raise CorruptFetch("this replica leads")
    log = partition.log
    appended_bytes = 0
    try:
        if len(records):
            appended_bytes = _append(partition, records, leader_log_start_offset, now_ms)
        end_offset = log.log_end_offset
        high_watermark = leader_high_watermark if leader_high_watermark < end_offset else end_offset
        if high_watermark > partition.high_watermark:
            partition.follow_high_watermark(high_watermark)
        if log.log_start_offset < leader_log_start_offset <= partition.high_watermark:
            log.advance_start(leader_log_start_offset)
    except StorageFailed as failure:
        partition.on_storage_failure(failure)
        raise
    return appended_bytes


def _append(partition: Partition, records: memoryview, leader_log_start_offset: int, now_ms: int) -> int:
    """Writes the valid batches at the front of `records`, then raises CorruptFetch for the first invalid one."""
    log = partition.log
    batches: list[FollowedBatch] = []
    position, end = 0, len(records)
    expected_offset = log.log_end_offset
    epoch = log.epochs.latest
    fault = ""
    while position < end:
        if end - position < layout.HEADER_BYTES:
            break
        # fmt: off
        (base_offset, length, leader_epoch, magic, crc, attributes, last_delta, _, max_timestamp,
         producer_id, producer_epoch, base_sequence, _) = _UNPACK(records, position)
        # fmt: on
        size = length + layout.LOG_OVERHEAD_BYTES
        if magic != layout.MAGIC or size < layout.HEADER_BYTES or last_delta < 0:
            fault = f"no batch at byte {position}"
            break
        if position + size > end:
            break
        if (
            base_offset < expected_offset
            and not log.size_bytes
            and not batches
            and base_offset + last_delta >= expected_offset
        ):
            # The leader's log starts within this batch (LOG-46), and so does the local one: its file begins with the
            # batch.
            _restart_within_batch(partition, base_offset, now_ms)
        elif base_offset < expected_offset:
            if not batches and leader_log_start_offset >= expected_offset:
                raise FollowerBehindLogStart(f"all below {expected_offset}, where the leader's log starts")
            fault = f"a batch at offset {base_offset} where {expected_offset} or more was expected"
            break
        if leader_epoch < epoch or leader_epoch > partition.leader_epoch:
            fault = f"a batch of leader epoch {leader_epoch} after {epoch}, in {partition.leader_epoch}"
            break
        if crc32c(records[position + layout.CRC_COVERED_FROM : position + size]) != crc:
            fault = f"the batch at offset {base_offset} does not match its checksum"
            break
        last_offset = base_offset + last_delta
        # fmt: off
        batches.append((size, base_offset, last_offset, max_timestamp, leader_epoch,
                        producer_id, producer_epoch, base_sequence, attributes))
        # fmt: on
        expected_offset, epoch = last_offset + 1, leader_epoch
        position += size
    if batches:
        append_as_follower(log, records, batches, now_ms)
    if fault:
        raise CorruptFetch(fault)
    if not batches:
        raise CorruptFetch(f"{end} bytes without a whole batch")
    return position


def has_holes(records: memoryview, expected_offset: int) -> bool:
    """True if these whole batches lack offsets from `expected_offset` on because the leader's log was compacted."""
    position, end = 0, len(records)
    while position < end:
        base_offset, length, last_delta = _OFFSET_LENGTH_AND_DELTA.unpack_from(records, position)
        if base_offset > expected_offset:
            return True
        expected_offset = base_offset + last_delta + 1
        position += length + layout.LOG_OVERHEAD_BYTES
    return False


def _restart_within_batch(partition: Partition, base_offset: int, now_ms: int) -> None:
    log = partition.log
    log.files.require_free_descriptors(log.root)
    start_offset = log.log_start_offset
    truncate_fully_and_start_at(log, base_offset, now_ms)
    log.log_start_offset = start_offset
