"""DeleteRecords on the leader: the log's start moves up, what lies below is unreadable at once (LOG-46).

Followers hear of it with the next answer and say so with their next fetch; the request is answered when those in sync
have. The files go with the next round of retention, which drops each segment that lies wholly below the start (LOG-43).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from brokers.engine.partitions.partition import Partition
from brokers.engine.records import error_codes
from brokers.engine.storage.files import StorageFailed

UP_TO_HIGH_WATERMARK: Final = -1
POLICY_VIOLATION: Final = 44
# Answered beside an error.
NO_LOW_WATERMARK: Final = -1


class DeletedRecords(NamedTuple):
    """`low_watermark`: the first offset that is left; it must be on disk before anybody is told."""

    error_code: int
    low_watermark: int = NO_LOW_WATERMARK


def delete_before(partition: Partition, offset: int) -> DeletedRecords:
    """Makes everything below `offset` unreadable, all that is acknowledged for -1. An offset below the start is fine.

    Refused in Kafka's order: a disk that is gone, another leader, a topic that is only compacted (its records go when
    their key says so), an offset that is none or lies past the high watermark.
    """
    if partition.offline:
        return DeletedRecords(error_codes.KAFKA_STORAGE_ERROR)
    if not partition.is_leader:
        return DeletedRecords(error_codes.NOT_LEADER_OR_FOLLOWER)
    config = partition.config
    if config.batch_rules.compacted and not config.log.retention.delete:
        return DeletedRecords(POLICY_VIOLATION)
    wanted = partition.high_watermark if offset == UP_TO_HIGH_WATERMARK else offset
    if not 0 <= wanted <= partition.high_watermark:
        return DeletedRecords(error_codes.OFFSET_OUT_OF_RANGE)
    log = partition.log
    try:
        log.advance_start(wanted)
    except StorageFailed as failure:
        partition.storage_failed(failure)
        return DeletedRecords(error_codes.KAFKA_STORAGE_ERROR)
    if partition.leadership is not None:
        for fetch in tuple(partition.leadership.fetches):
            fetch.on_start(partition)
    return DeletedRecords(error_codes.NONE, log.log_start_offset)
