"""Why a batch may not enter the log, in the words a client is given (REC-44, REC-57, KIP-467)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from brokers.engine.records import error_codes

RECORD_ERRORS_SHOWN_MAX: Final = 3
# A batch of a megabyte may hold a hundred thousand records, each wrong for the same reason.
RECORD_ERRORS_MAX: Final = 1_000

WRONG_TIMES: Final = "One or more records have been rejected due to invalid timestamp"
MISNUMBERED: Final = "The offset deltas of the compressed records are not 0, 1, 2…"
TOO_MUCH_INFLATED: Final = "The record sets of this request inflate to too much."
_NO_KEY: Final = "Compacted topic cannot accept message without key."  # the name known here is not the tenant's
_CLAIMED: Final = "Producer should not set timestamp type to LogAppendTime."


class BatchRejected(Exception):
    """The batch may not enter the log. `shape` tells a fault that Kafka answers with log_start_offset -1."""

    def __init__(
        self, code: int, *, shape: bool, message: str | None = None, record_errors: Iterable[tuple[int, str]] = ()
    ) -> None:
        super().__init__(message or f"error {code}")
        self.code = code
        self.shape = shape
        self.message = message
        self.record_errors = tuple(islice(record_errors, RECORD_ERRORS_MAX))


def out_of_range(late: list[tuple[int, int]]) -> BatchRejected:
    """`late`: index and timestamp, in ms, of every record outside of the topic's bounds."""
    errors = (
        (index, f"Timestamp {timestamp_ms} of message with offset {index} is out of range.")
        for index, timestamp_ms in late
    )
    return BatchRejected(error_codes.INVALID_TIMESTAMP, shape=False, message=WRONG_TIMES, record_errors=errors)


def without_keys(indexes: list[int]) -> BatchRejected:
    """Records at `indexes` have no key, in a topic that is compacted."""
    shown = [f"RecordError(batchIndex={index}, message='{_NO_KEY}')" for index in indexes[:RECORD_ERRORS_SHOWN_MAX]]
    message = (
        f"One or more records have been rejected due to {len(indexes)} record errors in total, "
        f"and only showing the first three errors at most: [{', '.join(shown)}]"
    )
    errors = ((index, _NO_KEY) for index in indexes)
    return BatchRejected(error_codes.INVALID_RECORD, shape=False, message=message, record_errors=errors)


def claimed_append_time(count: int) -> BatchRejected:
    """All `count` records say that their timestamps are the broker's."""
    errors = ((index, _CLAIMED) for index in range(count))
    return BatchRejected(error_codes.INVALID_TIMESTAMP, shape=False, message=WRONG_TIMES, record_errors=errors)
