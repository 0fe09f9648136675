"""Requests of transaction coordinators to a partition leader: verifies and ends transactions (TXN-14, TXN-15, TXN-27).

It also appends the coordinators' own state. All replicas track the begin and end of transactions in the log
(`storage.transactions`).
"""

from __future__ import annotations

from typing import Final

from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.results import AppendResult
from brokers.engine.partitions.verification import OPEN, UNVERIFIED_OK
from brokers.engine.records import batch as layout
from brokers.engine.records import error_codes
from brokers.engine.records.control import ABORT, COMMIT, end_marker

# Result for an append that will be refused, so that no verification is needed.
NOT_LED: Final = -1


def begin_verification(partition: Partition, producer_id: int, epoch: int, sequence: int, now_ms: int) -> int:
    """Begins to verify the producer's transaction. Returns the token for an append after the coordinator confirmed it.

    Returns OPEN if no verification is needed, NOT_LED if the append will be refused anyway.
    """
    if partition.offline or not partition.is_leader:
        return NOT_LED
    producers = partition.log.producers
    if producers.has_open_transaction(producer_id, epoch):
        return OPEN
    return producers.verifications.begin(producer_id, epoch, sequence, now_ms)


def append_state(
    partition: Partition, batch: bytearray, now_ms: int, verification_token: int = UNVERIFIED_OK
) -> AppendResult:
    """Appends a coordinator's batch (`build_batch`) under the conditions of acks=-1.

    The batch has no sequences; a transactional one begins a transaction or continues it.
    """
    refusal = _refusal_code(partition)
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
        opens_transaction = attributes & layout.TRANSACTIONAL and not is_open
        if (
            opens_transaction
            and verification_token != UNVERIFIED_OK
            and not producers.verifications.is_valid(producer_id, verification_token)
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
    """Ends the producer's transaction in this partition, if one is open (TXN-14); repeated markers do no harm."""
    refusal = _refusal_code(partition)
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


def _refusal_code(partition: Partition) -> int:
    """Returns the error code for an append with acks=-1, 0 if it is accepted."""
    if partition.offline:
        return error_codes.KAFKA_STORAGE_ERROR
    if not partition.is_leader:
        return error_codes.NOT_LEADER_OR_FOLLOWER
    return error_codes.NONE if partition.has_enough_replicas() else error_codes.NOT_ENOUGH_REPLICAS
