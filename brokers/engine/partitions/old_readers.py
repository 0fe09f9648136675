"""Responses to clients that do not know format 2: messages instead of batches, and start offsets of segments instead of
the offset for a timestamp.

`read_messages` may run in a thread of its own: it only reads, from a slice that keeps its file open.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from brokers.engine.partitions.listing import EARLIEST, LATEST
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.results import ReadResult
from brokers.engine.records import error_codes
from brokers.engine.records.batch import scan_headers
from brokers.engine.records.compression import Oversized, Undecodable
from brokers.engine.records.conversion import ConversionBudget, UnsupportedCodec, convert_to_messages
from brokers.engine.records.walk import Malformed
from brokers.engine.storage.files import FileSlice, StorageFailed, storage_errors


class Converted(NamedTuple):
    """Messages for an old client.

    `failure` is the disk error of a failed read. `skipped_to` is the offset after the batches that were read if none of
    their records can be converted.
    """

    error_code: int
    records: bytes = b""
    failure: StorageFailed | None = None
    skipped_to: int = -1


def read_messages(
    partition: Partition, file_slice: FileSlice, magic: int, first_offset: int, budget: ConversionBudget
) -> Converted:
    """Returns the batches of `file_slice` as messages of format `magic` (REC-31), from `first_offset` on, limited by
    `budget`.

    The thread that owns the slice releases it, and reports disk errors to the partition.
    """
    if budget.is_used_up:
        return Converted(error_codes.NONE)
    try:
        batches = os.pread(file_slice.fd, file_slice.length, file_slice.position)
        records = convert_to_messages(batches, magic, first_offset, budget)
        skipped_to = -1 if records else max((header.next_offset for _, header in scan_headers(batches)), default=-1)
        return Converted(error_codes.NONE, records, skipped_to=skipped_to)
    except OSError as error:
        return Converted(error_codes.KAFKA_STORAGE_ERROR, failure=StorageFailed(partition.log.root, error))
    except UnsupportedCodec:
        return Converted(error_codes.UNSUPPORTED_COMPRESSION_TYPE)
    except (Malformed, Undecodable):
        return Converted(error_codes.CORRUPT_MESSAGE)
    except Oversized:
        return Converted(error_codes.MESSAGE_TOO_LARGE)


def read_whole_batches(
    partition: Partition, offset: int, max_bytes: int, *, min_one_batch: bool, may_wait: bool = True
) -> ReadResult:
    """Reads like `Partition.read`, but omits a first batch over the limit without `min_one_batch` (WIRE-28)."""
    result = partition.read(offset, max_bytes, min_one_batch=min_one_batch, may_wait=may_wait)
    records = result.slice
    if records is not None and records.length > max_bytes and not min_one_batch:
        records.release()
        return result._replace(slice=None)
    return result


def list_segment_offsets(partition: Partition, timestamp: int, count_max: int, now_ms: int) -> tuple[int, list[int]]:
    """Returns (error code, at most `count_max` base offsets of segments last written at or before `timestamp`), newest
    first (LOG-29).

    The log end offset counts as a segment written now; offsets above the high watermark are replaced by the high
    watermark.
    """
    if timestamp < 0 and timestamp not in (EARLIEST, LATEST):
        return error_codes.UNSUPPORTED_VERSION, []
    if partition.offline:
        return error_codes.KAFKA_STORAGE_ERROR, []
    if not partition.is_leader:
        return error_codes.NOT_LEADER_OR_FOLLOWER, []
    log = partition.log
    candidates: list[tuple[int, int]] = []
    try:
        for segment in log.segments:
            path = Path(segment.file.path)
            with storage_errors(segment.file.root):
                written_ms = int(path.stat().st_mtime * 1000) if segment.size_bytes else segment.created_ms
            candidates.append((max(segment.base_offset, log.log_start_offset), written_ms))
    except StorageFailed as failure:
        partition.on_storage_failure(failure)
        return error_codes.KAFKA_STORAGE_ERROR, []
    if log.active.size_bytes:
        candidates.append((log.log_end_offset, now_ms))
    if timestamp == EARLIEST:
        candidates = candidates[:1]
    elif timestamp != LATEST:
        while candidates and candidates[-1][1] > timestamp:
            candidates.pop()
    offsets = [offset for offset, _ in reversed(candidates[-count_max:])] if count_max > 0 else []
    offsets.sort(reverse=True)
    high_watermark = partition.high_watermark
    readable = [offset for offset in offsets if offset <= high_watermark]
    return error_codes.NONE, readable if len(readable) == len(offsets) else [high_watermark, *readable]
