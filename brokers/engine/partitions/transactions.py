"""What a leader does with transactions on one partition: may this batch be part of one, how does one end (TXN-14,
TXN-15, TXN-27), and what coordinators append for themselves.

Where they begin and end in the log is the storage's to know (`storage.transactions`), on every replica alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from brokers.engine.partitions.results import AppendResult
from brokers.engine.records import batch as layout
from brokers.engine.records import error_codes
from brokers.engine.records.control import ABORT, COMMIT, end_marker
from brokers.engine.records.validation import CheckedBatch
from brokers.engine.storage.producer_state import CachedBatch

if TYPE_CHECKING:
    from brokers.engine.partitions.partition import Partition

# What entitles a batch to open a transaction here. A token of `begin_verification` is greater than all of these.
OPEN: Final = 0
"""Nothing: the producer's transaction must be open already, in this epoch."""
UNVERIFIED_OK: Final = -1
"""Nobody asks the coordinator (`transaction.partition.verification.enable` is off)."""
NO_TXN_ID: Final = -2
"""The request names no transactional id: there is no part in any transaction for it (REC-44)."""

NOT_LED: Final = -1


def begin_verification(partition: Partition, producer_id: int, epoch: int, sequence: int, now_ms: int) -> int:
    """the token to append with once the coordinator said that the partition belongs to the producer's transaction;
    OPEN if there is nothing to ask, NOT_LED if the append will be refused anyway.
    """
    if partition.offline or not partition.is_leader:
        return NOT_LED
    producers = partition.log.producers
    if producers.has_open_transaction(producer_id, epoch):
        return OPEN
    return producers.verifications.begin(producer_id, epoch, sequence, now_ms)


def answered_before(known: CachedBatch, log_start_offset: int) -> AppendResult:
    """A batch that was sent once more: nothing is appended (IDE-6)."""
    base_offset = known.last_offset - known.offset_delta
    return AppendResult(
        error_codes.NONE, base_offset, known.timestamp_ms, log_start_offset, last_offset=known.last_offset
    )


def append_transactional(
    partition: Partition, checked: CheckedBatch, now_ms: int, verification_token: int
) -> AppendResult:
    """A client's batch of a transaction, in the order in which Kafka refuses one: a duplicate is none, then who is not
    verified, then epoch and sequence.
    """
    _, last_delta, _, _, producer_id, epoch, sequence = checked
    log = partition.log
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
    return partition.write(checked, now_ms)


def append_state(partition: Partition, batch: bytearray, now_ms: int, verification_token: int) -> AppendResult:
    """As `Partition.append_state`."""
    refusal = _refusal(partition)
    if refusal:
        return AppendResult(refusal)
    log = partition.log
    # fmt: off
    (_, _, _, _, _, attributes, last_delta, _, max_timestamp,
     producer_id, epoch, sequence, _) = layout.HEADER.unpack_from(batch)
    # fmt: on
    rules = partition.config.batch_rules
    if len(batch) > rules.batch_bytes_max:
        return AppendResult(error_codes.MESSAGE_TOO_LARGE)
    if len(batch) > rules.segment_bytes:
        return AppendResult(error_codes.RECORD_LIST_TOO_LARGE)
    if producer_id >= 0:
        producers = log.producers
        is_open = producers.has_open_transaction(producer_id, epoch)
        begins = attributes & layout.TRANSACTIONAL and not is_open
        if (
            begins
            and verification_token != UNVERIFIED_OK
            and not producers.verifications.holds(producer_id, verification_token)
        ):
            return AppendResult(error_codes.INVALID_TXN_STATE, log_start_offset=log.log_start_offset)
        code = producers.check_epoch(producer_id, epoch)
        if code:
            return AppendResult(code, log_start_offset=log.log_start_offset)
    checked = (memoryview(batch), last_delta, max_timestamp, attributes, producer_id, epoch, sequence)
    return partition.write(checked, now_ms)


def append_marker(
    partition: Partition, producer_id: int, epoch: int, coordinator_epoch: int, committed: bool, now_ms: int
) -> AppendResult:
    """As `Partition.append_marker`."""
    refusal = _refusal(partition)
    if refusal:
        return AppendResult(refusal)
    log = partition.log
    code = log.producers.check_marker(producer_id, epoch, coordinator_epoch)
    if code:
        return AppendResult(code, log_start_offset=log.log_start_offset)
    batch = end_marker(
        COMMIT if committed else ABORT,
        timestamp_ms=now_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
    )
    attributes = layout.TRANSACTIONAL | layout.CONTROL
    checked = (memoryview(batch), 0, now_ms, attributes, producer_id, epoch, -1)
    return partition.write(checked, now_ms)


def _refusal(partition: Partition) -> int:
    """What every append with acks=-1 is refused for."""
    if partition.offline:
        return error_codes.KAFKA_STORAGE_ERROR
    if not partition.is_leader:
        return error_codes.NOT_LEADER_OR_FOLLOWER
    return error_codes.NONE if partition.has_enough_replicas() else error_codes.NOT_ENOUGH_REPLICAS
