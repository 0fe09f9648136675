"""Reasons for rejecting a batch, with the messages for clients (REC-44, REC-57, KIP-467)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from brokers.engine.records import error_codes

RECORD_ERRORS_SHOWN_MAX: Final = 3
# A batch of a megabyte may have a hundred thousand records, each with the same error.
RECORD_ERRORS_MAX: Final = 1_000

WRONG_TIMESTAMPS: Final = "One or more records have been rejected due to invalid timestamp"
WRONG_OFFSET_DELTAS: Final = "The offset deltas of the compressed records are not 0, 1, 2…"
TOO_MUCH_DECOMPRESSED: Final = "The record sets of this request inflate to too much."
_NO_KEY: Final = "Compacted topic cannot accept message without key."  # the topic name known here is not the tenant's
_APPEND_TIME_CLAIMED: Final = "Producer should not set timestamp type to LogAppendTime."


class BatchRejected(Exception):
    """The batch must not be appended; `omits_log_start` is true for faults that Kafka answers with log start -1."""

    def __init__(
        self,
        code: int,
        *,
        omits_log_start: bool,
        message: str | None = None,
        record_errors: Iterable[tuple[int, str]] = (),
    ) -> None:
        super().__init__(message or f"error {code}")
        self.code = code
        self.omits_log_start = omits_log_start
        self.message = message
        self.record_errors = tuple(islice(record_errors, RECORD_ERRORS_MAX))


def timestamp_rejection(rejected: list[tuple[int, int]]) -> BatchRejected:
    """Returns the rejection for timestamps out of range; `rejected` has the index and timestamp, in ms, of each such
    record.
    """
    errors = (
        (index, f"Timestamp {timestamp_ms} of message with offset {index} is out of range.")
        for index, timestamp_ms in rejected
    )
    return BatchRejected(
        error_codes.INVALID_TIMESTAMP, omits_log_start=False, message=WRONG_TIMESTAMPS, record_errors=errors
    )


def missing_key_rejection(indexes: list[int]) -> BatchRejected:
    """Returns the rejection for records at `indexes` without a key, in a compacted topic."""
    shown_errors = [
        f"RecordError(batchIndex={index}, message='{_NO_KEY}')" for index in indexes[:RECORD_ERRORS_SHOWN_MAX]
    ]
    message = (
        f"One or more records have been rejected due to {len(indexes)} record errors in total, "
        f"and only showing the first three errors at most: [{', '.join(shown_errors)}]"
    )
    errors = ((index, _NO_KEY) for index in indexes)
    return BatchRejected(error_codes.INVALID_RECORD, omits_log_start=False, message=message, record_errors=errors)


def append_time_rejection(count: int) -> BatchRejected:
    """Returns the rejection for a batch of `count` records that claims LogAppendTime."""
    errors = ((index, _APPEND_TIME_CLAIMED) for index in range(count))
    return BatchRejected(
        error_codes.INVALID_TIMESTAMP, omits_log_start=False, message=WRONG_TIMESTAMPS, record_errors=errors
    )
