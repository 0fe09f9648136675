"""Checks of transactional batches of clients against the producer state of a log (TXN-15, REC-44).

The partition writes the batches that pass.
"""

from __future__ import annotations

from typing import Final

from brokers.engine.partitions.results import AppendResult
from brokers.engine.records import error_codes
from brokers.engine.records.validation import CheckedBatch
from brokers.engine.storage.log import Log
from brokers.engine.storage.producer_state import CachedBatch

# Authorization of a batch to open a transaction. A token of `transactions.begin_verification` is greater than all of
# these.
OPEN: Final = 0
"""No authorization: the producer's transaction must be open already, in this epoch."""
UNVERIFIED_OK: Final = -1
"""Verification is disabled (`transaction.partition.verification.enable` is off)."""
NO_TXN_ID: Final = -2
"""The request has no transactional id, so it may not use transactions (REC-44)."""


def duplicate_result(duplicate: CachedBatch, log_start_offset: int) -> AppendResult:
    """Returns the result for a duplicate batch, which is not appended (IDE-6)."""
    base_offset = duplicate.last_offset - duplicate.offset_delta
    return AppendResult(
        error_codes.NONE, base_offset, duplicate.timestamp_ms, log_start_offset, last_offset=duplicate.last_offset
    )


def check_transactional(log: Log, checked: CheckedBatch, verification_token: int) -> AppendResult | None:
    """Returns the result for a batch that must not be written, None for one that may be written.

    Checks run in Kafka's order: duplicate, verification, epoch, sequence.
    """
    _, last_delta, _, _, producer_id, epoch, sequence = checked
    producers = log.producers
    if verification_token == NO_TXN_ID:
        return AppendResult(error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if producer_id < 0:
        return AppendResult(error_codes.INVALID_RECORD, log_start_offset=log.log_start_offset)
    duplicate = producers.find_duplicate(producer_id, epoch, sequence, last_delta)
    if duplicate is not None:
        return duplicate_result(duplicate, log.log_start_offset)
    is_open = producers.has_open_transaction(producer_id, epoch)
    verifications = producers.verifications
    if (
        not is_open
        and verification_token != UNVERIFIED_OK
        and not verifications.is_valid(producer_id, verification_token)
    ):
        return AppendResult(error_codes.INVALID_TXN_STATE, log_start_offset=log.log_start_offset)
    code = producers.check_epoch(producer_id, epoch)
    if not code and verifications.is_out_of_order(producer_id, epoch, sequence):
        code = error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    if not code:
        error_code = producers.check_sequence(producer_id, epoch, sequence, last_delta, True)
        # a duplicate was detected above
        code = error_code if isinstance(error_code, int) else error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    if code:
        return AppendResult(code, log_start_offset=log.log_start_offset)
    return None
