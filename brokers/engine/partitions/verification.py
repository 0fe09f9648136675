"""Whether a client's batch may be part of a transaction on one partition (TXN-15, REC-44), by what its log knows of
producers. What is found good is written by the partition.
"""

from __future__ import annotations

from typing import Final

from brokers.engine.partitions.results import AppendResult
from brokers.engine.records import error_codes
from brokers.engine.records.validation import CheckedBatch
from brokers.engine.storage.log import Log
from brokers.engine.storage.producer_state import CachedBatch

# What entitles a batch to open a transaction here. A token of `transactions.begin_verification` is greater than all of
# these.
OPEN: Final = 0
"""Nothing: the producer's transaction must be open already, in this epoch."""
UNVERIFIED_OK: Final = -1
"""Nobody asks the coordinator (`transaction.partition.verification.enable` is off)."""
NO_TXN_ID: Final = -2
"""The request names no transactional id: there is no part in any transaction for it (REC-44)."""


def answered_before(known: CachedBatch, log_start_offset: int) -> AppendResult:
    """A batch that was sent once more: nothing is appended (IDE-6)."""
    base_offset = known.last_offset - known.offset_delta
    return AppendResult(
        error_codes.NONE, base_offset, known.timestamp_ms, log_start_offset, last_offset=known.last_offset
    )


def check_transactional(log: Log, checked: CheckedBatch, verification_token: int) -> AppendResult | None:
    """The answer to a batch that is not to be written, None for one that is. In the order in which Kafka refuses one: a
    duplicate is none, then who is not verified, then epoch and sequence.
    """
    _, last_delta, _, _, producer_id, epoch, sequence = checked
    producers = log.producers
    if verification_token == NO_TXN_ID:
        return AppendResult(error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if producer_id < 0:
        return AppendResult(error_codes.INVALID_RECORD, log_start_offset=log.log_start_offset)
    known = producers.duplicate(producer_id, epoch, sequence, last_delta)
    if known is not None:
        return answered_before(known, log.log_start_offset)
    is_open = producers.has_open_transaction(producer_id, epoch)
    verifications = producers.verifications
    if not is_open and verification_token != UNVERIFIED_OK and not verifications.holds(producer_id, verification_token):
        return AppendResult(error_codes.INVALID_TXN_STATE, log_start_offset=log.log_start_offset)
    code = producers.check_epoch(producer_id, epoch)
    if not code and verifications.overtakes(producer_id, epoch, sequence):
        code = error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    if not code:
        error_code = producers.check(producer_id, epoch, sequence, last_delta, True)
        # What is cached was found above.
        code = error_code if isinstance(error_code, int) else error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    if code:
        return AppendResult(code, log_start_offset=log.log_start_offset)
    return None
