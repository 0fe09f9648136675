"""Changes of a follower's log: appends of batches that keep the offsets and leader epochs of the leader (REP-8), and
full truncation, for example when all records are below the leader's log start (REP-9).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from brokers.engine.records import batch as layout
from brokers.engine.storage.files import storage_errors, sync_directory
from brokers.engine.storage.log import RELATIVE_OFFSET_MAX, Log
from brokers.engine.storage.producer_state import SNAPSHOT_SUFFIX
from brokers.engine.storage.segment import Segment
from brokers.engine.storage.transactions import apply_control_batch

# Size in bytes, base offset, last offset, maximum timestamp, leader epoch, producer id (-1 for none), producer epoch,
# base sequence, attributes.
FollowedBatch = tuple[int, int, int, int, int, int, int, int, int]

_IN_TRANSACTION: Final = layout.TRANSACTIONAL | layout.CONTROL


def append_as_follower(log: Log, data: memoryview, batches: list[FollowedBatch], now_ms: int) -> None:
    """Appends the verified batches that fill `data`, rolling segments as needed, with one write for each segment.

    Raises StorageFailed; batches written before the failure stay.
    """
    start = position = 0
    pending_batches: list[FollowedBatch] = []
    for batch in batches:
        segment = log.active
        size, base_offset, last_offset, max_timestamp, _, _, _, _, _ = batch
        pending_bytes = position - start
        # Compaction on the leader may have left a hole that is wider than an index can express, even in an empty
        # segment.
        exceeds_index_range = last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        if exceeds_index_range or (
            segment.size_bytes + pending_bytes
            and log.must_roll(segment, size + pending_bytes, last_offset, max_timestamp, now_ms)
        ):
            if pending_batches:
                _write(log, data[start:position], pending_batches)
                pending_batches = []
                start = position
            if log.active.size_bytes or exceeds_index_range:
                hole_exceeds_index_range = last_offset - log.log_end_offset > RELATIVE_OFFSET_MAX
                log.roll(now_ms, base_offset if hole_exceeds_index_range else log.log_end_offset)
        pending_batches.append(batch)
        position += size
    _write(log, data[start:position], pending_batches)


def _write(log: Log, data: memoryview, batches: list[FollowedBatch]) -> None:
    segment = log.active
    position = segment.size_bytes
    segment.append_many(data, batches, log.config.index_limits)
    producers = log.producers
    batch_position = 0
    for size, base_offset, last_offset, max_timestamp, leader_epoch, producer_id, epoch, sequence, flags in batches:
        if leader_epoch > log.epochs.latest:
            log.epochs.assign_unsaved(leader_epoch, base_offset)
        if producer_id >= 0:
            # A follower must detect duplicates and know the open transactions as soon as it becomes the leader (IDE-9).
            delta = last_offset - base_offset
            if not flags & _IN_TRANSACTION:
                producers.update(producer_id, epoch, sequence, delta, last_offset, max_timestamp)
            elif flags & layout.CONTROL:
                batch_data = data[batch_position : batch_position + size]
                apply_control_batch(log, segment, producer_id, epoch, last_offset, max_timestamp, batch_data)
            else:
                producers.update_in_transaction(producer_id, epoch, sequence, delta, last_offset, max_timestamp)
        log.cache_position(base_offset, position + batch_position)
        log.log_end_offset = last_offset + 1
        batch_position += size
    producers.end_offset = log.log_end_offset
    log.epochs.save_unsaved()  # saved last: if the save fails, offsets and producer state still match the log


def truncate_fully_and_start_at(log: Log, offset: int, now_ms: int) -> list[str]:
    """Removes all records of a log and starts it at another offset; returns the files to unlink later. Raises
    StorageFailed.

    A crash during this call leaves a shorter log, never one with a hole: segments are removed from the end, and the
    file that carries the new start offset comes last. The recovery point must be checkpointed before the next append.
    """
    removed_files = log.remove_all_segments()
    with storage_errors(log.root):
        for snapshot in Path(log.directory).glob(f"*{SNAPSHOT_SUFFIX}"):
            snapshot.unlink()
    sync_directory(Path(log.directory), log.root)
    segment = Segment(log.directory, log.root, offset, log.files, now_ms=now_ms)
    segment.create_file()
    log.segments = [segment]
    log.active = segment
    log.log_start_offset = log.durable_start_offset = log.log_end_offset = log.recovery_point = offset
    log.producers.clear(offset)
    log.epochs.clear()
    return [path for path in removed_files if not path.endswith(SNAPSHOT_SUFFIX)]
