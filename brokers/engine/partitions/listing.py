"""Offset lookups of ListOffsets by timestamp or special timestamp (LOG-25, LOG-26)."""

from __future__ import annotations

from typing import Final

from brokers.engine.partitions import damage
from brokers.engine.partitions.partition import LOG_END, NO_EPOCH, Partition
from brokers.engine.partitions.results import ListedOffset
from brokers.engine.records import error_codes
from brokers.engine.storage.files import NotCached, StorageFailed
from brokers.engine.storage.log import Log
from brokers.engine.storage.lookups import FoundRecord, find_first_at_or_after, find_greatest_timestamp
from brokers.engine.storage.segment import DamagedSegment

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
# First ListOffsets version that supports a special timestamp (LOG-25).
FIRST_VERSION_BY_TIMESTAMP: Final = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}

# First versions with the leader epoch, and with OFFSET_NOT_AVAILABLE.
LEADER_EPOCH_VERSION_MIN: Final = 4
NOT_AVAILABLE_VERSION_MIN: Final = 5
LEADER_NOT_AVAILABLE: Final = 5


def list_offsets(
    partition: Partition,
    timestamp: int,
    *,
    isolation: int,
    version: int,
    current_leader_epoch: int = NO_EPOCH,
    may_wait: bool = True,
) -> ListedOffset:
    """Returns the offset for a timestamp (LOG-25, LOG-26), without leader epoch before version 4; `may_wait` as in
    `Partition.read`.
    """
    if timestamp < 0 and version < FIRST_VERSION_BY_TIMESTAMP.get(timestamp, version + 1):
        return ListedOffset(error_codes.UNSUPPORTED_VERSION)
    code = partition.refusal(current_leader_epoch)
    if code:
        return ListedOffset(code)
    limit = partition.limit(isolation)
    # The previous leader may have returned a higher high watermark to clients than is known here (LOG-28).
    is_behind = partition.high_watermark < partition.epoch_start_offset and isolation != LOG_END
    unavailable = ListedOffset(
        error_codes.OFFSET_NOT_AVAILABLE if version >= NOT_AVAILABLE_VERSION_MIN else LEADER_NOT_AVAILABLE
    )
    if is_behind and timestamp == LATEST:
        return unavailable
    try:
        result = find_record(partition.log, timestamp, limit, partition.leader_epoch, may_wait)
    except NotCached as missing:
        return ListedOffset(error_codes.NONE, uncached=missing.uncached)
    except StorageFailed as failure:
        partition.on_storage_failure(failure)
        return ListedOffset(error_codes.KAFKA_STORAGE_ERROR)
    except DamagedSegment as found_damage:
        return ListedOffset(damage.report(partition.log, found_damage, partition.log.log_start_offset))
    if result is None:
        return unavailable if is_behind else ListedOffset(error_codes.NONE)
    return ListedOffset(
        error_codes.NONE,
        result.timestamp_ms,
        result.offset,
        result.leader_epoch if version >= LEADER_EPOCH_VERSION_MIN else -1,
    )


def find_record(log: Log, timestamp: int, limit_offset: int, leader_epoch: int, may_wait: bool) -> FoundRecord | None:
    """Returns the record for a timestamp if it is below `limit_offset`, else None. Raises StorageFailed, and without
    `may_wait` NotCached.
    """
    if timestamp == LATEST:
        return FoundRecord(-1, limit_offset, leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return FoundRecord(-1, log.log_start_offset, log.epochs.epoch_at(log.log_start_offset))
    if timestamp == LATEST_TIERED:
        return None
    if timestamp == MAX_TIMESTAMP:
        at_or_after = find_greatest_timestamp(log, may_wait)
    else:
        at_or_after = find_first_at_or_after(log, timestamp, may_wait)
    return at_or_after if at_or_after is not None and at_or_after.offset < limit_offset else None
