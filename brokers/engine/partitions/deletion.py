"""DeleteRecords on the leader: the log start offset advances and records below it are unreadable at once (LOG-46).

Followers learn the new log start from the next fetch response and confirm it with their next fetch; the request is
answered when all in-sync replicas have confirmed it. The files are deleted by the next retention run, which drops each
segment entirely below the log start (LOG-43).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from brokers.engine.partitions.partition import Partition
from brokers.engine.records import error_codes
from brokers.engine.storage.files import StorageFailed

UP_TO_HIGH_WATERMARK: Final = -1
POLICY_VIOLATION: Final = 44
# Low watermark of an error response.
NO_LOW_WATERMARK: Final = -1


class DeletedRecords(NamedTuple):
    """Result of a deletion; `low_watermark`, the first remaining offset, must be on disk before the response is
    sent.
    """

    error_code: int
    low_watermark: int = NO_LOW_WATERMARK


def delete_before(partition: Partition, offset: int) -> DeletedRecords:
    """Makes all records below `offset` unreadable, or all committed records if it is -1; an offset below the log start
    is no error.

    Errors are checked in Kafka's order: disk offline, not the leader, a topic that is only compacted (its records are
    removed by key), an invalid offset or one past the high watermark.
    """
    if partition.offline:
        return DeletedRecords(error_codes.KAFKA_STORAGE_ERROR)
    if not partition.is_leader:
        return DeletedRecords(error_codes.NOT_LEADER_OR_FOLLOWER)
    config = partition.config
    if config.batch_rules.compacted and not config.log.retention.delete:
        return DeletedRecords(POLICY_VIOLATION)
    up_to_offset = partition.high_watermark if offset == UP_TO_HIGH_WATERMARK else offset
    if not 0 <= up_to_offset <= partition.high_watermark:
        return DeletedRecords(error_codes.OFFSET_OUT_OF_RANGE)
    log = partition.log
    try:
        log.advance_start(up_to_offset)
    except StorageFailed as failure:
        partition.storage_failed(failure)
        return DeletedRecords(error_codes.KAFKA_STORAGE_ERROR)
    if partition.leadership is not None:
        for fetch in tuple(partition.leadership.fetches):
            fetch.on_start(partition)
    return DeletedRecords(error_codes.NONE, log.log_start_offset)
