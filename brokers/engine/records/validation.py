"""What a leader checks of a client's batch before it enters the log (spec B.7), in the order in which Kafka 3.9 fails.

The batch is checked where it lies in the request's buffer; at most its attributes, maximum timestamp and checksum are
rewritten (REC-21, REC-57). Which batches get the full record walk: docs/decisions/0011.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from brokers.engine.records import batch as layout
from brokers.engine.records import error_codes
from brokers.engine.records.builder import NO_TIMESTAMP, recompress
from brokers.engine.records.compression import (
    INFLATED_BYTES_MAX,
    SNAPPY,
    SNAPPY_BLOCK_COUNTS_BYTES,
    ZSTD,
    Oversized,
    Undecodable,
    inflate,
    snappy_blocks,
)
from brokers.engine.records.legacy import first_entry
from brokers.engine.records.numbering import is_numbered, numbered
from brokers.engine.records.rejections import (
    MISNUMBERED,
    TOO_MUCH_INFLATED,
    BatchRejected,
    claimed_append_time,
    out_of_range,
    without_keys,
)
from brokers.engine.records.walk import Malformed, TooManyHeaders, check_fields, hop, stamps
from brokers.engine.wire.checksum import crc32c

LONG_MAX: Final = layout.LONG_MAX
PRODUCE_ZSTD_FROM: Final = 7
CODECS_MAX: Final = ZSTD

# Batches of up to this many records are decoded field by field as Kafka does it; longer ones by their lengths.
WALKED_RECORDS_MAX: Final = 4
# A batch of a megabyte holds less, uncompressed. Whoever reads one record by record on the loop, holds it no longer.
RECORDS_PER_BATCH_MAX: Final = 262_144


# A hundred megabytes of request can hold three thousand batches that inflate to 32 MB each: more than this is not
# inflated in one go, which takes some 60 ms, and the rest of the request is too large.
INFLATED_PER_REQUEST_MAX: Final = 4 * INFLATED_BYTES_MAX


# Of one batch, on the loop: longer ones are checked in a thread first (`handlers.produce.recompression`).
INFLATED_AT_ONCE_BYTES_MAX: Final = 256 * 1024


class InflationBudget:
    """How many bytes more the batches of one request may inflate to be checked, and one of them; what does not inflate
    counts for the most. Below zero it is spent.
    """

    __slots__ = ("batch_bytes_max", "left_bytes")

    def __init__(self, bytes_max: int = INFLATED_PER_REQUEST_MAX, batch_bytes_max: int = INFLATED_BYTES_MAX) -> None:
        self.left_bytes = bytes_max
        self.batch_bytes_max = batch_bytes_max


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRules:
    """What a topic's configuration asks of a batch. `walk_all`, derived, asks for the full walk of every batch."""

    batch_bytes_max: int = 1_048_588
    segment_bytes: int = 1_073_741_824
    log_append_time: bool = False
    compacted: bool = False
    timestamp_before_ms_max: int = LONG_MAX
    timestamp_after_ms_max: int = LONG_MAX
    codec: int | None = None  # None keeps the producer's

    bounds_timestamps: bool = field(init=False)
    walk_all: bool = field(init=False)

    def __post_init__(self) -> None:
        bounds = self.timestamp_before_ms_max != LONG_MAX or self.timestamp_after_ms_max != LONG_MAX
        object.__setattr__(self, "bounds_timestamps", bounds)
        object.__setattr__(self, "walk_all", self.compacted or (bounds and not self.log_append_time))


# What the log needs to know of a batch that passed: data, last offset delta, maximum timestamp, attributes, producer id
# and epoch, base sequence. A plain tuple: one is made per request.
CheckedBatch = tuple[memoryview, int, int, int, int, int, int]


_UNPACK = layout.HEADER.unpack_from


def check_shape(records: memoryview, produce_version: int) -> int:
    """The size of the one v2 batch in `records` (REC-42, REC-43). A cut entry after it is ignored (REC-60)."""
    total = len(records)
    if total >= layout.HEADER_BYTES and records[layout.MAGIC_AT] == layout.MAGIC:
        _, length = layout.OFFSET_AND_LENGTH.unpack_from(records)
        if length + layout.LOG_OVERHEAD_BYTES == total and (
            produce_version >= PRODUCE_ZSTD_FROM or not records[22] & 7
        ):
            return total  # what nearly every request holds
    entry = first_entry(records)
    if entry is None:
        raise BatchRejected(error_codes.INVALID_RECORD, shape=True)
    size, magic = entry
    if size < 0 or magic > layout.MAGIC:
        raise BatchRejected(error_codes.CORRUPT_MESSAGE, shape=True)
    if magic != layout.MAGIC:
        raise BatchRejected(error_codes.INVALID_RECORD, shape=True)
    if size < layout.HEADER_BYTES:
        raise BatchRejected(error_codes.CORRUPT_MESSAGE, shape=True)
    if produce_version < PRODUCE_ZSTD_FROM and records[22] & layout.CODEC_MASK == ZSTD:
        raise BatchRejected(error_codes.UNSUPPORTED_COMPRESSION_TYPE, shape=True)
    if size < total:
        rest = first_entry(records[size:])
        if rest is not None:
            second_size, second_magic = rest
            corrupt = second_size < 0 or second_magic > layout.MAGIC
            raise BatchRejected(error_codes.CORRUPT_MESSAGE if corrupt else error_codes.INVALID_RECORD, shape=True)
    return size


def check_batch(
    records: memoryview, size: int, rules: BatchRules, now_ms: int, budget: InflationBudget | None = None
) -> CheckedBatch:
    """Checks the batch of `size` bytes (from `check_shape`) against `rules`; what that inflates is taken from `budget`.

    Raises BatchRejected. `records` must be writable when the topic stamps batches or a claim has to be corrected.
    """
    # fmt: off
    (base_offset, _, _, _, crc, attributes, last_delta, base_timestamp, max_timestamp,
     producer_id, producer_epoch, base_sequence, count) = _UNPACK(records)
    # fmt: on
    data = records if size == len(records) else records[:size]
    if base_offset != 0:
        raise BatchRejected(error_codes.INVALID_RECORD, shape=False)
    if size > rules.batch_bytes_max:
        raise BatchRejected(error_codes.MESSAGE_TOO_LARGE, shape=True)
    if crc32c(data[layout.CHECKED_FROM :]) != crc:
        raise BatchRejected(error_codes.CORRUPT_MESSAGE, shape=True)
    if count <= 0 or last_delta + 1 != count or attributes & layout.CONTROL or (producer_id >= 0 and base_sequence < 0):
        raise BatchRejected(error_codes.INVALID_RECORD, shape=False)
    if count > RECORDS_PER_BATCH_MAX:
        raise BatchRejected(error_codes.MESSAGE_TOO_LARGE, shape=True)
    codec = attributes & layout.CODEC_MASK
    block = bytes(data[layout.HEADER_BYTES :]) if codec == 0 else _inflated(codec, data, budget)
    wanted_codec = codec if rules.codec is None else rules.codec
    stored_block, true_max = block, max_timestamp
    try:
        if count <= WALKED_RECORDS_MAX or rules.walk_all:
            true_max, is_dense = _check_records(block, count, base_timestamp, rules, now_ms)
        else:
            hop(block, count)
            is_dense = not (codec or wanted_codec) or is_numbered(block, count)
        if not is_dense and wanted_codec != codec:
            stored_block = numbered(block, count)
        elif not is_dense and codec:  # what is not compressed Kafka stores as it is
            raise BatchRejected(error_codes.INVALID_RECORD, shape=False, message=MISNUMBERED)
    except TooManyHeaders:
        raise BatchRejected(error_codes.MESSAGE_TOO_LARGE, shape=True) from None
    except Malformed:
        raise BatchRejected(error_codes.INVALID_RECORD, shape=False) from None
    claims_append_time = attributes & layout.LOG_APPEND_TIME
    if claims_append_time and (rules.log_append_time or max_timestamp == NO_TIMESTAMP):
        raise claimed_append_time(count)
    if wanted_codec != codec:
        data = _rebuilt(data, wanted_codec, stored_block, rules)
        attributes = attributes & ~layout.CODEC_MASK | wanted_codec
    if len(data) > rules.segment_bytes:
        raise BatchRejected(error_codes.RECORD_LIST_TOO_LARGE, shape=True)
    if rules.log_append_time:
        attributes |= layout.LOG_APPEND_TIME
        true_max = now_ms
    elif claims_append_time:
        attributes &= ~layout.LOG_APPEND_TIME  # a claim only: what is stored says CreateTime (observed, REC-57)
        max_timestamp = true_max - 1  # forces the stamp below
    if rules.log_append_time or true_max != max_timestamp:
        layout.stamp(data, attributes, true_max)
    return data, last_delta, true_max, attributes, producer_id, producer_epoch, base_sequence


class CheckedAhead:
    """What `check_batch` says of a batch by the rules of this moment: made in a thread, for it may take long to pack a
    batch anew, and asked when it is appended.
    """

    __slots__ = ("_result", "_rules")

    def __init__(
        self, records: memoryview, produce_version: int, rules: BatchRules, now_ms: int, budget: InflationBudget
    ) -> None:
        self._rules = rules
        self._result: CheckedBatch | BatchRejected
        try:
            if budget.left_bytes < 0:
                raise BatchRejected(error_codes.MESSAGE_TOO_LARGE, shape=True, message=TOO_MUCH_INFLATED)
            size = check_shape(records, produce_version)
            self._result = check_batch(records, size, rules, now_ms, budget)
        except BatchRejected as fault:
            self._result = fault

    def checked(
        self,
        records: memoryview,
        size: int,
        rules: BatchRules,
        now_ms: int,
        budget: InflationBudget | None = None,
    ) -> CheckedBatch:
        """As `check_batch`, which is what is done if the rules are others by now."""
        if rules is not self._rules:
            return check_batch(records, size, rules, now_ms)
        if isinstance(self._result, BatchRejected):
            raise self._result
        return self._result


def _rebuilt(data: memoryview, codec: int, block: bytes, rules: BatchRules) -> memoryview:
    try:
        return memoryview(recompress(data, codec, rules.batch_bytes_max, block))
    except Oversized:
        raise BatchRejected(error_codes.MESSAGE_TOO_LARGE, shape=True) from None


def _inflated(codec: int, data: memoryview, budget: InflationBudget | None) -> bytes:
    if codec > CODECS_MAX:
        raise BatchRejected(error_codes.INVALID_RECORD, shape=True)
    spent_bytes = INFLATED_BYTES_MAX
    try:
        bytes_max = INFLATED_BYTES_MAX if budget is None else budget.batch_bytes_max
        block = inflate(codec, data[layout.HEADER_BYTES :], bytes_max)
        spent_bytes = len(block)
        if codec == SNAPPY:
            # Very small blocks, and those that hold nothing, take their time too.
            spent_bytes = max(spent_bytes, snappy_blocks(data[layout.HEADER_BYTES :]) * SNAPPY_BLOCK_COUNTS_BYTES)
        return block
    except Undecodable:
        raise BatchRejected(error_codes.CORRUPT_MESSAGE, shape=True) from None
    except Oversized:
        raise BatchRejected(error_codes.MESSAGE_TOO_LARGE, shape=True) from None
    finally:
        if budget is not None:
            budget.left_bytes -= spent_bytes


def _check_records(block: bytes, count: int, base_timestamp: int, rules: BatchRules, now_ms: int) -> tuple[int, bool]:
    """The full walk. Returns the true maximum timestamp, as Kafka does not below -1, and whether the offset deltas are
    what they should be; raises Malformed, or BatchRejected with record errors.
    """
    least, greatest, keyless, is_dense = check_fields(block, count)
    earliest, latest = base_timestamp + least, base_timestamp + greatest
    runs_over = earliest < layout.LONG_MIN or latest > LONG_MAX
    if runs_over:
        latest = max(_times(block, count, base_timestamp))
    is_bounded = rules.bounds_timestamps and not rules.log_append_time
    if is_bounded and (runs_over or not _all_in_bounds((earliest, latest), rules, now_ms)):
        times = _times(block, count, base_timestamp)
        late = [(index, time_ms) for index, time_ms in enumerate(times) if not _in_bounds(time_ms, rules, now_ms)]
        if late:
            raise out_of_range(late)
    if rules.compacted and keyless:
        raise without_keys(keyless)
    return max(latest, NO_TIMESTAMP), is_dense


def _times(block: bytes, count: int, base_timestamp: int) -> list[int]:
    """Of every record."""
    return [layout.wrapped(base_timestamp + timestamp_delta) for _, timestamp_delta in stamps(block, count)]


def _all_in_bounds(timestamps: tuple[int, int], rules: BatchRules, now_ms: int) -> bool:
    """Of the earliest and the latest record, which speak for those between them."""
    earliest, latest = timestamps
    return now_ms - earliest <= rules.timestamp_before_ms_max and latest - now_ms <= rules.timestamp_after_ms_max


def _in_bounds(timestamp: int, rules: BatchRules, now_ms: int) -> bool:
    if timestamp == NO_TIMESTAMP:  # none given: exempt
        return True
    return now_ms - timestamp <= rules.timestamp_before_ms_max and timestamp - now_ms <= rules.timestamp_after_ms_max


def claims_transaction(records: memoryview) -> bool:
    """Whether the first batch says it is transactional; a request without a transactional id is refused whole for it
    (REC-44).
    """
    if len(records) < layout.HEADER_BYTES or records[layout.MAGIC_AT] != layout.MAGIC:
        return False
    return bool(records[layout.ATTRIBUTES_AT] & layout.TRANSACTIONAL)
