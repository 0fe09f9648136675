"""Validation of a client's batch before it is appended (spec B.7), with errors in the order of Kafka 3.9.

The batch is checked in the request's buffer; at most its attributes, maximum timestamp and checksum are rewritten
(REC-21, REC-57). Decision 11 (docs/decisions/0011) says which batches get the full record walk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from brokers.engine.records import batch as layout
from brokers.engine.records import error_codes
from brokers.engine.records.batch import first_entry
from brokers.engine.records.builder import NO_TIMESTAMP, recompress
from brokers.engine.records.compression import (
    DECOMPRESSED_BYTES_MAX,
    SNAPPY,
    SNAPPY_BLOCK_CHARGE_BYTES_MIN,
    ZSTD,
    Oversized,
    Undecodable,
    count_snappy_blocks,
    decompress,
)
from brokers.engine.records.numbering import has_consecutive_deltas, renumber
from brokers.engine.records.rejections import (
    TOO_MUCH_DECOMPRESSED,
    WRONG_OFFSET_DELTAS,
    BatchRejected,
    append_time_rejection,
    missing_key_rejection,
    timestamp_rejection,
)
from brokers.engine.records.walk import Malformed, TooManyHeaders, check_fields, check_lengths, record_deltas
from brokers.engine.wire.checksum import crc32c

LONG_MAX: Final = layout.LONG_MAX
PRODUCE_ZSTD_FROM: Final = 7
CODECS_MAX: Final = ZSTD

# Batches of up to this number of records are decoded field by field as in Kafka, longer ones are checked by record
# lengths.
WALKED_RECORDS_MAX: Final = 4
# Greater than the number of records in an uncompressed batch of a megabyte. It bounds the time for which a reader of
# single records occupies the event loop.
RECORDS_PER_BATCH_MAX: Final = 262_144


# A request of a hundred megabytes can have three thousand batches that decompress to 32 MB each. Up to this limit they
# are decompressed, which takes about 60 ms; further batches of the request are refused as too large.
DECOMPRESSED_PER_REQUEST_MAX: Final = 4 * DECOMPRESSED_BYTES_MAX


# Limit for one batch on the event loop: longer ones are checked in a thread first (`handlers.produce.recompression`).
DECOMPRESSED_AT_ONCE_BYTES_MAX: Final = 256 * 1024


class DecompressionBudget:
    """Remaining bytes that the batches of one request, and one batch, may decompress to while they are checked.

    A batch that cannot be decompressed counts as the maximum. The budget is used up below zero.
    """

    __slots__ = ("batch_bytes_max", "remaining_bytes")

    def __init__(
        self, bytes_max: int = DECOMPRESSED_PER_REQUEST_MAX, batch_bytes_max: int = DECOMPRESSED_BYTES_MAX
    ) -> None:
        self.remaining_bytes = bytes_max
        self.batch_bytes_max = batch_bytes_max


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRules:
    """Requirements of a topic's configuration on a batch; the derived `walks_all` requires the full walk of every
    batch.
    """

    batch_bytes_max: int = 1_048_588
    segment_bytes: int = 1_073_741_824
    log_append_time: bool = False
    compacted: bool = False
    timestamp_before_ms_max: int = LONG_MAX
    timestamp_after_ms_max: int = LONG_MAX
    codec: int | None = None  # None keeps the producer's codec

    bounds_timestamps: bool = field(init=False)
    walks_all: bool = field(init=False)

    def __post_init__(self) -> None:
        bounds = self.timestamp_before_ms_max != LONG_MAX or self.timestamp_after_ms_max != LONG_MAX
        object.__setattr__(self, "bounds_timestamps", bounds)
        object.__setattr__(self, "walks_all", self.compacted or (bounds and not self.log_append_time))


# Result for the log: data, last offset delta, maximum timestamp, attributes, producer id and epoch, base sequence. A
# plain tuple, because one is allocated per request.
CheckedBatch = tuple[memoryview, int, int, int, int, int, int]


_UNPACK = layout.HEADER.unpack_from


def check_shape(records: memoryview, produce_version: int) -> int:
    """Returns the size of the single v2 batch in `records` (REC-42, REC-43); an incomplete entry after it is ignored
    (REC-60). Raises BatchRejected.
    """
    total = len(records)
    if total >= layout.HEADER_BYTES and records[layout.MAGIC_AT] == layout.MAGIC:
        _, length = layout.OFFSET_AND_LENGTH.unpack_from(records)
        if length + layout.LOG_OVERHEAD_BYTES == total and (
            produce_version >= PRODUCE_ZSTD_FROM or not records[22] & 7
        ):
            return total  # the case of nearly every request
    entry = first_entry(records)
    if entry is None:
        raise BatchRejected(error_codes.INVALID_RECORD, omits_log_start=True)
    size, magic = entry
    if size < 0 or magic > layout.MAGIC:
        raise BatchRejected(error_codes.CORRUPT_MESSAGE, omits_log_start=True)
    if magic != layout.MAGIC:
        raise BatchRejected(error_codes.INVALID_RECORD, omits_log_start=True)
    if size < layout.HEADER_BYTES:
        raise BatchRejected(error_codes.CORRUPT_MESSAGE, omits_log_start=True)
    if produce_version < PRODUCE_ZSTD_FROM and records[22] & layout.CODEC_MASK == ZSTD:
        raise BatchRejected(error_codes.UNSUPPORTED_COMPRESSION_TYPE, omits_log_start=True)
    if size < total:
        second_entry = first_entry(records[size:])
        if second_entry is not None:
            second_size, second_magic = second_entry
            is_corrupt = second_size < 0 or second_magic > layout.MAGIC
            raise BatchRejected(
                error_codes.CORRUPT_MESSAGE if is_corrupt else error_codes.INVALID_RECORD, omits_log_start=True
            )
    return size


def check_batch(
    records: memoryview, size: int, rules: BatchRules, now_ms: int, budget: DecompressionBudget | None = None
) -> CheckedBatch:
    """Checks the batch of `size` bytes (from `check_shape`) against `rules`; decompression is charged to `budget`.

    Raises BatchRejected. `records` must be writable if the topic sets timestamps or a wrong maximum timestamp or claim
    of LogAppendTime must be corrected.
    """
    # fmt: off
    (base_offset, _, _, _, crc, attributes, last_delta, base_timestamp, max_timestamp,
     producer_id, producer_epoch, base_sequence, count) = _UNPACK(records)
    # fmt: on
    data = records if size == len(records) else records[:size]
    if base_offset != 0:
        raise BatchRejected(error_codes.INVALID_RECORD, omits_log_start=False)
    if size > rules.batch_bytes_max:
        raise BatchRejected(error_codes.MESSAGE_TOO_LARGE, omits_log_start=True)
    if crc32c(data[layout.CRC_COVERED_FROM :]) != crc:
        raise BatchRejected(error_codes.CORRUPT_MESSAGE, omits_log_start=True)
    if count <= 0 or last_delta + 1 != count or attributes & layout.CONTROL or (producer_id >= 0 and base_sequence < 0):
        raise BatchRejected(error_codes.INVALID_RECORD, omits_log_start=False)
    if count > RECORDS_PER_BATCH_MAX:
        raise BatchRejected(error_codes.MESSAGE_TOO_LARGE, omits_log_start=True)
    codec = attributes & layout.CODEC_MASK
    block = bytes(data[layout.HEADER_BYTES :]) if codec == 0 else _decompress(codec, data, budget)
    stored_codec = codec if rules.codec is None else rules.codec
    stored_block, actual_max = block, max_timestamp
    try:
        if count <= WALKED_RECORDS_MAX or rules.walks_all:
            actual_max, is_dense = _check_records(block, count, base_timestamp, rules, now_ms)
        else:
            check_lengths(block, count)
            is_dense = not (codec or stored_codec) or has_consecutive_deltas(block, count)
        if not is_dense and stored_codec != codec:
            stored_block = renumber(block, count)
        elif not is_dense and codec:  # Kafka stores uncompressed batches unchanged
            raise BatchRejected(error_codes.INVALID_RECORD, omits_log_start=False, message=WRONG_OFFSET_DELTAS)
    except TooManyHeaders:
        raise BatchRejected(error_codes.MESSAGE_TOO_LARGE, omits_log_start=True) from None
    except Malformed:
        raise BatchRejected(error_codes.INVALID_RECORD, omits_log_start=False) from None
    claims_append_time = attributes & layout.LOG_APPEND_TIME
    if claims_append_time and (rules.log_append_time or max_timestamp == NO_TIMESTAMP):
        raise append_time_rejection(count)
    if stored_codec != codec:
        data = _recompress(data, stored_codec, stored_block, rules)
        attributes = attributes & ~layout.CODEC_MASK | stored_codec
    if len(data) > rules.segment_bytes:
        raise BatchRejected(error_codes.RECORD_LIST_TOO_LARGE, omits_log_start=True)
    if rules.log_append_time:
        attributes |= layout.LOG_APPEND_TIME
        actual_max = now_ms
    elif claims_append_time:
        attributes &= ~layout.LOG_APPEND_TIME  # not applied: CreateTime is stored (observed, REC-57)
        max_timestamp = actual_max - 1  # forces the correction below
    if rules.log_append_time or actual_max != max_timestamp:
        layout.set_attributes_and_timestamp(data, attributes, actual_max)
    return data, last_delta, actual_max, attributes, producer_id, producer_epoch, base_sequence


class Prechecked:
    """Result of `check_batch` that was computed in advance, with the rules at that time.

    It is computed in a thread, because recompression may take long, and used when the batch is appended.
    """

    __slots__ = ("_result", "_rules")

    def __init__(
        self, records: memoryview, produce_version: int, rules: BatchRules, now_ms: int, budget: DecompressionBudget
    ) -> None:
        self._rules = rules
        self._result: CheckedBatch | BatchRejected
        try:
            if budget.remaining_bytes < 0:
                raise BatchRejected(error_codes.MESSAGE_TOO_LARGE, omits_log_start=True, message=TOO_MUCH_DECOMPRESSED)
            size = check_shape(records, produce_version)
            self._result = check_batch(records, size, rules, now_ms, budget)
        except BatchRejected as fault:
            self._result = fault

    def check(
        self,
        records: memoryview,
        size: int,
        rules: BatchRules,
        now_ms: int,
        budget: DecompressionBudget | None = None,
    ) -> CheckedBatch:
        """Returns the result, or the result of a new `check_batch` if the rules have changed."""
        if rules is not self._rules:
            return check_batch(records, size, rules, now_ms, budget)
        if isinstance(self._result, BatchRejected):
            raise self._result
        return self._result


def _recompress(data: memoryview, codec: int, block: bytes, rules: BatchRules) -> memoryview:
    try:
        return memoryview(recompress(data, codec, rules.batch_bytes_max, block))
    except Oversized:
        raise BatchRejected(error_codes.MESSAGE_TOO_LARGE, omits_log_start=True) from None


def _decompress(codec: int, data: memoryview, budget: DecompressionBudget | None) -> bytes:
    if codec > CODECS_MAX:
        raise BatchRejected(error_codes.INVALID_RECORD, omits_log_start=True)
    spent_bytes = DECOMPRESSED_BYTES_MAX
    try:
        bytes_max = DECOMPRESSED_BYTES_MAX if budget is None else budget.batch_bytes_max
        block = decompress(codec, data[layout.HEADER_BYTES :], bytes_max)
        spent_bytes = len(block)
        if codec == SNAPPY:
            # Very small and empty blocks take time too.
            spent_bytes = max(
                spent_bytes, count_snappy_blocks(data[layout.HEADER_BYTES :]) * SNAPPY_BLOCK_CHARGE_BYTES_MIN
            )
        return block
    except Undecodable:
        raise BatchRejected(error_codes.CORRUPT_MESSAGE, omits_log_start=True) from None
    except Oversized:
        raise BatchRejected(error_codes.MESSAGE_TOO_LARGE, omits_log_start=True) from None
    finally:
        if budget is not None:
            budget.remaining_bytes -= spent_bytes


def _check_records(block: bytes, count: int, base_timestamp: int, rules: BatchRules, now_ms: int) -> tuple[int, bool]:
    """Checks every field of every record.

    Returns the real maximum timestamp, unlike Kafka not below -1, and whether the offset deltas are right. Raises
    Malformed, or BatchRejected with record errors.
    """
    least_delta, greatest_delta, keyless, is_dense = check_fields(block, count)
    earliest, latest = base_timestamp + least_delta, base_timestamp + greatest_delta
    overflows = earliest < layout.LONG_MIN or latest > LONG_MAX
    if overflows:
        latest = max(_read_timestamps(block, count, base_timestamp))
    is_bounded = rules.bounds_timestamps and not rules.log_append_time
    if is_bounded and (overflows or not _are_all_in_bounds((earliest, latest), rules, now_ms)):
        timestamps_ms = _read_timestamps(block, count, base_timestamp)
        rejected = [
            (index, timestamp_ms)
            for index, timestamp_ms in enumerate(timestamps_ms)
            if not _in_bounds(timestamp_ms, rules, now_ms)
        ]
        if rejected:
            raise timestamp_rejection(rejected)
    if rules.compacted and keyless:
        raise missing_key_rejection(keyless)
    return max(latest, NO_TIMESTAMP), is_dense


def _read_timestamps(block: bytes, count: int, base_timestamp: int) -> list[int]:
    """Returns the timestamp of every record."""
    return [
        layout.wrap_to_int64(base_timestamp + timestamp_delta) for _, timestamp_delta in record_deltas(block, count)
    ]


def _are_all_in_bounds(timestamps: tuple[int, int], rules: BatchRules, now_ms: int) -> bool:
    """True if the earliest and the latest record, and thus all, are within the bounds."""
    earliest, latest = timestamps
    return now_ms - earliest <= rules.timestamp_before_ms_max and latest - now_ms <= rules.timestamp_after_ms_max


def _in_bounds(timestamp: int, rules: BatchRules, now_ms: int) -> bool:
    if timestamp == NO_TIMESTAMP:  # no timestamp: exempt
        return True
    return now_ms - timestamp <= rules.timestamp_before_ms_max and timestamp - now_ms <= rules.timestamp_after_ms_max


def claims_transaction(records: memoryview) -> bool:
    """True if the first batch is transactional, in which case a request without a transactional id is refused
    (REC-44).
    """
    if len(records) < layout.HEADER_BYTES or records[layout.MAGIC_AT] != layout.MAGIC:
        return False
    return bool(records[layout.ATTRIBUTES_AT] & layout.TRANSACTIONAL)
