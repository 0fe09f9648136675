"""Conversion of message formats 0 and 1 to record batches, and back for old clients (REC-30, REC-31).

Both directions process records one by one in generators; only the current block is in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from brokers.engine.records import batch as layout
from brokers.engine.records import error_codes
from brokers.engine.records.builder import Record, encode_record, records_block
from brokers.engine.records.compression import DECOMPRESSED_BYTES_MAX, NONE, ZSTD, Oversized, Undecodable, compress
from brokers.engine.records.message_set import (
    CODEC_MAX,
    NO_TIMESTAMP,
    Corrupt,
    Invalid,
    Message,
    MessagePosition,
    compress_old,
    encode_message,
    is_checksum_valid,
    read_entries,
    read_message,
    unwrap_messages,
)
from brokers.engine.records.rejections import WRONG_TIMESTAMPS, BatchRejected
from brokers.engine.records.validation import RECORDS_PER_BATCH_MAX
from brokers.engine.records.walk import Malformed, walk

# A read of up to this size is converted completely, however much it grows.
CHUNK_BYTES: Final = 128 * 1024

# The cost of a conversion is proportional to the decompressed bytes. A kilobyte can decompress to very many messages
# and headers, so each of them costs as many bytes as are converted in the same time.
MESSAGE_COST_BYTES: Final = 128
HEADER_BYTE_COST_BYTES: Final = 64

# Maximum timestamp for which every difference of two timestamps, one of which may be -1, fits into 64 bits.
TIMESTAMP_MAX: Final = 2**63 - 1


class UnsupportedCodec(ValueError):
    """The batch is compressed with zstd, which the old formats do not support."""


class CheckedMessageSet(NamedTuple):
    """Entries of a client's message set as far as they are known without decompression; `magic` is -1 if there are
    none.
    """

    entries: list[MessagePosition]
    magic: int
    codec: int


class ConversionBudget:
    """Work that conversions of one request may still cause, in decompressed bytes; below 0 when it is used up."""

    __slots__ = ("remaining_bytes",)

    def __init__(self, bytes_max: int) -> None:
        self.remaining_bytes = bytes_max

    @property
    def is_used_up(self) -> bool:
        return self.remaining_bytes <= 0

    def spend(self, decompressed_bytes: int, messages: int, header_bytes: int = 0) -> None:
        self.remaining_bytes -= max(
            decompressed_bytes, messages * MESSAGE_COST_BYTES, header_bytes * HEADER_BYTE_COST_BYTES
        )


def check_message_set(records: bytes, batch_bytes_max: int) -> CheckedMessageSet:
    """Checks the size and checksum of every message and their combination (REC-47 to REC-49).

    A set whose first entry is a record batch is returned unchecked. Raises BatchRejected.
    """
    result: list[MessagePosition] = []
    codec = NONE
    try:
        for entry in read_entries(records):
            if not result and entry.magic == layout.MAGIC:
                return CheckedMessageSet([entry], layout.MAGIC, NONE)
            if entry.size_bytes > batch_bytes_max:
                raise BatchRejected(error_codes.MESSAGE_TOO_LARGE, omits_log_start=True)
            if entry.magic != layout.MAGIC:
                if not is_checksum_valid(records, entry):
                    raise Corrupt("the checksum of a message is wrong")
                codec = records[entry.start + 17] & layout.CODEC_MASK or codec
            result.append(entry)
    except Corrupt:
        raise BatchRejected(error_codes.CORRUPT_MESSAGE, omits_log_start=True) from None
    if not result:
        return CheckedMessageSet(result, -1, codec)
    if (
        codec > CODEC_MAX
        or (codec != NONE and len(result) > 1)
        or any(entry.magic != result[0].magic for entry in result)
    ):
        raise BatchRejected(error_codes.INVALID_RECORD, omits_log_start=True)
    return CheckedMessageSet(result, result[0].magic, codec)


def to_batch(
    records: bytes, message_set: CheckedMessageSet, budget: ConversionBudget | None = None, *, log_append_time: bool
) -> bytearray:
    """Returns a record batch with all messages of a set that passed `check_message_set`, with the same codec (REC-30).

    `log_append_time` is the topic's timestamp type: a message may claim LogAppendTime only where the broker overwrites
    it. For a set that cannot be converted `budget` is charged the maximum, for an uncompressed set nothing. Raises
    BatchRejected.
    """
    budget = budget or ConversionBudget(DECOMPRESSED_BYTES_MAX)
    if message_set.codec != NONE and budget.is_used_up:
        raise BatchRejected(error_codes.MESSAGE_TOO_LARGE, omits_log_start=False)
    decompressed_bytes, count = DECOMPRESSED_BYTES_MAX, 0
    try:
        block, count, base_ms, max_ms = _encode_records(_checked(records, message_set, log_append_time=log_append_time))
        decompressed_bytes = len(block)
    except Corrupt:
        raise BatchRejected(error_codes.CORRUPT_MESSAGE, omits_log_start=False) from None
    except Invalid as fault:
        raise BatchRejected(error_codes.INVALID_RECORD, omits_log_start=False, message=str(fault)) from None
    except Oversized:
        raise BatchRejected(error_codes.MESSAGE_TOO_LARGE, omits_log_start=False) from None
    finally:
        if message_set.codec != NONE:
            budget.spend(decompressed_bytes, count)
    return _assemble(_BatchFields(0, 0, message_set.codec, count - 1, base_ms, max_ms, count), block)


def encode_batch(messages: Sequence[Message], codec: int, attributes: int) -> bytearray:
    """Returns a record batch with `messages` at their offsets and timestamps, without a leader epoch.

    `attributes` adds flags to those of the codec. There must be at least one message, and the offsets must increase.
    """
    base_offset, base_ms = messages[0].offset, messages[0].timestamp_ms
    block = b"".join(
        encode_record(
            Record(message.timestamp_ms, message.key, message.value),
            message.offset - base_offset,
            layout.wrap_to_int64(message.timestamp_ms - base_ms),
        )
        for message in messages
    )
    max_ms = max(message.timestamp_ms for message in messages)
    last_delta = messages[-1].offset - base_offset
    fields = _BatchFields(base_offset, -1, attributes | codec, last_delta, base_ms, max_ms, len(messages))
    return _assemble(fields, block)


class _BatchFields(NamedTuple):
    """Header fields of a converted batch; the attributes hold the codec."""

    base_offset: int
    leader_epoch: int
    attributes: int
    last_delta: int
    base_ms: int
    max_ms: int
    record_count: int


def _assemble(fields: _BatchFields, block: bytes) -> bytearray:
    """Returns a complete batch, with its checksum, of the records in `block`."""
    base_offset, leader_epoch, attributes, last_delta, base_ms, max_ms, record_count = fields
    payload = compress(attributes & layout.CODEC_MASK, block)
    out = bytearray(layout.HEADER_BYTES)
    length = layout.HEADER_BYTES - layout.LOG_OVERHEAD_BYTES + len(payload)
    layout.HEADER.pack_into(
        out, 0, base_offset, length, leader_epoch, layout.MAGIC, 0, attributes, last_delta, base_ms, max_ms,
        -1, -1, -1, record_count,
    )  # fmt: skip
    out += payload
    layout.write_crc(out)
    return out


def _checked(records: bytes, message_set: CheckedMessageSet, *, log_append_time: bool) -> Iterator[Message]:
    for entry in message_set.entries:
        outer_message = read_message(records, entry)
        claims_append_time = bool(entry.magic and outer_message.attributes & layout.LOG_APPEND_TIME)
        for message in (outer_message,) if message_set.codec == NONE else unwrap_messages(outer_message, entry.magic):
            # Kafka fails on timestamps before 1970 without a reason; timestamps too far ahead overflow its deltas.
            is_refused = claims_append_time and (log_append_time or message.timestamp_ms == NO_TIMESTAMP)
            if is_refused or not NO_TIMESTAMP <= message.timestamp_ms < TIMESTAMP_MAX:
                raise BatchRejected(error_codes.INVALID_TIMESTAMP, omits_log_start=False, message=WRONG_TIMESTAMPS)
            yield message


def _encode_records(messages: Iterable[Message]) -> tuple[bytes, int, int, int]:
    """Returns (records, number of records, first and greatest timestamp)."""
    block = bytearray()
    count = 0
    base_ms = max_ms = NO_TIMESTAMP
    for message in messages:
        timestamp_ms = message.timestamp_ms
        if count == 0:
            base_ms = timestamp_ms
        max_ms = max(max_ms, timestamp_ms)
        block += encode_record(Record(timestamp_ms, message.key, message.value), count, timestamp_ms - base_ms)
        count += 1
        if count > RECORDS_PER_BATCH_MAX:
            raise Oversized("a message set of too many messages")
    return bytes(block), count, base_ms, max_ms


def convert_to_messages(data: bytes, magic: int, first_offset: int, budget: ConversionBudget | None = None) -> bytes:
    """Returns the record batches in `data` as messages of format `magic` (0 or 1), for a reader at `first_offset`.

    At least one batch with records is converted. The result is little longer than `data`, and `budget` is exceeded by
    one batch at most. Headers, producer ids and control batches are lost.

    Raises UnsupportedCodec if the first batch is compressed with zstd. Raises compression.Undecodable,
    compression.Oversized or walk.Malformed if it cannot be converted or its checksum is wrong: a damaged batch must not
    become messages with valid checksums. The result ends before any later batch of these kinds.
    """
    budget = budget or ConversionBudget(DECOMPRESSED_BYTES_MAX)
    out = bytearray()
    for position, header in layout.scan_headers(data):
        if out and (budget.is_used_up or (position >= CHUNK_BYTES and len(out) >= len(data))):
            break
        batch = data[position : position + header.size_bytes]
        if layout.checksum(batch) != header.crc:
            if not out:
                raise Malformed("the checksum of a batch is wrong")
            break
        if header.is_control:
            continue
        if header.codec == ZSTD:
            if not out:
                raise UnsupportedCodec("zstd has no place in message formats 0 and 1")
            break
        try:
            out += _convert_batch(batch, header, magic, first_offset, budget)
        except (Malformed, Undecodable, Oversized):
            budget.spend(DECOMPRESSED_BYTES_MAX, 0)
            if not out:
                raise
            break
    return bytes(out)


def _convert_batch(
    batch: bytes, header: layout.BatchHeader, magic: int, first_offset: int, budget: ConversionBudget
) -> bytes:
    """Returns a batch as messages, one per record, or as one compressed wrapper."""
    codec = header.codec
    block = records_block(batch)
    is_append_time = bool(header.attributes & layout.LOG_APPEND_TIME)
    flags = layout.LOG_APPEND_TIME if is_append_time and magic else 0
    out = bytearray()
    base_offset = -1
    last_offset = -1
    header_bytes = 0
    max_ms = NO_TIMESTAMP
    for record in walk(block, header.record_count):
        offset = header.base_offset + record.offset_delta
        if codec == NONE and offset < first_offset:
            continue
        if base_offset < 0:
            base_offset = offset
        header_bytes += record.end - record.headers_at - 1
        last_offset = offset
        created_ms = layout.wrap_to_int64(header.base_timestamp + record.timestamp_delta)
        timestamp_ms = header.max_timestamp if is_append_time else created_ms
        max_ms = max(max_ms, timestamp_ms)
        key = None if record.key is None else block[record.key[0] : record.key[1]]
        value = None if record.value is None else block[record.value[0] : record.value[1]]
        inner_offset = offset - base_offset if magic and codec != NONE else offset
        out += encode_message(magic, inner_offset, timestamp_ms, key, value, flags)
        if codec != NONE and len(out) > DECOMPRESSED_BYTES_MAX:
            raise Oversized("a batch grows too far as messages")
    if codec != NONE:
        budget.spend(len(block), header.record_count, header_bytes)
    if codec == NONE or not out:
        return bytes(out)
    return encode_message(magic, last_offset, max_ms, None, compress_old(codec, bytes(out), magic), flags | codec)
