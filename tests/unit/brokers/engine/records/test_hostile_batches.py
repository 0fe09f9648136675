"""Batches from hostile producers: they get Kafka's error codes and cost no more than valid batches (REC-22, REC-24,
REC-48, REC-50, REC-51, REC-62).
"""

from __future__ import annotations

import gzip
import struct
import sys
from types import FrameType
from typing import Any

import cramjam
import pytest

from brokers.engine.records import batch as layout
from brokers.engine.records import error_codes
from brokers.engine.records.builder import read_records
from brokers.engine.records.compression import (
    DECOMPRESSED_BYTES_MAX,
    GZIP,
    GZIP_MEMBERS_MAX,
    SNAPPY,
    SNAPPY_BLOCKS_MAX,
    XERIAL_HEADER,
    compress,
)
from brokers.engine.records.conversion import check_message_set, convert_to_messages, to_batch
from brokers.engine.records.message_set import encode_message, read_set
from brokers.engine.records.rejections import BatchRejected
from brokers.engine.records.validation import (
    RECORDS_PER_BATCH_MAX,
    BatchRules,
    DecompressionBudget,
    Prechecked,
    check_batch,
    check_shape,
)
from brokers.engine.records.walk import HEADERS_PER_BATCH_MAX
from brokers.engine.wire.varints import encode_signed
from brokers.native import finder
from tests.unit.brokers.engine.records.hostile import INT_MAX, LONG_MAX, LONG_MIN, NOW_MS, batch, field, record

COMPACTED = BatchRules(compacted=True)
EMPTY_HEADER = b"\x00\x00"
# Far more calls than a check makes once it meets a limit, and far fewer than a bomb would need.
CALLS_MAX = 2_000_000


def code_of(
    data: bytes | bytearray | memoryview, rules: BatchRules | None = None, budget: DecompressionBudget | None = None
) -> int:
    view = memoryview(bytearray(data))
    try:
        check_batch(view, check_shape(view, 9), rules or BatchRules(), NOW_MS, budget)
    except BatchRejected as fault:
        return fault.code
    return error_codes.NONE


NOT_ENDING = b"\xff" * 11


@pytest.mark.parametrize(
    "payload",
    [
        NOT_ENDING,
        record(length=-1),
        record(length=INT_MAX),
        record(length=0),
        record()[:-1],
        record() + b"\x00",
        record() + record(),
        record(headers=encode_signed(-1)),
        record(headers=encode_signed(INT_MAX)),
        record(headers=encode_signed(1)),
        record(headers=encode_signed(1) + field(None) + field(b"v")),
        record(headers=encode_signed(1) + field(b"h", 200) + field(b"v")),
        record(headers=encode_signed(1) + field(b"h") + field(b"v", INT_MAX)),
        record(headers=b"\x00\x00"),
        record(headers=NOT_ENDING),
        b"\x0c\x00" + NOT_ENDING,
        b"\x10\x00\x00\x00" + field(b"k", 100) + field(b"v") + b"\x00",
        b"\x10\x00\x00\x00" + field(b"k") + field(b"v", 100) + b"\x00",
        b"",
    ],
    ids=[
        "a length that does not end",
        "a negative length",
        "a length beyond the batch",
        "a length of nothing",
        "a record cut off",
        "a byte left over",
        "a record after the declared count",
        "a negative number of headers",
        "more headers than bytes",
        "a header missing",
        "a header without a key",
        "a header key beyond the record",
        "a header value beyond the record",
        "a byte left over in the record",
        "a number of headers that does not end",
        "a timestamp that does not end",
        "a key beyond the record",
        "a value beyond the record",
        "no record",
    ],
)
@pytest.mark.parametrize("codec", range(5))
def test_invalid_records_are_detected_with_every_codec(payload: bytes, codec: int) -> None:
    """REC-22, REC-24, REC-62: a compressed batch is decompressed for the check and stored unchanged."""
    assert code_of(batch(compress(codec, payload), attributes=codec)) == error_codes.INVALID_RECORD
    sound = batch(compress(codec, record()), attributes=codec)
    view = memoryview(bytearray(sound))
    assert bytes(check_batch(view, check_shape(view, 9), BatchRules(), NOW_MS)[0]) == bytes(sound)


@pytest.mark.parametrize("negative", [-2, -(2**31)])
def test_any_negative_length_of_a_key_or_a_value_is_null(negative: int) -> None:
    """REC-22: as in Kafka."""
    body = b"\x00\x00\x00" + encode_signed(negative) * 2 + b"\x00"
    data = batch(encode_signed(len(body)) + body)
    assert code_of(data) == error_codes.NONE
    assert read_records(bytes(data))[0][1][1:3] == (None, None)
    assert code_of(data, COMPACTED) == error_codes.INVALID_RECORD


@pytest.mark.parametrize(
    ("base_ms", "delta", "declared_ms"),
    [(LONG_MAX, LONG_MAX, -2), (LONG_MIN, LONG_MIN, 0), (LONG_MAX, 1, LONG_MIN), (-1, LONG_MIN, LONG_MAX)],
)
def test_overflowing_timestamps_are_stored_as_64_bit_values(base_ms: int, delta: int, declared_ms: int) -> None:
    """REC-23, REC-56: Kafka accepts them, and so does every reader."""
    view = memoryview(batch(record(timestamp_delta=delta), base_ms=base_ms))
    data, _, true_max, *_ = check_batch(view, check_shape(view, 9), BatchRules(), NOW_MS)
    assert true_max == max(declared_ms, -1) == layout.read_header(data).max_timestamp, (
        "where no time is later than none"
    )
    assert read_records(data)[0][1].timestamp_ms == declared_ms
    assert [message.timestamp_ms for message in read_set(convert_to_messages(bytes(data), 1, 0))] == [declared_ms]
    bounded = BatchRules(timestamp_before_ms_max=1_000)
    assert code_of(view, bounded) == (error_codes.NONE if declared_ms == LONG_MAX else error_codes.INVALID_TIMESTAMP)


def test_seventy_thousand_headers_are_accepted() -> None:
    """REC-22: Kafka has no limit."""
    data = batch(record(headers=encode_signed(70_000) + EMPTY_HEADER * 70_000))
    assert code_of(data) == code_of(data, COMPACTED) == error_codes.NONE


def calls_of(data: bytes | bytearray, rules: BatchRules) -> tuple[int, int]:
    """Returns the result and the number of calls of Python functions."""
    count = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        code = code_of(data, rules)
    finally:
        sys.setprofile(None)
    return code, count


HEADERS_MAX = encode_signed(65_000) + EMPTY_HEADER * 65_000
BOMBS = {
    "headers": (record(headers=encode_signed(16_000_000) + EMPTY_HEADER * 16_000_000), 1),
    "records full of headers": (b"".join(record(offset_delta=at, headers=HEADERS_MAX) for at in range(250)), 250),
    "records": (record() * 3_000_000, 3_000_000),
}


@pytest.mark.skipif(finder.is_installed(), reason="compiled functions are not seen by a profile hook")
@pytest.mark.parametrize("kind", BOMBS)
@pytest.mark.parametrize("rules", [BatchRules(), COMPACTED], ids=["plain", "compacted"])
def test_a_small_batch_with_very_many_parts_is_refused_before_each_is_read(kind: str, rules: BatchRules) -> None:
    """REC-47, REC-62: the event loop of all tenants reads them.

    A producer that gets this error sends smaller batches.
    """
    block, count = BOMBS[kind]
    assert len(block) < DECOMPRESSED_BYTES_MAX
    data = batch(compress(GZIP, block), count, attributes=GZIP)
    assert len(data) < 100_000
    code, calls = calls_of(data, rules)
    # Without further rules only the lengths of records are checked, not their fields.
    fine = kind == "records full of headers" and not rules.compacted
    assert code == (error_codes.NONE if fine else error_codes.MESSAGE_TOO_LARGE)
    assert calls < CALLS_MAX


def test_the_maximum_numbers_of_records_and_headers_are_accepted() -> None:
    few = record(None, None)
    assert code_of(batch(few * RECORDS_PER_BATCH_MAX, RECORDS_PER_BATCH_MAX), BatchRules(batch_bytes_max=1 << 30)) == 0
    more = RECORDS_PER_BATCH_MAX + 1
    assert code_of(batch(few * more, more), BatchRules(batch_bytes_max=1 << 30)) == error_codes.MESSAGE_TOO_LARGE
    many = [record(headers=encode_signed(half) + EMPTY_HEADER * half) for half in [HEADERS_PER_BATCH_MAX // 2] * 2]
    assert code_of(batch(b"".join(many), 2)) == error_codes.NONE
    one_more = record(headers=encode_signed(1) + EMPTY_HEADER)
    assert code_of(batch(b"".join([*many, one_more]), 3)) == error_codes.MESSAGE_TOO_LARGE


def test_the_number_of_empty_compressed_parts_is_limited() -> None:
    """REC-4, REC-62: each gzip member used to cost another copy of all following ones."""
    nothing = gzip.compress(b"", mtime=0)
    whole = gzip.compress(record(), mtime=0)
    fine = whole + nothing * (GZIP_MEMBERS_MAX - 1)
    assert code_of(batch(fine, attributes=GZIP)) == error_codes.NONE
    assert code_of(batch(fine + nothing, attributes=GZIP)) == error_codes.MESSAGE_TOO_LARGE

    def block(content: bytes) -> bytes:
        recompressed = bytes(cramjam.snappy.compress_raw(content))
        return struct.pack(">i", len(recompressed)) + recompressed

    fine = XERIAL_HEADER + block(record()) + block(b"") * (SNAPPY_BLOCKS_MAX - 1)
    assert code_of(batch(fine, attributes=SNAPPY)) == error_codes.NONE
    assert code_of(batch(fine + block(b""), attributes=SNAPPY)) == error_codes.MESSAGE_TOO_LARGE


def test_a_snappy_block_counts_as_a_kilobyte_of_output() -> None:
    """REC-4, REC-62: a batch of 160 KB takes 80 ms, and a request can have six hundred of them."""
    budget = DecompressionBudget(1_001 * 1_024)
    nothing = bytes(cramjam.snappy.compress_raw(b""))
    whole = bytes(cramjam.snappy.compress_raw(record()))
    blocks = [whole, *[nothing] * 999]
    payload = XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    assert code_of(batch(payload, attributes=SNAPPY), budget=budget) == error_codes.NONE
    assert budget.remaining_bytes == 1_024
    assert code_of(batch(whole, attributes=SNAPPY), budget=budget) == error_codes.NONE
    assert budget.remaining_bytes == 0


def test_a_check_that_is_repeated_with_changed_rules_is_charged_again_and_has_the_same_limit() -> None:
    """REC-4: a tenant may change its topic while a produce waits."""
    records = memoryview(bytearray(batch(compress(GZIP, record(value=bytes(100_000))), attributes=GZIP)))
    prechecked = Prechecked(records, 9, BatchRules(), NOW_MS, DecompressionBudget())
    budget = DecompressionBudget(1_000_000)
    prechecked.check(records, len(records), BatchRules(), NOW_MS, budget)
    assert budget.remaining_bytes < 900_000
    with pytest.raises(BatchRejected) as refusal:
        prechecked.check(records, len(records), BatchRules(), NOW_MS, DecompressionBudget(batch_bytes_max=50_000))
    assert refusal.value.code == error_codes.MESSAGE_TOO_LARGE


def test_a_wrapper_of_very_many_messages_is_too_large() -> None:
    """REC-8, REC-47."""
    inner = encode_message(0, 0, -1, None, None)
    few = encode_message(0, 0, -1, None, compress(GZIP, inner * 1_000), GZIP)
    many = encode_message(0, 0, -1, None, compress(GZIP, inner * (RECORDS_PER_BATCH_MAX + 1)), GZIP)
    assert len(to_batch(few, check_message_set(few, 1 << 20), log_append_time=False)) > 0
    with pytest.raises(BatchRejected) as caught:
        to_batch(many, check_message_set(many, 1 << 20), log_append_time=False)
    assert caught.value.code == error_codes.MESSAGE_TOO_LARGE
