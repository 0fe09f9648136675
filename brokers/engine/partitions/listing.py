"""The offsets that ListOffsets finds by a time, or by one of the names that stand for one (LOG-25, LOG-26)."""

from __future__ import annotations

from typing import Final

from brokers.engine.storage.log import Log
from brokers.engine.storage.lookups import FoundRecord, first_at_or_after, greatest_timestamp

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
# ListOffsets version from which a special timestamp is known (LOG-25).
TIMESTAMP_FROM: Final = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}


def find(log: Log, timestamp: int, limit_offset: int, leader_epoch: int, wait: bool) -> FoundRecord | None:
    """What lies below `limit_offset`, None if nothing does. Raises StorageFailed; NotCached unless it may `wait`."""
    if timestamp == LATEST:
        return FoundRecord(-1, limit_offset, leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return FoundRecord(-1, log.log_start_offset, log.epochs.epoch_at(log.log_start_offset))
    if timestamp == LATEST_TIERED:
        return None
    if timestamp == MAX_TIMESTAMP:
        found = greatest_timestamp(log, wait)
    else:
        found = first_at_or_after(log, timestamp, wait)
    return found if found is not None and found.offset < limit_offset else None
